//! The document of a bank: what its entries are, and those that belong to the configuration.
//!
//! It does not hold the entries that come and go without a new configuration; those are rows.

use serde::{Deserialize, Serialize};

use super::{Percent, Period};
use crate::{
    banks::{BankKind, HashKind},
    ids::BankId,
};

/// `bank: crypto-terms`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bank {
    #[serde(rename = "bank")]
    pub key: BankId,
    /// Name for people; the key by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub kind: BankKind,
    /// Entries that the bank always has, beside those that are added to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entries: Vec<String>,
    /// A file with more of them, one a line, beside the document. It is read in when the document is applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Number of bits that may differ where an entry does not say, for banks of hashes; the kind's usual distance by
    /// default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distance: Option<u32>,
    /// Share of items whose media are compared with the bank, drawn by the item's id; all by default. For banks of
    /// hashes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<Percent>,
    /// Banks that this one overrules: a medium in this bank makes no matches in those, nor in this one. For banks of
    /// hashes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suppresses: Vec<BankId>,
    /// Limit above which an entry that suddenly matches too much is switched off. For banks of hashes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quarantine: Option<Quarantine>,
}

/// An entry that one process sees match so often, and so much more often than before, is put aside for people to look at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quarantine {
    /// Number of matches ...
    pub matches: u32,
    /// ... in this time ...
    pub within: Period,
    /// ... which are so many times what it had before.
    #[serde(default = "usual_jump")]
    pub times: u32,
}

fn usual_jump() -> u32 {
    10
}

impl Bank {
    pub fn display_name(&self) -> &str {
        self.name.as_deref().unwrap_or(self.key.as_str())
    }

    pub(super) fn check(&self, faults: &mut Vec<(String, String)>) {
        for (index, entry) in self.entries.iter().enumerate() {
            if let Err(reason) = self.kind.canonical(entry) {
                let message = format!("The entry cannot be one of a {} bank: {reason}.", self.kind.name());
                faults.push((format!("entries[{index}]"), message));
            }
        }
        match self.kind.hash() {
            Some(kind) => self.check_hashes(kind, faults),
            None => self.check_list(faults),
        }
    }

    fn check_hashes(&self, kind: HashKind, faults: &mut Vec<(String, String)>) {
        let most = kind.most_distance();
        if self.distance.is_some_and(|distance| distance > most) {
            let message = format!("Hashes of kind {} may differ in at most {most} bits.", kind.name());
            faults.push(("distance".into(), message));
        }
        let quarantine = self.quarantine.as_ref();
        if quarantine.is_some_and(|it| it.matches == 0 || it.within.seconds() == 0 || it.times == 0) {
            faults.push(("quarantine".into(), "Each of its numbers is at least 1.".into()));
        }
    }

    fn check_list(&self, faults: &mut Vec<(String, String)>) {
        let given = [
            ("distance", self.distance.is_some()),
            ("sample", self.sample.is_some()),
            ("suppresses", !self.suppresses.is_empty()),
            ("quarantine", self.quarantine.is_some()),
        ];
        let message = format!("Only banks of hashes have it, and this one is of kind {}.", self.kind.name());
        let wrong = given.into_iter().filter(|(_, is_given)| *is_given);
        faults.extend(wrong.map(|(name, _)| (name.to_owned(), message.clone())));
    }
}
