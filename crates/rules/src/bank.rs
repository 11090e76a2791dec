//! Banks: lists of words, patterns, places or domains that rules share, as whoever keeps them hands them in.
//!
//! It stores none; a plan that is compiled anew has their new entries.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidegate_schemas::{banks::BankKind, ids::BankId};

/// A bank with the entries that are enabled.
#[derive(Clone, Debug)]
pub struct Bank {
    pub key: BankId,
    pub kind: BankKind,
    pub entries: Arc<[BankEntry]>,
}

/// An entry, in the canonical form of its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BankEntry {
    /// By which outcomes name it.
    pub id: Arc<str>,
    pub value: String,
    pub labels: Arc<[String]>,
}

/// Which entry of a bank was found.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EntryName {
    pub bank: BankId,
    pub id: Arc<str>,
    #[serde(default, skip_serializing_if = "is_empty")]
    pub labels: Arc<[String]>,
}

fn is_empty(labels: &Arc<[String]>) -> bool {
    labels.is_empty()
}

impl Bank {
    pub(crate) fn name(&self, entry: &BankEntry) -> EntryName {
        EntryName { bank: self.key.clone(), id: Arc::clone(&entry.id), labels: Arc::clone(&entry.labels) }
    }
}
