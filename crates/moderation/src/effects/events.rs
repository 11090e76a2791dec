//! Bodies of callback events, without the `sequence` that the owner of the callbacks partition adds.

use serde::Serialize;
use tidegate_catalog::Compiled;
use tidegate_schemas::{
    documents::Event,
    ids::{ActionId, AppealId, EventId, ItemKey, PolicyId, RuleId},
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

/// Value of a parameter that a rule gives and that a rule with a lower id overrules.
#[derive(Clone, Debug, Serialize)]
pub struct Conflict {
    pub parameter: String,
    pub rule: RuleId,
    pub value: serde_json::Value,
}

/// Event of an action of rules, of a moderator, or of a strike threshold.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ActionEvent {
    pub id: EventId,
    #[serde(rename = "type")]
    pub event_type: Event,
    pub occurred_at: String,
    pub item: ItemKey,
    pub action: ActionRef,
    pub policies: Vec<Named<PolicyId>>,
    pub rules: Vec<Named<RuleId>>,
    /// Rules beyond those named, see `catalog.rules.stored_matches`.
    #[serde(skip_serializing_if = "is_zero")]
    pub rules_more: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creator: Option<ItemKey>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_strike_count: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision_reason: Option<String>,
    pub custom: serde_json::Map<String, serde_json::Value>,
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
    pub item: ItemKey,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision_reason: Option<String>,
    pub custom: serde_json::Map<String, serde_json::Value>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
pub(super) fn is_zero(count: &usize) -> bool {
    *count == 0
}

pub fn body(event: &impl Serialize) -> String {
    serde_json::to_string(event).expect("an event has string keys only")
}

/// Adds names to the ids. A policy that is no longer configured has its id as its name.
pub fn policies(config: &Compiled, ids: &[PolicyId]) -> Vec<Named<PolicyId>> {
    ids.iter()
        .map(|id| Named {
            id: id.clone(),
            name: config.policy(id).map_or_else(|| id.to_string(), |policy| policy.name.clone()),
        })
        .collect()
}
