//! Bank entries: their stored form, their form in requests, and validation.

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

/// Greatest number of labels of an entry.
const MAX_LABELS: usize = 16;
const MAX_LABEL_BYTES: usize = 64;
const MAX_SOURCE_BYTES: usize = 256;

/// Stored entry of a bank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// Derived from bank and value, so that equal entries have equal ids in all environments.
    pub id: Uuid,
    pub value: String,
    pub enabled: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Greatest number of differing bits, if it differs from the bank's. Hash banks only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distance: Option<u8>,
    /// Name of the hash at its source. Hash banks only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// Further sources that list the hash, sorted; at most one is unnamed. Hash banks only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<Origin>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Time at which a match spike switched the entry off. Hash banks only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quarantined_at: Option<Millis>,
    pub added_at: Millis,
    /// Time from which the entry is inactive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Millis>,
    pub author: String,
}

impl Entry {
    /// True if the entries differ at most in author and time.
    pub(super) fn has_same_content(&self, other: &Self) -> bool {
        self.enabled == other.enabled
            && self.labels == other.labels
            && (&self.source, &self.reference, &self.also) == (&other.source, &other.reference, &other.also)
            && (self.distance, &self.note) == (other.distance, &other.note)
            && self.expires_at == other.expires_at
    }
}

/// Entry in a request. `None` keeps the stored value of a field; a blank text clears it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntryInput {
    pub value: String,
    pub labels: Option<Vec<String>>,
    pub source: Option<String>,
    pub expires_at: Option<Millis>,
    /// Greatest number of differing bits. This field and the next two are for hash banks.
    pub distance: Option<u32>,
    pub reference: Option<String>,
    pub note: Option<String>,
    /// True to store the entry switched off. `None` keeps the state of an existing entry.
    pub disabled: Option<bool>,
}

/// Validated entry with its id.
#[derive(Clone)]
pub(super) struct ValidEntry {
    pub(super) id: Uuid,
    input: EntryInput,
    distance: Option<u8>,
    is_hash: bool,
}

impl EntryInput {
    /// Validates the entry; the error is the reason for the rejection.
    pub(super) fn validate(
        mut self,
        (bank, kind): (&BankId, BankKind),
        limits: &Limits,
    ) -> Result<ValidEntry, String> {
        // Limits apply to the canonical form, which is stored and compared.
        self.value = kind.canonical(&self.value)?;
        let max_bytes = if kind == BankKind::Regex { limits.regex_source_bytes } else { limits.word_bytes };
        if self.value.len() > max_bytes {
            return Err(format!("it is longer than {max_bytes} bytes"));
        }
        if kind == BankKind::Regex {
            check_pattern(&self.value, limits)?;
        }
        let distance = check_hash_fields(kind, &self)?;
        let labels = self.labels.as_deref().unwrap_or_default();
        if labels.len() > MAX_LABELS || labels.iter().any(|label| label.len() > MAX_LABEL_BYTES) {
            return Err(format!("an entry has at most {MAX_LABELS} labels of {MAX_LABEL_BYTES} bytes"));
        }
        if labels.iter().any(|label| label.trim().is_empty()) {
            return Err("one of its labels is blank".to_owned());
        }
        if self.source.as_ref().is_some_and(|source| source.len() > MAX_SOURCE_BYTES) {
            return Err(format!("its source is longer than {MAX_SOURCE_BYTES} bytes"));
        }
        Ok(ValidEntry {
            id: entry_id(bank, kind, &self.value),
            input: self,
            distance,
            is_hash: kind.hash_kind().is_some(),
        })
    }
}

impl ValidEntry {
    /// Merges the request with the stored entry, if there is one.
    pub(super) fn into_entry(self, old: Option<&Entry>, author: &str, now: Millis) -> Entry {
        let Self { id, input, distance, is_hash } = self;
        let (Origin { source, reference }, also) = if is_hash {
            origin::OriginUpdate { source: input.source, reference: input.reference }.apply_to(old)
        } else {
            let source = origin::updated_text(input.source, old.and_then(|old| old.source.as_ref()));
            (Origin { source, reference: None }, Vec::new())
        };
        // An entry that is added again keeps its state: an import must not enable one that a moderator
        // switched off.
        let enabled = input.disabled.map_or(old.is_none_or(|old| old.enabled), |disabled| !disabled);
        Entry {
            id,
            value: input.value,
            enabled,
            labels: input.labels.or_else(|| Some(old?.labels.clone())).unwrap_or_default(),
            source,
            distance: distance.or_else(|| old?.distance),
            reference,
            also,
            note: origin::updated_text(input.note, old.and_then(|old| old.note.as_ref())),
            // Enabling the entry ends its quarantine.
            quarantined_at: old.and_then(|old| old.quarantined_at).filter(|_| !enabled),
            added_at: old.map_or(now, |old| old.added_at),
            expires_at: input.expires_at.or_else(|| old?.expires_at),
            author: author.to_owned(),
        }
    }
}

/// Checks the fields that only hash banks have.
fn check_hash_fields(kind: BankKind, input: &EntryInput) -> Result<Option<u8>, String> {
    let Some(hash) = kind.hash_kind() else {
        let has_hash_fields = input.distance.is_some() || input.reference.is_some() || input.note.is_some();
        return if has_hash_fields {
            Err("only hashes have a distance, a reference and a note".to_owned())
        } else {
            Ok(None)
        };
    };
    let max_distance = hash.max_distance();
    if input.distance.is_some_and(|distance| distance > max_distance) {
        return Err(format!("hashes of kind {} may differ in at most {max_distance} bits", hash.name()));
    }
    for (name, text) in [("reference", &input.reference), ("note", &input.note)] {
        if text.as_ref().is_some_and(|text| text.len() > MAX_SOURCE_BYTES) {
            return Err(format!("its {name} is longer than {MAX_SOURCE_BYTES} bytes"));
        }
    }
    Ok(input.distance.and_then(|distance| u8::try_from(distance).ok()))
}

/// Compiles a pattern in a rule of its own, because the engine's limits apply to patterns in rules.
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
