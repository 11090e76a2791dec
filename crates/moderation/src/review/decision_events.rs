//! Events about decisions for platforms. `effects::actions` adds the actions of a decision to the plan.

use serde_json::{Map, Value, json};
use tidegate_catalog::Compiled;
use tidegate_schemas::{
    documents::Event,
    ids::{ActionId, EndpointId, EventId, ItemKey, JobId, Kind, derive},
    records,
    wire::reports::REPORTER_KIND,
};
use tidegate_store::{
    Store,
    tables::{
        items::strikes::ActionByItem,
        review::{jobs::JobCause, reports::Report},
    },
};

use crate::{
    Error,
    effects::{
        Plan, PlannedCallback, copy_of,
        events::{self, ActionEvent, DecidedAction, DecidedRelated, DecisionRef},
        subscribers,
    },
    jobs::stored_decision::Parameters,
};

/// Actions on a related item with their parameters.
pub(super) type RelatedWithParameters<'a> = (&'a records::RelatedActions, Parameters);

/// Builds the decision part of an event.
pub(super) fn decision_ref(
    config: &Compiled,
    decision: &records::Decision,
    parameters: &Parameters,
    related: &[RelatedWithParameters<'_>],
) -> DecisionRef {
    let related = related.iter().map(|(related, parameters)| DecidedRelated {
        item: related.item.clone(),
        actions: decided_actions(&related.actions, parameters),
        policies: related.policies.clone(),
    });
    DecisionRef {
        id: decision.decision_id,
        verdict: decision.verdict,
        // The platform knows its own actors. Names of moderators are not disclosed to it.
        actor_id: (decision.job_id == JobId::NONE).then(|| decision.decided_by.clone()),
        reason: decision.reason.clone(),
        policies: events::policy_refs(config, &decision.policies),
        actions: decided_actions(&decision.actions, parameters),
        related: related.collect(),
        decided_at: decision.decided_at.iso(),
    }
}

fn decided_actions(actions: &[ActionId], parameters: &Parameters) -> Vec<DecidedAction> {
    let action = |id: &ActionId| DecidedAction {
        id: id.clone(),
        parameters: parameters.get(id).cloned().unwrap_or_default(),
    };
    actions.iter().map(action).collect()
}

/// Builds `custom` from the reports of the job and the reason of the decision. Empty for a job without reports.
pub(super) async fn report_values(
    store: &Store,
    config: &Compiled,
    decision: &records::Decision,
    causes: &[JobCause],
) -> Result<Map<String, Value>, Error> {
    let mut custom = Map::new();
    let mut reports: Vec<_> = causes.iter().filter_map(|cause| Some((cause.at, cause.report_id?))).collect();
    if reports.is_empty() {
        return Ok(custom);
    }
    // By time, so that a replay lists the same reports.
    reports.sort_unstable();
    // An item can have thousands of reports, so only the first are listed and the rest is counted, as with rules.
    let (listed_reports, omitted_reports) =
        reports.split_at(reports.len().min(config.plan().limits().stored_matches));
    let mut history = Vec::with_capacity(listed_reports.len());
    for (_, report_id) in listed_reports {
        let row = store.get::<Report>(&(decision.org.clone(), *report_id)).await?;
        history.extend(row.as_ref().map(report_json));
    }
    custom.insert("reportHistory".to_owned(), history.into());
    if !omitted_reports.is_empty() {
        custom.insert("reportHistoryMore".to_owned(), omitted_reports.len().into());
    }
    if let Some(reason) = &decision.reason {
        custom.insert("reason".to_owned(), reason.as_str().into());
    }
    Ok(custom)
}

fn report_json(row: &Report) -> Value {
    let mut reporter = json!(row.reporter);
    reporter["kind"] = REPORTER_KIND.into();
    let mut report = json!({
        "reportId": row.report_id, "reporter": reporter, "reportedAt": row.reported_at.iso(),
    });
    if let Some(reason) = &row.reason {
        report["reason"] = reason.as_str().into();
    }
    report
}

/// Builds `custom` of an appeal answer: the endpoint's values and the reversed actions.
pub(super) fn appeal_answer_values(
    config: &Compiled,
    endpoint: Option<&EndpointId>,
    reversed_actions: &[ActionByItem],
) -> Map<String, Value> {
    let endpoint = endpoint.and_then(|endpoint| config.endpoint(endpoint));
    let mut custom = endpoint.map(|endpoint| endpoint.custom.clone()).unwrap_or_default();
    if !reversed_actions.is_empty() {
        let actions = reversed_actions.iter().map(|row| json!({ "id": row.action, "eventId": row.event_id }));
        custom.insert("actionsTakenBack".to_owned(), actions.collect());
    }
    custom
}

/// Adds the event of a decision without actions, for each subscribed endpoint.
pub(super) fn add_decision_event(
    plan: &mut Plan,
    config: &Compiled,
    decision: &records::Decision,
    (decision_ref, custom): (&DecisionRef, &Map<String, Value>),
    user: Option<&ItemKey>,
    is_child_safety: bool,
) {
    let event_type = Event::ModeratorDecision;
    // Without a subscriber the event would be held for later. An org with endpoints has chosen not to receive it.
    if config.endpoints_for(event_type).next().is_none() && config.endpoints().next().is_some() {
        return;
    }
    let endpoints = subscribers(config, event_type, None, is_child_safety);
    let base_event_id: EventId = derive(Kind::DecisionEvent, &[decision.decision_id.as_bytes()]);
    for endpoint in endpoints {
        let event_id = copy_of(base_event_id, endpoint.as_ref());
        let event = ActionEvent {
            id: event_id,
            event_type,
            occurred_at: decision.decided_at.iso(),
            item: events::item_ref(config, &decision.item),
            action: None,
            decision: Some(decision_ref.clone()),
            policies: decision_ref.policies.clone(),
            rules: Vec::new(),
            rules_more: 0,
            creator: user.cloned(),
            threshold: None,
            user_strike_count: None,
            decision_reason: decision.reason.clone(),
            custom: custom.clone(),
            conflicts: Vec::new(),
        };
        plan.callbacks.push(PlannedCallback {
            event_id,
            event_type,
            endpoint,
            subject: decision.item.clone(),
            occurred_at: decision.decided_at,
            body: events::serialize_body(&event),
            strike_user: user.cloned(),
        });
    }
}
