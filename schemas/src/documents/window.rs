//! The document of a window: what is counted, for whom, and over which span of time.
//!
//! It does not count, and it does not understand the condition; `tidegate-rules` does.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::period::Period;
use crate::ids::{TypeId, WindowId};

/// `window: posts-by-user`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    #[serde(rename = "window")]
    pub key: WindowId,
    /// Name for people; the key by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// All item types if left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub item_types: Vec<TypeId>,
    /// The field whose values are counted apart; the item's user if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Condition on the items that are counted; all by default.
    #[serde(default, rename = "where", skip_serializing_if = "Option::is_none")]
    pub condition: Option<Value>,
    /// The field whose numbers are summed up, instead of counting items.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sum: Option<String>,
    /// The field whose different values are counted, instead of counting items.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distinct: Option<String>,
    /// Period that the window covers.
    pub over: Period,
    /// Length of a bucket, by which rows are kept; a 24th of the period by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket: Option<Period>,
}

impl Window {
    pub fn display_name(&self) -> &str {
        self.name.as_deref().unwrap_or(self.key.as_str())
    }

    pub(super) fn check(&self, faults: &mut Vec<(String, String)>) {
        if self.over.seconds() == 0 {
            faults.push(("over".into(), "A window needs a period longer than nothing.".into()));
        }
    }
}
