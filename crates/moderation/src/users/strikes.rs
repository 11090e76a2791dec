//! Stores strikes of users, and finds the thresholds that a strike crosses. `effects::strike_points` sums them up.
//!
//! The topic is keyed by user, so one owner processes a user's strikes in order. The first record of a cause
//! determines its `seq`, the offset; a replay finds the row and keeps it. A strike crosses a threshold if the sum
//! before it in the log is below the threshold and the sum including it is not. So neither a replay nor a late strike
//! crosses twice.

use std::time::Duration;

use async_recursion::async_recursion as boxed;
use tidegate_catalog::{Compiled, Threshold};
use tidegate_schemas::{
    documents::Event,
    ids::{ActionId, EventId, Kind, Millis, derive},
    records,
};
use tidegate_store::{
    Store, WriteTime,
    tables::items::{
        plans::PlanKind,
        strikes::{Strike, StrikeReversal},
    },
};

use crate::{
    Deps, Error,
    effects::{self, events, strike_points::StrikeHistory},
    jobs::priority::PrioritySignals,
};

/// Stores the strike and sends the events of crossed thresholds.
#[boxed]
pub async fn accept(
    deps: &Deps,
    strike: &records::Strike,
    seq: i64,
    written_at: Millis,
) -> Result<(), Error> {
    let seq = store_strike(&deps.store, strike, seq).await?;
    // A reversal lowers the total, so it crosses no threshold.
    if strike.reverses.is_some() {
        return Ok(());
    }
    let cause = derive(Kind::ThresholdEvent, &[strike.org.as_str().as_bytes(), strike.cause.as_bytes()]);
    let plan = match effects::load_plan(&deps.store, &strike.org, cause).await? {
        Some(plan) => plan,
        None => {
            let config = effects::load_config(deps, &strike.org, strike.config_version, strike.at).await?;
            let crossings = find_crossings(&deps.store, &config, strike, seq).await?;
            // No plan is stored without effects; the strike's row is enough for a replay.
            if crossings.is_empty() {
                return Ok(());
            }
            let mut plan = build_plan(&config, cause, strike, &crossings);
            plan.recorded_at = Some(written_at);
            effects::adopt(&deps.store, plan, Millis::now()).await?
        }
    };
    effects::apply(deps, &plan).await
}

/// Stores the row unless the cause has one. Returns the `seq` of the stored row.
async fn store_strike(store: &Store, strike: &records::Strike, seq: i64) -> Result<i64, Error> {
    let (org, user) = (strike.org.clone(), strike.user.clone());
    let at = WriteTime::from_append(strike.at, 0);
    if let Some(reversed) = strike.reverses {
        let key = (org.clone(), user.clone(), strike.cause);
        if let Some(row) = store.get::<StrikeReversal>(&key).await? {
            return Ok(row.seq);
        }
        let row = StrikeReversal {
            org,
            user,
            cause: strike.cause,
            reversed,
            at: strike.at,
            points: strike.points,
            seq,
        };
        store.put_rows(at, &[row]).await?;
        return Ok(seq);
    }
    let key = (org.clone(), user.clone(), strike.at, strike.cause);
    // The first `seq` stays, so that a replay finds the same crossings.
    if let Some(row) = store.get::<Strike>(&key).await? {
        return Ok(row.seq);
    }
    let row = Strike {
        org,
        user,
        at: strike.at,
        cause: strike.cause,
        points: strike.points,
        action: strike.action.clone(),
        item: strike.item.clone(),
        seq,
    };
    store.put_rows(at, &[row]).await?;
    Ok(seq)
}

/// Crossed threshold with the total after the crossing.
struct Crossing<'a> {
    threshold: &'a Threshold,
    total: i64,
}

impl Crossing<'_> {
    fn to_event_part(&self) -> events::CrossedThreshold {
        let Threshold { key, strikes, .. } = self.threshold;
        events::CrossedThreshold { id: key.clone(), limit: *strikes, strikes: self.total }
    }
}

