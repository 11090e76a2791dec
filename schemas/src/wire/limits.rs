//! Limits of a single request. The HTTP server limits the size of the body before it is parsed.

use serde::{Deserialize, Serialize};

/// Limits of a request, set by the operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Items in one request. Default 1000.
    pub items: usize,
    /// Bytes of the `data` of one item. Default 1048576: the log takes no record above ten times that.
    pub data_bytes: usize,
    /// Thread entries, additional items, reported entries, actions or policies of one report or appeal, each
    /// counted apart. Default 1000.
    pub context_items: usize,
    /// Characters of the note of an action that the platform takes. Default 5000.
    pub note_chars: usize,
    /// Bytes of an id of an item, a type, a user, a policy, an action or an appeal, and of a version. Default 512:
    /// ids are parts of keys, and both log and store bound those.
    pub id_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { items: 1000, data_bytes: 1 << 20, context_items: 1000, note_chars: 5000, id_bytes: 512 }
    }
}

impl Limits {
    /// Returns an error for the first limit that is outside of its possible range.
    pub fn validate(&self) -> Result<(), String> {
        // A key consists of three ids, and the store refuses keys above 64 KiB.
        const LONGEST_ID: usize = 16 << 10;
        // The log refuses records above ten MiB, which include an envelope around the item's data.
        const LARGEST_DATA: usize = 8 << 20;
        let bounds = [
            ("items", self.items, 1 << 20),
            ("data_bytes", self.data_bytes, LARGEST_DATA),
            ("context_items", self.context_items, 1 << 20),
            ("note_chars", self.note_chars, 1 << 20),
            ("id_bytes", self.id_bytes, LONGEST_ID),
        ];
        // A limit of 0 would refuse all requests.
        match bounds.into_iter().find(|(_, value, most)| *value == 0 || value > most) {
            Some((name, value, most)) => {
                Err(format!("`{name}` is {value}, but must be between 1 and {most}"))
            }
            None => Ok(()),
        }
    }
}
