//! From an item's evaluation to the plan of its effects; pure.
//!
//! It neither reads nor writes. Status gates effects here: every rule was evaluated, only live ones act.

use std::collections::BTreeMap;

use serde::Serialize;
use tidegate_catalog::{ActionKind, Compiled};
use tidegate_rules::{Match, Outcome, Status};
use tidegate_schemas::ids::{
    ActionId, EventId, ItemKey, Kind as IdKind, Millis, OrgId, PolicyId, RuleId, SubmissionId, derive,
};

use super::{Findings, Kind, Plan, Taken};
use crate::events;

/// What was evaluated, and when the log took it.
#[derive(Debug)]
pub struct Evaluated<'a> {
    pub org: &'a OrgId,
    pub submission_id: SubmissionId,
    pub item: &'a ItemKey,
    /// Who is struck: the item's creator, or the user that the item is.
    pub user: Option<&'a ItemKey>,
    pub append_ms: Millis,
    pub outcome: &'a Outcome,
    /// Set where the item's reviews are somebody else's: why.
    pub no_reviews: Option<&'static str>,
}

/// An action as the item's row lists it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ListedAction<'a> {
    id: &'a ActionId,
    #[serde(skip_serializing_if = "Option::is_none")]
    event_id: Option<EventId>,
    rules: &'a [RuleId],
    policies: &'a [PolicyId],
    #[serde(skip_serializing_if = "Option::is_none")]
    suppressed: Option<&'static str>,
}

/// The rules that asked for one action, and the union of their policies.
#[derive(Default)]
struct Asked<'a> {
    live: Vec<&'a Match>,
    idle: Vec<&'a Match>,
}

pub fn plan_item(config: &Compiled, evaluated: &Evaluated<'_>) -> Plan {
    let mut asked: BTreeMap<&ActionId, Asked<'_>> = BTreeMap::new();
    for found in &evaluated.outcome.matched {
        for action in &found.actions {
            let asked = asked.entry(&action.id).or_default();
            match found.status {
                Status::Live => asked.live.push(found),
                Status::Draft | Status::Background | Status::Archived => asked.idle.push(found),
            }
        }
    }

    let mut plan = Plan::empty(evaluated.org, evaluated.submission_id.0, Kind::Item, config.version());
    let mut listed = Vec::new();
    for (id, asked) in &asked {
        let causes = if asked.live.is_empty() { &asked.idle } else { &asked.live };
        let rules: Vec<RuleId> = causes.iter().map(|found| found.rule.clone()).collect();
        let policies = union_of_policies(causes);
        let suppressed = if asked.live.is_empty() {
            Some("background")
        } else {
            take(&mut plan, config, evaluated, id, causes, &policies)
        };
        listed.push((id, rules, policies, suppressed));
    }
    let actions: Vec<_> = listed
        .iter()
        .map(|(id, rules, policies, suppressed)| ListedAction {
            id,
            event_id: suppressed.is_none().then(|| event_id(evaluated, id)),
            rules,
            policies,
            suppressed: *suppressed,
        })
        .collect();
    plan.evaluation = Some(Findings {
        evaluated_at: evaluated.append_ms,
        matched: json(&evaluated.outcome.matched),
        errored: json(&evaluated.outcome.errored),
        actions: json(&actions),
    });
    plan
}

/// Adds the action to the plan, or says why it is not taken.
fn take(
    plan: &mut Plan,
    config: &Compiled,
    evaluated: &Evaluated<'_>,
    id: &ActionId,
    causes: &[&Match],
    policies: &[PolicyId],
) -> Option<&'static str> {
    let Some(action) = config.action(id) else { return Some("unknown_action") };
    if matches!(action.kind, ActionKind::EnqueueReview { .. }) && evaluated.no_reviews.is_some() {
        return evaluated.no_reviews;
    }
    let named = |found: &&Match| events::Named { id: found.rule.clone(), name: found.name.clone() };
    plan.take(
        config,
        &Taken {
            action: id,
            event_id: event_id(evaluated, id),
            event_type: events::AUTOMATIC,
            item: evaluated.item,
            user: evaluated.user,
            at: evaluated.append_ms,
            occurred_at: evaluated.append_ms,
            policies,
            rules: causes.iter().map(named).collect(),
            reason: None,
        },
    );
    None
}

fn event_id(evaluated: &Evaluated<'_>, action: &ActionId) -> EventId {
    derive(IdKind::ActionEvent, &[evaluated.submission_id.as_bytes(), action.as_str().as_bytes()])
}

fn union_of_policies(causes: &[&Match]) -> Vec<PolicyId> {
    let mut policies = Vec::new();
    for policy in causes.iter().flat_map(|found| &found.policies) {
        if !policies.contains(policy) {
            policies.push(policy.clone());
        }
    }
    policies
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("findings have string keys only")
}