async fn find_crossings<'a>(
    store: &Store,
    config: &'a Compiled,
    strike: &records::Strike,
    seq: i64,
) -> Result<Vec<Crossing<'a>>, Error> {
    let mut crossings = Vec::new();
    for threshold in config.thresholds() {
        let period_start = threshold.within.map_or(Millis(0), |within: Duration| strike.at.minus(within));
        let history = StrikeHistory::read(store, &strike.org, &strike.user, period_start).await?;
        // By `seq` instead of time, so that a replay and a late strike find the same sums.
        let total_before = history.sum(|row| row < seq);
        let total_after = history.sum(|row| row <= seq);
        if total_before < threshold.strikes && total_after >= threshold.strikes {
            crossings.push(Crossing { threshold, total: total_after });
        }
    }
    Ok(crossings)
}

fn build_plan(
    config: &Compiled,
    cause: uuid::Uuid,
    strike: &records::Strike,
    crossings: &[Crossing<'_>],
) -> effects::Plan {
    let threshold_actions = crossings.iter().map(|crossing| effects::PlannedThresholdAction {
        event_id: derive_event_id(strike, crossing),
        user: strike.user.clone(),
        action: crossing.threshold.action.clone(),
        threshold: crossing.threshold.key.clone(),
        at: strike.at,
    });
    let callbacks = crossings.iter().map(|crossing| {
        let event_id = derive_event_id(strike, crossing);
        let event = events::ActionEvent {
            id: event_id,
            event_type: Event::UserThreshold,
            occurred_at: strike.at.iso(),
            item: events::item_ref(config, &strike.item),
            action: Some(events::ActionRef { id: crossing.threshold.action.clone() }),
            decision: None,
            policies: Vec::new(),
            rules: Vec::new(),
            rules_more: 0,
            creator: Some(strike.user.clone()),
            user_strike_count: Some(crossing.total),
            threshold: Some(crossing.to_event_part()),
            decision_reason: None,
            custom: config
                .action(&crossing.threshold.action)
                .map(|action| action.parameters.clone())
                .unwrap_or_default(),
            conflicts: Vec::new(),
        };
        effects::PlannedCallback {
            event_id,
            event_type: Event::UserThreshold,
            endpoint: endpoint_of(config, &crossing.threshold.action),
            subject: strike.user.clone(),
            occurred_at: strike.at,
            body: events::serialize_body(&event),
            strike_user: None,
        }
    });
    effects::Plan {
        callbacks: callbacks.collect(),
        threshold_actions: threshold_actions.collect(),
        reviews: crossings.iter().filter_map(|crossing| plan_review(config, strike, crossing)).collect(),
        ..effects::Plan::empty(&strike.org, cause, PlanKind::Threshold, config.version())
    }
}

fn derive_event_id(strike: &records::Strike, crossing: &Crossing<'_>) -> EventId {
    derive(
        Kind::ThresholdEvent,
        &[
            strike.org.as_str().as_bytes(),
            strike.user.to_string().as_bytes(),
            crossing.threshold.key.as_bytes(),
            strike.cause.as_bytes(),
        ],
    )
}

/// Plans a review of the user if the threshold's action opens a job.
fn plan_review(
    config: &Compiled,
    strike: &records::Strike,
    crossing: &Crossing<'_>,
) -> Option<effects::PlannedReview> {
    let action = config.action(&crossing.threshold.action)?;
    let queue = effects::PlannedQueue::of(&action.kind)?;
    let cause = [b"threshold", crossing.threshold.key.as_bytes(), strike.cause.as_bytes()];
    Some(effects::PlannedReview {
        subject: strike.user.clone(),
        user: Some(strike.user.clone()),
        queue,
        cause: derive(Kind::JobCause, &cause),
        at: strike.at,
        rules: Vec::new(),
        hits: Vec::new(),
        policies: Vec::new(),
        signals: PrioritySignals::default(),
        routed_by: None,
        threshold: Some(crossing.to_event_part()),
        // The threshold's action determines the queue.
        is_routable: false,
    })
}

fn endpoint_of(config: &Compiled, action: &ActionId) -> Option<tidegate_schemas::ids::EndpointId> {
    config.action(action).and_then(|action| action.endpoint().cloned())
}
