//! The document of a strike threshold.
//!
//! It does not count strikes.

use serde::{Deserialize, Serialize};

use super::period::Period;
use crate::ids::ActionId;

/// `threshold: three-strikes`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Threshold {
    #[serde(rename = "threshold")]
    pub key: String,
    /// The sum at which a user has crossed it.
    pub strikes: u32,
    /// Period in which strikes count.
    pub within: Period,
    pub action: ActionId,
}

impl Threshold {
    pub(super) fn check(&self, faults: &mut Vec<(String, String)>) {
        if self.strikes == 0 {
            faults.push(("strikes".into(), "A threshold needs at least one strike.".into()));
        }
        if self.within.seconds() == 0 {
            faults.push(("within".into(), "A threshold needs a period longer than nothing.".into()));
        }
    }
}
