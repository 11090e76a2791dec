//! Effect of a change on one entry of a bank, as stored in the rows of the change.

use serde::{Deserialize, Serialize};
use tidegate_schemas::banks::BankKind;
use uuid::Uuid;

use super::Entry;

/// Effect of a change on one entry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Operation {
    Put(Entry),
    Remove(Uuid),
    /// Like `Put`, for hash banks.
    PutHash(Entry),
    /// Carries the value, because the index finds an entry by its hash.
    RemoveHash {
        id: Uuid,
        value: String,
    },
}

impl Operation {
    pub(crate) fn for_put(kind: BankKind, entry: Entry) -> Self {
        if kind.hash_kind().is_some() { Self::PutHash(entry) } else { Self::Put(entry) }
    }

    pub(crate) fn for_remove(kind: BankKind, entry: Entry) -> Self {
        let Entry { id, value, .. } = entry;
        if kind.hash_kind().is_some() { Self::RemoveHash { id, value } } else { Self::Remove(id) }
    }
}
