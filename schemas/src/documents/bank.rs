//! Document of a bank: its kind, its settings and its fixed entries. Entries that the API adds are stored as rows.

use serde::{Deserialize, Serialize};

use super::{Percent, Period};
use crate::{
    banks::{BankKind, HashKind},
    ids::BankId,
};

/// Bank document, such as `bank: crypto-terms`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bank {
    #[serde(rename = "bank")]
    pub key: BankId,
    /// Name for people; the key by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub kind: BankKind,
    /// Fixed entries of the bank, in addition to the entries that the API adds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entries: Vec<String>,
    /// File with further fixed entries, one per line, relative to the document. It is read when the document is
    /// applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Default distance of entries without a distance, in bits, for banks of hashes; by default the default distance of
    /// the kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distance: Option<u32>,
    /// Share of items with media to compare with the bank, drawn by the item's id; all by default. For banks of
    /// hashes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<Percent>,
    /// Banks that this one overrules: media that match this bank match neither those banks nor this one. For banks of
    /// hashes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suppresses: Vec<BankId>,
    /// Limit above which an entry with a sudden increase of matches is disabled. For banks of hashes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quarantine: Option<Quarantine>,
}

/// Limits for matches of one entry, counted in each process. An entry that exceeds both is disabled until a person
/// reviews it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quarantine {
    /// Minimum number of matches within the period.
    pub matches: u32,
    /// Period in which matches are counted.
    pub within: Period,
    /// Minimum factor between the matches of this period and of the previous one.
    #[serde(default = "default_increase")]
    pub times: u32,
}

fn default_increase() -> u32 {
    10
}

impl Bank {
    pub fn display_name(&self) -> &str {
        self.name.as_deref().unwrap_or(self.key.as_str())
    }

    pub(super) fn check(&self, faults: &mut Vec<(String, String)>) {
        // Each invalid entry is reported with its place, before the rules are compiled.
        for (index, entry) in self.entries.iter().enumerate() {
            if let Err(reason) = self.kind.canonical(entry) {
                let message = format!("The entry is invalid in a {} bank: {reason}.", self.kind.name());
                faults.push((format!("entries[{index}]"), message));
            }
        }
        match self.kind.hash_kind() {
            Some(kind) => self.check_hashes(kind, faults),
            None => self.check_list(faults),
        }
    }

    fn check_hashes(&self, kind: HashKind, faults: &mut Vec<(String, String)>) {
        let max_distance = kind.max_distance();
        // Above the maximum distance the index would miss matches.
        if self.distance.is_some_and(|distance| distance > max_distance) {
            let message =
                format!("Hashes of kind {} may differ in at most {max_distance} bits.", kind.name());
            faults.push(("distance".into(), message));
        }
        let quarantine = self.quarantine.as_ref();
        if quarantine.is_some_and(|quarantine| {
            quarantine.matches == 0 || quarantine.within.seconds() == 0 || quarantine.times == 0
        }) {
            faults.push(("quarantine".into(), "`matches`, `within` and `times` must be at least 1.".into()));
        }
    }

    fn check_list(&self, faults: &mut Vec<(String, String)>) {
        // Rules search lists in the text of an item, where these settings have no effect.
        let hash_settings = [
            ("distance", self.distance.is_some()),
            ("sample", self.sample.is_some()),
            ("suppresses", !self.suppresses.is_empty()),
            ("quarantine", self.quarantine.is_some()),
        ];
        let message =
            format!("Only a bank of hashes has this setting; the kind of this bank is {}.", self.kind.name());
        let misplaced_settings = hash_settings.into_iter().filter(|(_, is_given)| *is_given);
        faults.extend(misplaced_settings.map(|(name, _)| (name.to_owned(), message.clone())));
    }
}
