//! Results of all rules of a plan on one item, as they are stored with the item.

use std::{ops::Deref, sync::Arc};

use serde::{Deserialize, Serialize, Serializer, ser::SerializeStruct as _};
use serde_json::Map;
use tidegate_schemas::ids::{PolicyId, RuleId, WindowId};

use crate::{
    leaves::Explained,
    syntax::{ActionUse, Status},
};

/// Matches and failures, each in the plan's order of rules.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    pub matched: Vec<Match>,
    /// Matches of rules without effects beyond those listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub matched_more: usize,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errored: Vec<RuleFailure>,
    /// Failures beyond those listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub errored_more: usize,
    /// Fields whose text was longer than what was searched, and `signal:<name>` for the text of a model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub truncated: Vec<String>,
    /// Windows that did not count the item or some of its values, because that is more than an evaluation may do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uncounted: Vec<WindowId>,
}

impl Outcome {
    pub fn left_out(&self) -> Omissions {
        Omissions {
            matched_more: self.matched_more,
            errored_more: self.errored_more,
            uncounted: self.uncounted.clone(),
            truncated: self.truncated.clone(),
        }
    }
}

/// Parts that an evaluation did not search, count or list, because that is more than it may. It is written without what
/// is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Omissions {
    #[serde(skip_serializing_if = "is_zero")]
    pub matched_more: usize,
    #[serde(skip_serializing_if = "is_zero")]
    pub errored_more: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub uncounted: Vec<WindowId>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub truncated: Vec<String>,
}

impl Omissions {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// Name and version of a rule, and what its matches lead to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleInfo {
    pub rule: RuleId,
    pub name: String,
    pub version: String,
    /// Status; a rule has effects only while it is live.
    pub status: Status,
    pub policies: Vec<PolicyId>,
    pub actions: Vec<ActionUse>,
}

/// A rule whose condition passed. It is written as one object.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "StoredMatch")]
pub struct Match {
    /// Shared with the rule: a copy of each word would cost more than to find the match.
    pub named: Arc<RuleInfo>,
    pub tree: Explained,
}

impl Match {
    /// The match in few bytes: without its explanation and the parameters of its actions.
    #[must_use]
    pub fn shortened(&self) -> Self {
        let bare = |action: &ActionUse| ActionUse { id: action.id.clone(), params: Map::new() };
        let named = if self.actions.iter().all(|action| action.params.is_empty()) {
            Arc::clone(&self.named)
        } else {
            let actions = self.actions.iter().map(bare).collect();
            Arc::new(RuleInfo { actions, ..(*self.named).clone() })
        };
        Self { named, tree: Explained::of_cut_match() }
    }
}

impl Deref for Match {
    type Target = RuleInfo;

    fn deref(&self) -> &RuleInfo {
        &self.named
    }
}

impl Serialize for Match {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let RuleInfo { rule, name, version, status, policies, actions } = &*self.named;
        let mut written = serializer.serialize_struct("Match", 7)?;
        written.serialize_field("rule", rule)?;
        written.serialize_field("name", name)?;
        written.serialize_field("version", version)?;
        written.serialize_field("status", status)?;
        written.serialize_field("policies", policies)?;
        written.serialize_field("actions", actions)?;
        written.serialize_field("tree", &self.tree)?;
        written.end()
    }
}

/// A match as it is written. Without `flatten`, which cannot read numbers of any length.
#[derive(Deserialize)]
struct StoredMatch {
    rule: RuleId,
    name: String,
    version: String,
    status: Status,
    policies: Vec<PolicyId>,
    actions: Vec<ActionUse>,
    tree: Explained,
}

impl From<StoredMatch> for Match {
    fn from(written: StoredMatch) -> Self {
        let StoredMatch { rule, name, version, status, policies, actions, tree } = written;
        Self { named: Arc::new(RuleInfo { rule, name, version, status, policies, actions }), tree }
    }
}

/// A rule that could not be decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleFailure {
    pub rule: RuleId,
    pub version: String,
    pub status: Status,
    /// `deadline`, or what was looked up (`strikes`, `count`, `media`, `score`, `model_text`), a colon and the reason that was given.
    pub reason: String,
}
