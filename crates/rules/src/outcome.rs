//! What all rules of a plan came to on one item, as it is stored with the item.
//!
//! It does not say what follows from a match.

use serde::{Deserialize, Serialize};
use tidegate_schemas::ids::{PolicyId, RuleId, WindowId};

use crate::{
    explain::Explained,
    form::{ActionUse, Status},
};

/// Matches and failures, each in the plan's order of rules.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    pub matched: Vec<Match>,
    /// Matches of rules without effects beyond those listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub matched_more: usize,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errored: Vec<Errored>,
    /// Failures beyond those listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub errored_more: usize,
    /// Fields whose text was longer than what was searched.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub truncated: Vec<String>,
    /// Windows that did not count the item or some of its values, because that is more than an evaluation may do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uncounted: Vec<WindowId>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// A rule whose condition passed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Match {
    pub rule: RuleId,
    pub name: String,
    pub version: String,
    /// Only a live rule has effects.
    pub status: Status,
    pub policies: Vec<PolicyId>,
    pub actions: Vec<ActionUse>,
    pub tree: Explained,
}

/// A rule that could not be decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Errored {
    pub rule: RuleId,
    pub version: String,
    pub status: Status,
    /// `deadline`, or what was looked up (`strikes`, `count`, `media`, `score`), a colon and the reason that was given.
    pub reason: String,
}
