//! Strikes of users: their totals, and the thresholds that a strike crosses.
//!
//! The topic is keyed by the user, so one owner sees a user's strikes in order. The first record of a cause fixes
//! its `seq`, the offset: a replay finds the row and keeps it. A strike crosses a threshold if the sum of what came
//! before it in the log is below and the sum through it is not, so neither a replay nor a late strike crosses twice.

use std::{cmp::Reverse, collections::HashMap, time::Duration};

use tidegate_catalog::{ActionKind, Compiled, Threshold};
use tidegate_schemas::{
    documents::Event,
    ids::{ActionId, CauseId, EventId, ItemKey, Kind, Millis, OrgId, derive},
    records,
};
use tidegate_store::{
    At, Store, WriteTime,
    tables::items::strikes::{Strike, StrikeReversal},
};

use crate::{
    Deps, Error,
    effects::{self, events},
    jobs::BuiltInQueue,
};

/// Returns the points that count for a user since an instant.
pub async fn total(store: &Store, org: &OrgId, user: &ItemKey, since: Millis) -> Result<i64, Error> {
    Ok(History::read(store, org, user, since).await?.sum(|_| true))
}

/// Returns the points that counted for a user at an instant: strikes since `since`, less those reversed by then.
pub async fn total_at(
    store: &Store,
    org: &OrgId,
    user: &ItemKey,
    since: Millis,
    at: Millis,
) -> Result<i64, Error> {
    let mut history = Rows::read(store, org, user, since).await?;
    history.keep_before(at, Millis::now());
    Ok(history.entries().sum(|_| true))
}

/// Stores the strike and sends the events of the thresholds that it crosses.
pub async fn accept(deps: &Deps, strike: &records::Strike, seq: i64) -> Result<(), Error> {
    let seq = write(&deps.store, strike, seq).await?;
    if strike.reverses.is_some() {
        return Ok(());
    }
    let cause = derive(Kind::ThresholdEvent, &[strike.org.as_str().as_bytes(), strike.cause.as_bytes()]);
    let plan = match effects::stored(&deps.store, &strike.org, cause).await? {
        Some(plan) => plan,
        None => {
            let config = effects::config(deps, &strike.org, strike.config_version, strike.at).await?;
            let crossed = crossings(&deps.store, &config, strike, seq).await?;
            if crossed.is_empty() {
                return Ok(());
            }
            effects::adopt(&deps.store, plan(&config, cause, strike, &crossed), Millis::now()).await?
        }
    };
    effects::apply(deps, &plan).await
}

/// Stores the row unless the cause has one. Returns the cause's `seq`.
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

/// A threshold that was crossed, and the total after it.
struct Crossing<'a> {
    threshold: &'a Threshold,
    total: i64,
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
        let total = history.sum(|row| row <= seq);
        if below < threshold.strikes && total >= threshold.strikes {
            crossed.push(Crossing { threshold, total });
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
            event_type: Event::UserThreshold,
            occurred_at: strike.at.iso(),
            item: events::item(config, &strike.item),
            action: Some(events::ActionRef { id: crossing.threshold.action.clone() }),
            decision: None,
            policies: Vec::new(),
            rules: Vec::new(),
            rules_more: 0,
            creator: Some(strike.user.clone()),
            user_strike_count: Some(crossing.total),
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
            body: events::body(&event),
            counts: None,
        }
    });
    effects::Plan {
        callbacks: callbacks.collect(),
        reviews: crossed.iter().filter_map(|crossing| review(config, strike, crossing)).collect(),
        ..effects::Plan::empty(&strike.org, cause, effects::Kind::Threshold, config.version())
    }
}

/// Returns the review of the user, if the threshold's action asks for one.
fn review(
    config: &Compiled,
    strike: &records::Strike,
    crossing: &Crossing<'_>,
) -> Option<effects::PlannedReview> {
    let action = config.action(&crossing.threshold.action)?;
    let ActionKind::EnqueueReview { queue } = &action.kind else { return None };
    let cause = [b"threshold", crossing.threshold.key.as_bytes(), strike.cause.as_bytes()];
    Some(effects::PlannedReview {
        subject: strike.user.clone(),
        queue: queue.clone().unwrap_or_else(|| BuiltInQueue::Default.into()),
        cause: derive(Kind::JobCause, &cause),
        at: strike.at,
        rules: Vec::new(),
        hits: Vec::new(),
    })
}

fn endpoint_of(config: &Compiled, action: &ActionId) -> Option<tidegate_schemas::ids::EndpointId> {
    config.action(action).and_then(|action| action.endpoint().cloned())
}

/// The strikes and reversals of a user since an instant.
struct History {
    /// Pairs of `seq` and points, negative for reversals.
    entries: Vec<(i64, i64)>,
}

/// Stored rows of a user's strikes and reversals.
struct Rows {
    strikes: Vec<Strike>,
    reversals: Vec<StrikeReversal>,
}

