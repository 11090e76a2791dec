//! Builds the history events of a plan: its actions, its strikes, and the decision behind it.

use tidegate_schemas::{
    history::{ActionSource, ActionTakenEvent, DecisionEvent, RuleVersion, StrikeChange, StrikeEvent},
    ids::{DecisionId, EventId, ItemKey, Millis, SubmissionId},
};
use tidegate_store::tables::{
    history::events::{EventHead, HistoryEvent},
    items::plans::PlanKind,
};
use uuid::Uuid;

use super::{Plan, PlannedAction, PlannedStrike, PlannedThresholdAction};
use crate::rules::stats::RuleHit;

/// Returns the events of the plan's actions and strikes.
pub(super) fn rows_of(plan: &Plan) -> Vec<HistoryEvent> {
    let actions = plan.taken.iter().map(|action| action_row(plan, action));
    let threshold_actions = plan.threshold_actions.iter().map(|action| threshold_row(plan, action));
    let strikes = plan.strikes.iter().map(|strike| strike_row(plan, strike));
    actions.chain(threshold_actions).chain(strikes).collect()
}

/// Returns the event of the decision behind the plan.
pub(crate) fn decision_row(
    plan: &Plan,
    item: &ItemKey,
    event: &DecisionEvent,
    recorded_at: Millis,
) -> HistoryEvent {
    let head = EventHead {
        org: &plan.org,
        id: plan.cause,
        at: recorded_at,
        item,
        is_child_safety: plan.is_child_safety,
    };
    HistoryEvent::new(head, event)
}

/// Builds the head of an event. A plan of an earlier version has no time of its record, so the effect's time counts.
fn event_head<'p>(plan: &'p Plan, id: Uuid, item: &'p ItemKey, effect_at: Millis) -> EventHead<'p> {
    EventHead {
        org: &plan.org,
        id,
        at: plan.recorded_at.unwrap_or(effect_at),
        item,
        is_child_safety: plan.is_child_safety,
    }
}

fn action_row(plan: &Plan, action: &PlannedAction) -> HistoryEvent {
    let head = event_head(plan, action.event_id.0, &action.item, action.at);
    let is_decision = plan.kind == PlanKind::Decision;
    let event = ActionTakenEvent {
        source: source_of(plan),
        action: action.action.clone(),
        acted_at: action.at,
        user: action.user.clone(),
        points: action.points,
        policies: action.policies.clone(),
        rules: action.hits.iter().map(rule_version).collect(),
        decision_id: is_decision.then_some(DecisionId(plan.cause)),
        submission_id: (plan.kind == PlanKind::Item).then_some(SubmissionId(plan.cause)),
        threshold: None,
        actor: action.actor.clone(),
    };
    HistoryEvent::new(head, &event)
}

fn threshold_row(plan: &Plan, action: &PlannedThresholdAction) -> HistoryEvent {
    let head = event_head(plan, action.event_id.0, &action.user, action.at);
    let event = ActionTakenEvent {
        source: ActionSource::Threshold,
        action: action.action.clone(),
        acted_at: action.at,
        user: Some(action.user.clone()),
        points: 0,
        policies: Vec::new(),
        rules: Vec::new(),
        decision_id: None,
        submission_id: None,
        threshold: Some(action.threshold.clone()),
        actor: None,
    };
    HistoryEvent::new(head, &event)
}

fn strike_row(plan: &Plan, strike: &PlannedStrike) -> HistoryEvent {
    let head = event_head(plan, strike.cause.0, &strike.item, strike.at);
    let change = match strike.reverses {
        Some(_) => StrikeChange::Reversed,
        None => StrikeChange::Issued,
    };
    let event = StrikeEvent {
        change,
        user: strike.user.clone(),
        points: strike.points,
        action: strike.action.clone(),
        reversed: strike.reverses.map(|cause| EventId(cause.0)),
    };
    HistoryEvent::new(head, &event)
}

fn source_of(plan: &Plan) -> ActionSource {
    match (plan.kind, &plan.decision) {
        (PlanKind::Item, _) => ActionSource::Rule,
        (PlanKind::Threshold, _) => ActionSource::Threshold,
        (PlanKind::Decision, Some(decision)) => decision.source,
        // Only a plan of an earlier version has no decision.
        (PlanKind::Decision, None) => ActionSource::Moderator,
    }
}

fn rule_version(hit: &RuleHit) -> RuleVersion {
    RuleVersion { rule: hit.rule.clone(), version: hit.version.clone() }
}
