//! Document of a strike threshold. Strikes are counted in `tidegate-moderation`.

use serde::{Deserialize, Serialize};

use super::period::Period;
use crate::ids::ActionId;

/// Threshold document, such as `threshold: three-strikes`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Threshold {
    #[serde(rename = "threshold")]
    pub key: String,
    /// Sum of strikes at which a user crosses the threshold.
    pub strikes: u32,
    /// Period in which strikes count.
    pub within: Period,
    pub action: ActionId,
}

impl Threshold {
    pub(super) fn check(&self, faults: &mut Vec<(String, String)>) {
        // Users without strikes would cross the threshold.
        if self.strikes == 0 {
            faults.push(("strikes".into(), "A threshold needs at least one strike.".into()));
        }
        if self.within.seconds() == 0 {
            faults.push(("within".into(), "The period of a threshold must be at least one second.".into()));
        }
    }
}