impl Rows {
    async fn read(store: &Store, org: &OrgId, user: &ItemKey, since: Millis) -> Result<Self, Error> {
        let partition = (org.clone(), user.clone());
        let strikes = store.scan::<Strike>(&partition, At::since(since)).all().await?;
        let reversals = store.scan::<StrikeReversal>(&partition, At::all()).all().await?;
        Ok(Self { strikes, reversals })
    }

    fn entries(&self) -> History {
        History { entries: entries(&self.strikes, &self.reversals) }
    }

    /// Keeps the rows that were stored before `at`. Their times alone do not tell, for the clock may have been set forward
    /// and back: a row is older than every later one in the log, and older than `now`.
    fn keep_before(&mut self, at: Millis, now: Millis) {
        self.strikes.sort_unstable_by_key(|strike| Reverse(strike.seq));
        let mut is_before = false;
        self.strikes.retain(|strike| {
            is_before |= strike.at < at;
            is_before || strike.at > now
        });
        self.reversals.sort_unstable_by_key(|reversal| Reverse(reversal.seq));
        let mut is_before = false;
        self.reversals.retain(|reversal| {
            is_before |= reversal.at < at;
            is_before || reversal.at > now
        });
    }
}

impl History {
    async fn read(store: &Store, org: &OrgId, user: &ItemKey, since: Millis) -> Result<Self, Error> {
        Ok(Rows::read(store, org, user, since).await?.entries())
    }

    fn sum(&self, counts: impl Fn(i64) -> bool) -> i64 {
        self.entries.iter().filter(|(seq, _)| counts(*seq)).map(|(_, points)| points).sum()
    }
}

/// Reverses a strike once, however many appeals against it were accepted, and not before its own `seq`: a reversal may
/// come first in the log, and would otherwise allow another crossing of the threshold.
fn entries(strikes: &[Strike], reversals: &[StrikeReversal]) -> Vec<(i64, i64)> {
    let mut taken_back: HashMap<CauseId, i64> = HashMap::new();
    for reversal in reversals {
        let seq = taken_back.entry(reversal.reversed).or_insert(reversal.seq);
        *seq = reversal.seq.min(*seq);
    }
    let mut entries = Vec::with_capacity(strikes.len() + taken_back.len());
    for strike in strikes {
        entries.push((strike.seq, strike.points));
        if let Some(seq) = taken_back.get(&strike.cause) {
            entries.push((strike.seq.max(*seq), -strike.points));
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn strike(cause: u128, seq: i64) -> Strike {
        Strike {
            org: OrgId::new("acme"),
            user: ItemKey::new("user", "u1"),
            at: Millis(1_000),
            cause: CauseId(Uuid::from_u128(cause)),
            points: 1,
            action: ActionId::new("warn"),
            item: ItemKey::new("post", "p1"),
            seq,
        }
    }

    fn reversal(cause: u128, reversed: u128, seq: i64) -> StrikeReversal {
        StrikeReversal {
            org: OrgId::new("acme"),
            user: ItemKey::new("user", "u1"),
            cause: CauseId(Uuid::from_u128(cause)),
            reversed: CauseId(Uuid::from_u128(reversed)),
            at: Millis(2_000),
            points: 1,
            seq,
        }
    }

    fn history(strikes: &[Strike], reversals: &[StrikeReversal]) -> History {
        History { entries: entries(strikes, reversals) }
    }

    #[test]
    fn two_accepted_appeals_take_a_strike_back_once() {
        let history = history(&[strike(1, 1), strike(2, 2)], &[reversal(10, 1, 3), reversal(11, 1, 4)]);
        assert_eq!(history.sum(|_| true), 1);
        assert_eq!(history.sum(|seq| seq <= 3), 1, "from the first reversal on");
    }

    #[test]
    fn a_reversal_before_its_strike_allows_no_other_crossing() {
        let strikes = [strike(1, 1), strike(2, 2), strike(3, 3), strike(4, 9)];
        let history = history(&strikes, &[reversal(10, 4, 5)]);
        assert_eq!(history.sum(|seq| seq < 9), 3, "the fourth was not given yet");
        assert_eq!(history.sum(|seq| seq <= 9), 3, "nor does it count once it is");
    }
    #[test]
    fn strikes_of_a_clock_that_was_set_back_count_as_they_were_stored() {
        let at = |seq: i64, at: i64| Strike { at: Millis(at), ..strike(seq.unsigned_abs().into(), seq) };
        let kept = |strikes: Vec<Strike>, item: i64, now: i64| {
            let mut rows = Rows { strikes, reversals: Vec::new() };
            rows.keep_before(Millis(item), Millis(now));
            rows.entries().sum(|_| true)
        };
        // Stored while the clock was an hour ahead; the item came after it was set back.
        let ahead = || vec![at(1, 3_600), at(2, 3_601), at(3, 3_602)];
        assert_eq!(kept(ahead(), 500, 600), 3, "a time that has not come yet was stored before");
        let followed = || ahead().into_iter().chain([at(4, 400)]).collect();
        assert_eq!(kept(followed(), 500, 9_000), 4, "what stands before an older one in the log is older");
        assert_eq!(kept(vec![at(1, 400), at(2, 550)], 500, 9_000), 1, "a later strike does not count");
    }
}
