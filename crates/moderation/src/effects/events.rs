//! Bodies of callback events, without the `sequence` that the owner of the callbacks partition adds.

use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};
use tidegate_catalog::Compiled;
use tidegate_schemas::{
    documents::{Event, Severity},
    ids::{ActionId, AppealId, DecisionId, EventId, ItemKey, PolicyId, RuleId},
    records::Verdict,
};

#[derive(Clone, Debug, Serialize)]
pub struct Named<Id> {
    pub id: Id,
    pub name: String,
}

#[derive(Debug, Serialize)]
pub struct ActionRef {
    pub id: ActionId,
}

/// A policy as callbacks name it.
#[derive(Clone, Debug, Serialize)]
pub struct PolicyRef {
    pub id: PolicyId,
    pub name: String,
    /// Severity of a violation; absent for a policy that is no longer configured.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "in_capitals")]
    pub penalty: Option<Severity>,
}

/// An item as callbacks name it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ItemRef {
    #[serde(flatten)]
    pub key: ItemKey,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub type_name: Option<String>,
}

/// The decision that an event is about.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DecisionRef {
    pub id: DecisionId,
    pub verdict: Verdict,
    /// Actor that the platform named for its own action; absent for decisions of moderators.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub policies: Vec<PolicyRef>,
    pub actions: Vec<DecidedAction>,
    /// Actions on items that belong to the job.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub related: Vec<DecidedRelated>,
    pub decided_at: String,
}

/// Actions of a decision on an item that belongs to its job.
#[derive(Clone, Debug, Serialize)]
pub struct DecidedRelated {
    pub item: ItemKey,
    pub actions: Vec<DecidedAction>,
    pub policies: Vec<PolicyId>,
}

/// An action of a decision, with the parameters that the moderator gave.
#[derive(Clone, Debug, Serialize)]
pub struct DecidedAction {
    pub id: ActionId,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub parameters: Map<String, Value>,
}

/// Value of a parameter that a rule gives and that a rule with a lower id overrules.
#[derive(Clone, Debug, Serialize)]
pub struct Conflict {
    pub parameter: String,
    pub rule: RuleId,
    pub value: Value,
}

/// A threshold that a user crossed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrossedThreshold {
    /// Key of the threshold's document.
    pub id: String,
    /// Points at which it is crossed.
    pub limit: i64,
    /// Points of the user within its period when it was crossed.
    pub strikes: i64,
}

/// Event of an action of rules, of a decision, or of a strike threshold.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ActionEvent {
    pub id: EventId,
    #[serde(rename = "type")]
    pub event_type: Event,
    pub occurred_at: String,
    pub item: ItemRef,
    /// Absent for a decision that takes no action.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<ActionRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<DecisionRef>,
    pub policies: Vec<PolicyRef>,
    pub rules: Vec<Named<RuleId>>,
    /// Rules beyond those named, see `catalog.rules.stored_matches`.
    #[serde(skip_serializing_if = "is_zero")]
    pub rules_more: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creator: Option<ItemKey>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_strike_count: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold: Option<CrossedThreshold>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision_reason: Option<String>,
    pub custom: Map<String, Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<Conflict>,
}

/// Event that tells the platform the outcome of its appeal.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AppealEvent {
    pub id: EventId,
    #[serde(rename = "type")]
    pub event_type: Event,
    pub occurred_at: String,
    pub appeal_id: AppealId,
    pub appealed_by: ItemKey,
    pub appeal_decision: &'static str,
    pub item: ItemRef,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision_reason: Option<String>,
    pub custom: Map<String, Value>,
}

#[allow(clippy::ref_option, reason = "the signature that serde calls")]
fn in_capitals<S: Serializer>(penalty: &Option<Severity>, serializer: S) -> Result<S::Ok, S::Error> {
    serde_json::to_value(penalty)
        .ok()
        .as_ref()
        .and_then(Value::as_str)
        .map(str::to_uppercase)
        .serialize(serializer)
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
pub(super) fn is_zero(count: &usize) -> bool {
    *count == 0
}

pub fn body(event: &impl Serialize) -> String {
    serde_json::to_string(event).expect("an event has string keys only")
}

/// Adds `userStrikeCount` as the last member of a body.
pub(super) fn with_strikes(body: &str, strikes: i64) -> String {
    let open = body.strip_suffix('}').unwrap_or(body);
    format!("{open},\"userStrikeCount\":{strikes}}}")
}

/// Names the item's type. One that is no longer configured has no name.
pub fn item(config: &Compiled, key: &ItemKey) -> ItemRef {
    let type_name = config.item_type(&key.type_id).map(|item_type| item_type.name.clone());
    ItemRef { key: key.clone(), type_name }
}

/// Adds names to the ids. A policy that is no longer configured has its id as its name.
pub fn policies(config: &Compiled, ids: &[PolicyId]) -> Vec<PolicyRef> {
    ids.iter()
        .map(|id| {
            let policy = config.policy(id);
            PolicyRef {
                id: id.clone(),
                name: policy.map_or_else(|| id.to_string(), |policy| policy.name.clone()),
                penalty: policy.map(|policy| policy.severity),
            }
        })
        .collect()
}
