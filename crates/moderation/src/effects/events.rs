//! Bodies of callback events. The owner of the callbacks partition adds `sequence` later.

use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};
use tidegate_catalog::Compiled;
use tidegate_schemas::{
    documents::{Event, Severity},
    ids::{ActionId, AppealId, DecisionId, EventId, ItemKey, PolicyId, RuleId},
    records::Verdict,
};

/// Id and display name of a document.
#[derive(Clone, Debug, Serialize)]
pub struct NamedRef<Id> {
    pub id: Id,
    pub name: String,
}

#[derive(Debug, Serialize)]
pub struct ActionRef {
    pub id: ActionId,
}

/// Policy in a callback body.
#[derive(Clone, Debug, Serialize)]
pub struct PolicyRef {
    pub id: PolicyId,
    pub name: String,
    /// Severity of a violation; absent for a policy that is no longer configured.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "in_capitals")]
    pub penalty: Option<Severity>,
}

/// Item in a callback body.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ItemRef {
    #[serde(flatten)]
    pub key: ItemKey,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub type_name: Option<String>,
}

/// Decision that caused an event.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DecisionRef {
    pub id: DecisionId,
    pub verdict: Verdict,
    /// Actor stated by the platform for its own action; absent for decisions of moderators.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub policies: Vec<PolicyRef>,
    pub actions: Vec<DecidedAction>,
    /// Actions on related items of the job.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub related: Vec<DecidedRelated>,
    pub decided_at: String,
}

/// Actions of a decision on one related item.
#[derive(Clone, Debug, Serialize)]
pub struct DecidedRelated {
    pub item: ItemKey,
    pub actions: Vec<DecidedAction>,
    pub policies: Vec<PolicyId>,
}

/// Action of a decision with the moderator's parameters.
#[derive(Clone, Debug, Serialize)]
pub struct DecidedAction {
    pub id: ActionId,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub parameters: Map<String, Value>,
}

/// Parameter value that a rule with a lower id overrides.
#[derive(Clone, Debug, Serialize)]
pub struct ParameterConflict {
    pub parameter: String,
    pub rule: RuleId,
    pub value: Value,
}

/// Strike threshold that a user crossed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrossedThreshold {
    /// Key of the threshold's document.
    pub id: String,
    /// Points that a sum must reach to cross the threshold.
    pub limit: i64,
    /// Points of the user within the threshold's period at the crossing.
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
    pub rules: Vec<NamedRef<RuleId>>,
    /// Number of rules that `rules` omits, see `catalog.rules.stored_matches`.
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
    pub conflicts: Vec<ParameterConflict>,
}

/// Event with the outcome of an appeal.
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

pub fn serialize_body(event: &impl Serialize) -> String {
    serde_json::to_string(event).expect("an event has string keys only")
}

/// Adds `userStrikeCount` as the last member of a body.
pub(super) fn with_strikes(body: &str, strikes: i64) -> String {
    // Textual, because the total is known only after the body was serialised.
    let open = body.strip_suffix('}').unwrap_or(body);
    format!("{open},\"userStrikeCount\":{strikes}}}")
}

/// Adds the type's name. A type that is no longer configured has none.
pub fn item_ref(config: &Compiled, key: &ItemKey) -> ItemRef {
    let type_name = config.item_type(&key.type_id).map(|item_type| item_type.name.clone());
    ItemRef { key: key.clone(), type_name }
}

/// Adds names to policy ids. A policy that is no longer configured is named by its id.
pub fn policy_refs(config: &Compiled, ids: &[PolicyId]) -> Vec<PolicyRef> {
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
