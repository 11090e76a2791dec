//! The document of a review queue.
//!
//! It does not list the queues that every organisation has from the start.

use serde::{Deserialize, Serialize};

use crate::ids::QueueId;

/// `queue: spam`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Queue {
    #[serde(rename = "queue")]
    pub key: QueueId,
    /// Name for people; the key by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl Queue {
    pub fn display_name(&self) -> &str {
        self.name.as_deref().unwrap_or(self.key.as_str())
    }
}
