//! The document of a bank: what its entries are, and those that belong to the configuration.
//!
//! It does not hold the entries that come and go without a new configuration; those are rows.

use serde::{Deserialize, Serialize};

use crate::{banks::BankKind, ids::BankId};

/// `bank: crypto-terms`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bank {
    #[serde(rename = "bank")]
    pub key: BankId,
    /// For people; the key if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub kind: BankKind,
    /// Entries that the bank always has, beside those that are added to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entries: Vec<String>,
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
    }
}
