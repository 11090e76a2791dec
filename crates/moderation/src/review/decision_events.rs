//! Events that tell platforms about decisions. The actions of a decision are added to the plan by `effects::actions`.

use std::collections::BTreeMap;

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
};

/// Values of parameters by their names, by the action that they are given to.
pub type Parameters = BTreeMap<ActionId, Map<String, Value>>;

/// Actions on a related item, with the parameters that they are given.
pub(super) type RelatedWithParameters<'a> = (&'a records::RelatedActions, Parameters);

/// Returns the decision as its events carry it.
pub(super) fn reference(
    config: &Compiled,
    decision: &records::Decision,
    parameters: &Parameters,
    related: &[RelatedWithParameters<'_>],
) -> DecisionRef {
    let related = related.iter().map(|(related, parameters)| DecidedRelated {
        item: related.item.clone(),
        actions: decided(&related.actions, parameters),
        policies: related.policies.clone(),
    });
    DecisionRef {
        id: decision.decision_id,
        verdict: decision.verdict,
        // The platform knows its own actors; names of moderators are not sent to it.
        actor_id: (decision.job_id == JobId::NONE).then(|| decision.decided_by.clone()),
        reason: decision.reason.clone(),
        policies: events::policies(config, &decision.policies),
        actions: decided(&decision.actions, parameters),
        related: related.collect(),
        decided_at: decision.decided_at.iso(),
    }
}

fn decided(actions: &[ActionId], parameters: &Parameters) -> Vec<DecidedAction> {
    let action = |id: &ActionId| DecidedAction {
        id: id.clone(),
        parameters: parameters.get(id).cloned().unwrap_or_default(),
    };
    actions.iter().map(action).collect()
}

/// Returns the reports that led to the job and the reason of the decision, for `custom`. Empty for a job without reports.
pub(super) async fn about(
    store: &Store,
    config: &Compiled,
    decision: &records::Decision,
    causes: &[JobCause],
) -> Result<Map<String, Value>, Error> {
    let mut about = Map::new();
    let mut reports: Vec<_> = causes.iter().filter_map(|cause| Some((cause.at, cause.report_id?))).collect();
    if reports.is_empty() {
        return Ok(about);
    }
    reports.sort_unstable();
    // An item may have thousands of reports: the first are listed and the others counted, as with rules.
    let (listed, more) = reports.split_at(reports.len().min(config.plan().limits().stored_matches));
    let mut history = Vec::with_capacity(listed.len());
    for (_, report_id) in listed {
        let row = store.get::<Report>(&(decision.org.clone(), *report_id)).await?;
        history.extend(row.as_ref().map(report));
    }
    about.insert("reportHistory".to_owned(), history.into());
    if !more.is_empty() {
        about.insert("reportHistoryMore".to_owned(), more.len().into());
    }
    if let Some(reason) = &decision.reason {
        about.insert("reason".to_owned(), reason.as_str().into());
    }
    Ok(about)
}

fn report(row: &Report) -> Value {
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

/// Returns `custom` of the answer to an appeal: the endpoint's values, and the actions that are taken back.
pub(super) fn answer(
    config: &Compiled,
    endpoint: Option<&EndpointId>,
    taken_back: &[ActionByItem],
) -> Map<String, Value> {
    let endpoint = endpoint.and_then(|endpoint| config.endpoint(endpoint));
    let mut custom = endpoint.map(|endpoint| endpoint.custom.clone()).unwrap_or_default();
    if !taken_back.is_empty() {
        let actions = taken_back.iter().map(|row| json!({ "id": row.action, "eventId": row.event_id }));
        custom.insert("actionsTakenBack".to_owned(), actions.collect());
    }
    custom
}

/// Adds the event of a decision that takes no action, for each endpoint that takes such events.
pub(super) fn add_decision_event(
    plan: &mut Plan,
    config: &Compiled,
    decision: &records::Decision,
    (decision_ref, about): (&DecisionRef, &Map<String, Value>),
    user: Option<&ItemKey>,
    is_child_safety: bool,
) {
    let event_type = Event::ModeratorDecision;
    // Nothing waits for an endpoint here if the organisation has some and none of them wants such events.
    if config.endpoints_for(event_type.name()).next().is_none() && config.endpoints().next().is_some() {
        return;
    }
    let endpoints = subscribers(config, event_type, None, is_child_safety);
    let decided: EventId = derive(Kind::DecisionEvent, &[decision.decision_id.as_bytes()]);
    for endpoint in endpoints {
        let event_id = copy_of(decided, endpoint.as_ref());
        let event = ActionEvent {
            id: event_id,
            event_type,
            occurred_at: decision.decided_at.iso(),
            item: events::item(config, &decision.item),
            action: None,
            decision: Some(decision_ref.clone()),
            policies: decision_ref.policies.clone(),
            rules: Vec::new(),
            rules_more: 0,
            creator: user.cloned(),
            threshold: None,
            user_strike_count: None,
            decision_reason: decision.reason.clone(),
            custom: about.clone(),
            conflicts: Vec::new(),
        };
        plan.callbacks.push(PlannedCallback {
            event_id,
            event_type,
            endpoint,
            subject: decision.item.clone(),
            occurred_at: decision.decided_at,
            body: events::body(&event),
            counts: user.cloned(),
        });
    }
}
