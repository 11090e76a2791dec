//! Strikes of users: their standing, and the thresholds that a strike crosses.
//!
//! It strikes nobody by itself; actions do.
//!
//! The topic is keyed by the user, so one owner sees a user's strikes in order. The first record of a cause fixes
//! its `seq`, the offset: a replay finds the row and keeps it. A strike crosses a threshold if the sum of what came
//! before it in the log is below and the sum through it is not, so neither a replay nor a late strike crosses twice.

use std::time::Duration;

use tidegate_catalog::{Compiled, Threshold};
use tidegate_schemas::{
    ids::{ActionId, CauseId, EventId, ItemKey, Kind, Millis, OrgId, derive},
    records,
};
use tidegate_store::{
    At, Store, WriteTime,
    tables::items::strikes::{Strike, StrikeReversal},
};

use crate::{Deps, Error, effects, events};

/// The points that count for a user since an instant.
pub async fn standing(store: &Store, org: &OrgId, user: &ItemKey, since: Millis) -> Result<i64, Error> {
    Ok(History::read(store, org, user, since).await?.sum(|_| true))
}

/// Writes the strike, and sends the events of the thresholds that it crosses.
pub async fn accept(deps: &Deps, strike: &records::Strike, seq: i64) -> Result<(), Error> {
    let seq = write(&deps.store, strike, seq).await?;
    if strike.reverses.is_some() {
        return Ok(());
    }
    let cause = derive(Kind::ThresholdEvent, &[strike.org.as_str().as_bytes(), strike.cause.as_bytes()]);
    let plan = match effects::stored(&deps.store, &strike.org, cause).await? {
        Some(plan) => plan,
        None => {
            let config = effects::config(deps, &strike.org, strike.config_version).await?;
            let crossed = crossings(&deps.store, &config, strike, seq).await?;
            if crossed.is_empty() {
                return Ok(());
            }
            effects::adopt(&deps.store, plan(&config, cause, strike, &crossed), Millis::now()).await?
        }
    };
    effects::apply(deps, &plan).await
}

/// Writes the row unless the cause has one; answers with the cause's `seq`.
async fn write(store: &Store, strike: &records::Strike, seq: i64) -> Result<i64, Error> {
    let (org, user) = (strike.org.clone(), strike.user.clone());
    let at = WriteTime::of(strike.at, 0);
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
        store.put(at, &[row]).await?;
        return Ok(seq);
    }
    let key = (org.clone(), user.clone(), strike.at, strike.cause);
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
    store.put(at, &[row]).await?;
    Ok(seq)
}

/// A threshold that was crossed, and the standing it was crossed with.
struct Crossing<'a> {
    threshold: &'a Threshold,
    standing: i64,
}

async fn crossings<'a>(
    store: &Store,
    config: &'a Compiled,
    strike: &records::Strike,
    seq: i64,
) -> Result<Vec<Crossing<'a>>, Error> {
    let mut crossed = Vec::new();
    for threshold in config.thresholds() {
        let since = threshold.within.map_or(Millis(0), |within: Duration| strike.at.minus(within));
        let history = History::read(store, &strike.org, &strike.user, since).await?;
        let below = history.sum(|row| row < seq);
        let standing = history.sum(|row| row <= seq);
        if below < threshold.strikes && standing >= threshold.strikes {
            crossed.push(Crossing { threshold, standing });
        }
    }
    Ok(crossed)
}

fn plan(
    config: &Compiled,
    cause: uuid::Uuid,
    strike: &records::Strike,
    crossed: &[Crossing<'_>],
) -> effects::Plan {
    let callbacks = crossed.iter().map(|crossing| {
        let event_id: EventId = derive(
            Kind::ThresholdEvent,
            &[
                strike.org.as_str().as_bytes(),
                strike.user.to_string().as_bytes(),
                crossing.threshold.key.as_bytes(),
                strike.cause.as_bytes(),
            ],
        );
        let event = events::ActionEvent {
            id: event_id,
            event_type: events::THRESHOLD,
            occurred_at: strike.at.iso(),
            item: strike.item.clone(),
            action: events::ActionRef { id: crossing.threshold.action.clone() },
            policies: Vec::new(),
            rules: Vec::new(),
            creator: Some(strike.user.clone()),
            user_strike_count: Some(crossing.standing),
            decision_reason: None,
            custom: serde_json::Map::new(),
        };
        effects::PlannedCallback {
            event_id,
            event_type: events::THRESHOLD.to_owned(),
            endpoint: endpoint_of(config, &crossing.threshold.action),
            subject: strike.user.clone(),
            occurred_at: strike.at,
            body: events::body(&event),
        }
    });
    effects::Plan {
        callbacks: callbacks.collect(),
        ..effects::Plan::empty(&strike.org, cause, effects::Kind::Threshold, config.version())
    }
}

fn endpoint_of(config: &Compiled, action: &ActionId) -> Option<tidegate_schemas::ids::EndpointId> {
    config.action(action).and_then(|action| action.endpoint().cloned())
}

/// The strikes and reversals of a user since an instant.
struct History {
    /// (`seq`, points): reversals count against.
    entries: Vec<(i64, i64)>,
}

impl History {
    async fn read(store: &Store, org: &OrgId, user: &ItemKey, since: Millis) -> Result<Self, Error> {
        let partition = (org.clone(), user.clone());
        let strikes: Vec<Strike> = store.scan::<Strike>(&partition, At::since(since)).all().await?;
        let partition = (org.clone(), user.clone());
        let reversals: Vec<StrikeReversal> =
            store.scan::<StrikeReversal>(&partition, At::all()).all().await?;
        let counted: std::collections::HashSet<CauseId> = strikes.iter().map(|strike| strike.cause).collect();
        let entries = strikes
            .iter()
            .map(|strike| (strike.seq, strike.points))
            .chain(
                reversals
                    .iter()
                    .filter(|reversal| counted.contains(&reversal.reversed))
                    .map(|reversal| (reversal.seq, -reversal.points)),
            )
            .collect();
        Ok(Self { entries })
    }

    fn sum(&self, counts: impl Fn(i64) -> bool) -> i64 {
        self.entries.iter().filter(|(seq, _)| counts(*seq)).map(|(_, points)| points).sum()
    }
}
