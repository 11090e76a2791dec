//! Results of all rules of a plan on one item, in the form that is stored with the item.

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
    /// Number of unlisted matches. Their rules have no effects.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub matched_more: usize,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errored: Vec<RuleFailure>,
    /// Number of unlisted failures.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub errored_more: usize,
    /// Fields with a text longer than the searched part, and `signal:<name>` for the text of a model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub truncated: Vec<String>,
    /// Windows that did not count the item or some of its values because of a limit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uncounted: Vec<WindowId>,
}

impl Outcome {
    pub fn omissions(&self) -> Omissions {
        Omissions {
            matched_more: self.matched_more,
            errored_more: self.errored_more,
            uncounted: self.uncounted.clone(),
            truncated: self.truncated.clone(),
        }
    }
}

/// Parts that an evaluation did not search, count or list because of a limit. Empty parts are not serialized.
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

/// Name, version and effects of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleInfo {
    pub rule: RuleId,
    pub name: String,
    pub version: String,
    /// Status. A rule has effects only while it is live.
    pub status: Status,
    pub policies: Vec<PolicyId>,
    pub actions: Vec<ActionUse>,
}

/// Match of a rule. It is serialized as one object.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "StoredMatch")]
pub struct Match {
    /// Shared with the rule, because a copy of its texts would cost more than the search for the match.
    pub info: Arc<RuleInfo>,
    pub tree: Explained,
}

impl Match {
    /// Returns the match without its explanation and the parameters of its actions, which take most of its bytes.
    #[must_use]
    pub fn shortened(&self) -> Self {
        let bare = |action: &ActionUse| ActionUse { id: action.id.clone(), params: Map::new() };
        // Without parameters the match can share the data of the rule.
        let info = if self.actions.iter().all(|action| action.params.is_empty()) {
            Arc::clone(&self.info)
        } else {
            let actions = self.actions.iter().map(bare).collect();
            Arc::new(RuleInfo { actions, ..(*self.info).clone() })
        };
        Self { info, tree: Explained::cut_match() }
    }
}

impl Deref for Match {
    type Target = RuleInfo;

    fn deref(&self) -> &RuleInfo {
        &self.info
    }
}

impl Serialize for Match {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let RuleInfo { rule, name, version, status, policies, actions } = &*self.info;
        let mut object = serializer.serialize_struct("Match", 7)?;
        object.serialize_field("rule", rule)?;
        object.serialize_field("name", name)?;
        object.serialize_field("version", version)?;
        object.serialize_field("status", status)?;
        object.serialize_field("policies", policies)?;
        object.serialize_field("actions", actions)?;
        object.serialize_field("tree", &self.tree)?;
        object.end()
    }
}

/// Serialized form of a match. It avoids `flatten`, which cannot read numbers of any length.
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
    fn from(stored: StoredMatch) -> Self {
        let StoredMatch { rule, name, version, status, policies, actions, tree } = stored;
        Self { info: Arc::new(RuleInfo { rule, name, version, status, policies, actions }), tree }
    }
}

/// Rule without a decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleFailure {
    pub rule: RuleId,
    pub version: String,
    pub status: Status,
    /// `deadline`, or the kind of the look-up (`strikes`, `count`, `media`, `score`, `model_text`), a colon and the reason.
    pub reason: String,
}
