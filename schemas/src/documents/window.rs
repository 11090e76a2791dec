//! Document of a window, which counts items over a period. Counting is in `tidegate-moderation`, the condition is
//! compiled in `tidegate-rules`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::period::Period;
use crate::ids::{TypeId, WindowId};

/// Window document, such as `window: posts-by-user`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    #[serde(rename = "window")]
    pub key: WindowId,
    /// Name for people; the key by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Counted item types; all by default.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub item_types: Vec<TypeId>,
    /// Field with a separate count for each value; by default the item's user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Condition for counted items; all by default.
    #[serde(default, rename = "where", skip_serializing_if = "Option::is_none")]
    pub condition: Option<Value>,
    /// Field with numbers to sum up, instead of counting items.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sum: Option<String>,
    /// Field with values of which different ones are counted, instead of counting items.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distinct: Option<String>,
    /// Period of the window.
    pub over: Period,
    /// Length of a bucket, which has one row; a 24th of the period by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket: Option<Period>,
}

impl Window {
    pub fn display_name(&self) -> &str {
        self.name.as_deref().unwrap_or(self.key.as_str())
    }

    pub(super) fn check(&self, faults: &mut Vec<(String, String)>) {
        // An empty period contains no item, so the count would always be zero.
        if self.over.seconds() == 0 {
            faults.push(("over".into(), "The period of a window must be at least one second.".into()));
        }
    }
}
