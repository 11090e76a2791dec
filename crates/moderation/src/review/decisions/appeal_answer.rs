//! Plans the answer to an appeal: its events, and the reversals of strikes if the appeal is accepted.

use tidegate_catalog::Compiled;
use tidegate_schemas::{
    documents::Event,
    ids::{CauseId, EventId, Kind, Millis, derive},
    records::{self, Verdict},
};
use tidegate_store::tables::{
    items::{rules::Finding, strikes::ActionByItem},
    review::appeals::Appeal,
};

use super::findings;
use crate::{
    Deps, Error, child_safety,
    effects::{Plan, PlannedCallback, PlannedStrike, events, subscribers},
    review::{appeals, decision_events},
};

/// Adds the answer to the plan of the decision.
pub(super) async fn plan(
    plan: &mut Plan,
    deps: &Deps,
    config: &Compiled,
    decision: &records::Decision,
    written_at: Millis,
) -> Result<(), Error> {
    let corrupt = |detail: &str| Error::Corrupt { what: "appeal", detail: detail.to_owned() };
    let appeal_id = decision.appeal_id.clone().ok_or_else(|| corrupt("the decision names no appeal"))?;
    let appeal = deps
        .store
        .get::<Appeal>(&(decision.org.clone(), appeal_id.clone()))
        .await?
        .ok_or_else(|| corrupt("its row is missing"))?;
    let is_accepted = decision.verdict == Verdict::Accept;
    let appealed_actions = appeals::find_appealed_actions(&deps.store, &appeal).await?;
    let reversed_actions: &[ActionByItem] = if is_accepted { &appealed_actions } else { &[] };
    let is_child_safety = child_safety::is_restricted(&deps.store, &decision.org, &appeal.item).await?;
    plan.is_child_safety = is_child_safety;
    for endpoint in subscribers(config, Event::AppealDecision, None, is_child_safety) {
        let name = endpoint.as_ref().map_or("", |endpoint| endpoint.as_str());
        let event_id: EventId =
            derive(Kind::AppealEvent, &[decision.decision_id.as_bytes(), name.as_bytes()]);
        let event = events::AppealEvent {
            id: event_id,
            event_type: Event::AppealDecision,
            occurred_at: decision.decided_at.iso(),
            appeal_id: appeal_id.clone(),
            appealed_by: appeal.appealed_by.clone(),
            appeal_decision: if is_accepted { "ACCEPT" } else { "REJECT" },
            item: events::item_ref(config, &appeal.item),
            decision_reason: decision.reason.clone(),
            custom: decision_events::appeal_answer_values(config, endpoint.as_ref(), reversed_actions),
        };
        plan.callbacks.push(PlannedCallback {
            event_id,
            event_type: Event::AppealDecision,
            endpoint,
            subject: appeal.item.clone(),
            occurred_at: decision.decided_at,
            body: events::serialize_body(&event),
            strike_user: None,
        });
    }
    // An accepted appeal is a verdict on the rules behind the actions.
    let finding = if is_accepted { Finding::Overturned } else { Finding::Confirmed };
    let hits = findings::parse_hits(appealed_actions.iter().filter_map(|row| row.hits.as_deref()))?;
    findings::add_findings(plan, &appeal.item, hits, finding, written_at);
    if is_accepted {
        plan.strikes = plan_reversals(decision, &appeal, appealed_actions, written_at);
    }
    Ok(())
}

/// Returns reversals of the strikes from the appealed actions.
fn plan_reversals(
    decision: &records::Decision,
    appeal: &Appeal,
    appealed_actions: Vec<ActionByItem>,
    written_at: Millis,
) -> Vec<PlannedStrike> {
    appealed_actions
        .into_iter()
        // Actions without points carried no strike.
        .filter(|row| row.points != 0)
        .filter_map(|row| {
            Some(PlannedStrike {
                user: row.user?,
                cause: derive(Kind::Reversal, &[decision.decision_id.as_bytes(), row.event_id.as_bytes()]),
                at: written_at,
                points: row.points,
                action: row.action,
                item: appeal.item.clone(),
                reverses: Some(CauseId(row.event_id.0)),
            })
        })
        .collect()
}
