//! One entry of a bank: as it is kept, as somebody hands it in, and which of the latter can be one.
//!
//! It stores nothing.

use serde::{Deserialize, Serialize};
use serde_json::json;
use tidegate_media::banks::entry_id;
use tidegate_rules::{Limits, Plan, RuleSource, Shape, Vocabulary};
use tidegate_schemas::{
    banks::BankKind,
    ids::{BankId, Millis, TypeId},
};
use uuid::Uuid;

use super::origin::{self, Origin};

/// Labels of an entry, and their length in bytes.
const LABELS: (usize, usize) = (16, 64);
const LONGEST_SOURCE: usize = 256;

/// An entry as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// Derived from bank and value: the same entry is the same in every environment.
    pub id: Uuid,
    pub value: String,
    pub enabled: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Number of bits that may differ, if it is not the bank's. For banks of hashes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distance: Option<u8>,
    /// Name that the source gives to the hash. For banks of hashes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// Other sources that list the hash, in order; at most one of them has no name. For banks of hashes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<Origin>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Time at which the entry was switched off because it matched too much. For banks of hashes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quarantined_at: Option<Millis>,
    pub added_at: Millis,
    /// Time from which the entry counts as switched off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Millis>,
    pub author: String,
}

impl Entry {
    /// Apart from who handed it in, and when.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.enabled == other.enabled
            && self.labels == other.labels
            && (&self.source, &self.reference, &self.also) == (&other.source, &other.reference, &other.also)
            && (self.distance, &self.note) == (other.distance, &other.note)
            && self.expires_at == other.expires_at
    }
}

/// An entry as somebody hands it in. What is `None` stays as it is of an entry that is there; a blank text takes out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Given {
    pub value: String,
    pub labels: Option<Vec<String>>,
    pub source: Option<String>,
    pub expires_at: Option<Millis>,
    /// Number of bits that may differ. This and the next two are for banks of hashes.
    pub distance: Option<u32>,
    pub reference: Option<String>,
    pub note: Option<String>,
    /// It is in the bank, but does not count. Only who says so switches an entry on or off.
    pub disabled: Option<bool>,
}

/// Valid entry with its id.
#[derive(Clone)]
pub(super) struct Checked {
    pub(super) id: Uuid,
    given: Given,
    distance: Option<u8>,
    is_hash: bool,
}

impl Given {
    /// Or why it cannot be an entry.
    pub(super) fn check(
        mut self,
        (bank, kind): (&BankId, BankKind),
        limits: &Limits,
    ) -> Result<Checked, String> {
        self.value = kind.canonical(&self.value)?;
        let longest = if kind == BankKind::Regex { limits.regex_source_bytes } else { limits.word_bytes };
        if self.value.len() > longest {
            return Err(format!("it is longer than {longest} bytes"));
        }
        if kind == BankKind::Regex {
            check_pattern(&self.value, limits)?;
        }
        let distance = check_hash(kind, &self)?;
        let (most, bytes) = LABELS;
        let labels = self.labels.as_deref().unwrap_or_default();
        if labels.len() > most || labels.iter().any(|label| label.len() > bytes) {
            return Err(format!("an entry has at most {most} labels of {bytes} bytes"));
        }
        if labels.iter().any(|label| label.trim().is_empty()) {
            return Err("one of its labels is blank".to_owned());
        }
        if self.source.as_ref().is_some_and(|source| source.len() > LONGEST_SOURCE) {
            return Err(format!("its source is longer than {LONGEST_SOURCE} bytes"));
        }
        Ok(Checked {
            id: entry_id(bank, kind, &self.value),
            given: self,
            distance,
            is_hash: kind.hash().is_some(),
        })
    }
}

impl Checked {
    /// The entry that becomes of it, and of what is there.
    pub(super) fn over(self, old: Option<&Entry>, author: &str, now: Millis) -> Entry {
        let Self { id, given, distance, is_hash } = self;
        let (Origin { source, reference }, also) = if is_hash {
            origin::Named { source: given.source, reference: given.reference }.over(old)
        } else {
            let source = origin::text(given.source, old.and_then(|old| old.source.as_ref()));
            (Origin { source, reference: None }, Vec::new())
        };
        let enabled = given.disabled.map_or(old.is_none_or(|old| old.enabled), |disabled| !disabled);
        Entry {
            id,
            value: given.value,
            enabled,
            labels: given.labels.or_else(|| Some(old?.labels.clone())).unwrap_or_default(),
            source,
            distance: distance.or_else(|| old?.distance),
            reference,
            also,
            note: origin::text(given.note, old.and_then(|old| old.note.as_ref())),
            quarantined_at: old.and_then(|old| old.quarantined_at).filter(|_| !enabled),
            added_at: old.map_or(now, |old| old.added_at),
            expires_at: given.expires_at.or_else(|| old?.expires_at),
            author: author.to_owned(),
        }
    }
}

/// Checks the parts that only entries of banks of hashes have.
fn check_hash(kind: BankKind, given: &Given) -> Result<Option<u8>, String> {
    let Some(hash) = kind.hash() else {
        let has_more = given.distance.is_some() || given.reference.is_some() || given.note.is_some();
        return if has_more {
            Err("only hashes have a distance, a reference and a note".to_owned())
        } else {
            Ok(None)
        };
    };
    let most = hash.most_distance();
    if given.distance.is_some_and(|distance| distance > most) {
        return Err(format!("hashes of kind {} may differ in at most {most} bits", hash.name()));
    }
    for (name, text) in [("reference", &given.reference), ("note", &given.note)] {
        if text.as_ref().is_some_and(|text| text.len() > LONGEST_SOURCE) {
            return Err(format!("its {name} is longer than {LONGEST_SOURCE} bytes"));
        }
    }
    Ok(given.distance.and_then(|distance| u8::try_from(distance).ok()))
}

/// Checks a pattern as a rule that holds it would be checked.
fn check_pattern(pattern: &str, limits: &Limits) -> Result<(), String> {
    let mut vocabulary = Vocabulary::new();
    let shape = Shape { kind: tidegate_rules::Kind::Text, container: tidegate_rules::Container::One };
    vocabulary.add(TypeId::new("item"), [("text", shape)]);
    let rule = json!({"rule": "entry", "when": {"text": {"in": ["text"], "regex": pattern}}});
    let compiled = Plan::compile(&[RuleSource { document: &rule, version: "" }], &vocabulary, limits);
    match compiled {
        Ok(_) => Ok(()),
        Err(faults) => Err(faults.first().map_or_else(String::new, |fault| fault.detail.clone())),
    }
}
