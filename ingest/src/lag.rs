//! Back-pressure when processing falls behind: items are refused while the oldest unprocessed record is too old.
//!
//! Organisations are weighed by the items that this process accepted of them lately. Those that sent at least the average
//! are refused first, and the longer processing stays behind, the smaller senders as well.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tidegate_schemas::ids::{Millis, OrgId};
use tidegate_stream::{Log, Topic, topics::Group};
use tidegate_web::{Limit, Problem};
use tokio_util::sync::CancellationToken;

use crate::{Api, metrics};

/// The lag, and the senders of late.
#[derive(Debug)]
pub(crate) struct LagGate {
    /// Greatest lag at which everybody's items are accepted; none: any.
    limit: Option<Duration>,
    lag_ms: AtomicU64,
    senders: Mutex<Senders>,
}

#[derive(Debug, Default)]
struct Senders {
    by_org: HashMap<OrgId, SenderWeight>,
    /// Time of the last look at the log.
    looked_at: Option<Instant>,
}

/// Items of an organisation, of which each counts less the longer ago it was accepted.
#[derive(Clone, Copy, Debug)]
struct SenderWeight {
    items: f64,
    at: Instant,
}

/// Weight below which an organisation is forgotten.
const FORGOTTEN: f64 = 0.01;

impl LagGate {
    pub(crate) fn new(limit: Option<Duration>) -> Self {
        Self { limit, lag_ms: AtomicU64::new(0), senders: Mutex::default() }
    }

    /// Time between two looks at the log, which is also what a refused client is told to wait.
    pub(crate) fn interval(&self) -> Duration {
        let limit = self.limit.unwrap_or(Duration::from_secs(900));
        (limit / 60).clamp(Duration::from_secs(1), Duration::from_secs(15))
    }

    fn lag(&self) -> Duration {
        Duration::from_millis(self.lag_ms.load(Ordering::Relaxed))
    }

    fn set_lag(&self, lag: Duration, now: Instant) {
        let mut senders = self.senders.lock();
        let (before, passed) = (self.lag(), senders.looked_at.map_or(Duration::ZERO, |at| now - at));
        // Time by which processing came nearer to the end of the log.
        let advance = (passed + before).saturating_sub(lag);
        for sent in senders.by_org.values_mut() {
            let items =
                if self.is_behind() { decayed(sent.items, advance, before) } else { self.weight(*sent, now) };
            *sent = SenderWeight { items, at: now };
        }
        self.lag_ms.store(u64::try_from(lag.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
        senders.by_org.retain(|_, sent| sent.items >= FORGOTTEN);
        senders.looked_at = Some(now);
    }

    pub(crate) fn accepted(&self, org: &OrgId, items: usize, now: Instant) {
        if self.limit.is_none() {
            return;
        }
        let mut senders = self.senders.lock();
        let sent = senders.by_org.entry(org.clone()).or_insert(SenderWeight { items: 0.0, at: now });
        #[expect(clippy::cast_precision_loss, reason = "a request has a thousand items")]
        let items = self.weight(*sent, now) + items as f64;
        *sent = SenderWeight { items, at: now };
    }

    /// True if items of the organisation are refused now.
    pub(crate) fn refuses(&self, org: &OrgId, now: Instant) -> bool {
        let Some(limit) = self.limit else { return false };
        let lag = self.lag();
        if lag <= limit {
            return false;
        }
        let senders = &self.senders.lock().by_org;
        let Some(own) = senders.get(org).map(|sent| self.weight(*sent, now)) else { return false };
        let all: f64 = senders.values().map(|sent| self.weight(*sent, now)).sum();
        #[expect(clippy::cast_precision_loss, reason = "there are not so many organisations")]
        let average = all / senders.len() as f64;
        // The backlog grows although the large senders are refused, so the others are too many together.
        let beyond = (lag - limit).as_secs_f64() / limit.as_secs_f64();
        own >= average / beyond.max(1.0)
    }

    fn is_behind(&self) -> bool {
        self.limit.is_some_and(|limit| self.lag() > limit)
    }

    /// Items that count after what has passed since: half of them after the time of the limit. While processing is behind, they
    /// wait, and count less only as it advances: who is refused must not become a small sender by that.
    fn weight(&self, sent: SenderWeight, now: Instant) -> f64 {
        if self.is_behind() {
            return sent.items;
        }
        let passed = now.saturating_duration_since(sent.at);
        decayed(sent.items, passed, self.limit.unwrap_or_default())
    }

    /// Follows the lag until it is told to stop.
    pub(crate) async fn watch(self: Arc<Self>, log: Log, stop: CancellationToken) {
        loop {
            match log.oldest_uncommitted(Group::ITEMS, Topic::Items).await {
                Ok(oldest) => {
                    let age = oldest.map_or(0, |at| Millis::now().0.saturating_sub(at.0).max(0));
                    let lag = Duration::from_millis(age.unsigned_abs());
                    metrics::lag(lag);
                    self.log_change(lag);
                    self.set_lag(lag, Instant::now());
                }
                // The last lag stands. Appends meet the same outage and are refused for it.
                Err(error) => tracing::warn!(%error, "the lag of the items is not known"),
            }
            if stop.run_until_cancelled(tokio::time::sleep(self.interval())).await.is_none() {
                return;
            }
        }
    }

    /// Logs when the limit is passed, and when it no longer is.
    fn log_change(&self, lag: Duration) {
        let Some(limit) = self.limit else { return };
        match (self.lag() > limit, lag > limit) {
            (false, true) => tracing::warn!(
                ?lag,
                ?limit,
                "processing is behind ingest.max_lag_seconds: items of the largest senders are refused"
            ),
            (true, false) => tracing::info!(?lag, "processing has caught up: all items are accepted again"),
            _ => {}
        }
    }
}

fn decayed(items: f64, passed: Duration, half_life: Duration) -> f64 {
    items * (-passed.as_secs_f64() / half_life.as_secs_f64().max(1.0)).exp2()
}

impl Api {
    /// Refuses items of an organisation while processing is too far behind.
    pub(crate) fn check_lag(&self, org: &OrgId) -> Result<(), Problem> {
        if !self.lag.refuses(org, Instant::now()) {
            return Ok(());
        }
        self.http.count_limited(Limit::LagShare);
        Err(Problem::unavailable(
            "Processing is behind, and the organisation sends more than most: send again later.",
            self.lag.interval(),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(900);

    #[test]
    fn the_largest_senders_are_refused_first_and_others_as_the_lag_grows() {
        let (gate, now) = (LagGate::new(Some(LIMIT)), Instant::now());
        let [large, middle, small, new] = ["large", "middle", "small", "new"].map(OrgId::new);
        gate.accepted(&large, 10_000, now);
        gate.accepted(&middle, 1_000, now);
        gate.accepted(&small, 10, now);
        let refused = |lag: Duration| {
            gate.set_lag(lag, now);
            [&large, &middle, &small, &new].map(|org| gate.refuses(org, now))
        };
        assert_eq!(refused(LIMIT), [false; 4]);
        assert_eq!(refused(LIMIT + Duration::from_secs(1)), [true, false, false, false]);
        assert_eq!(refused(LIMIT * 4), [true, false, false, false]);
        assert_eq!(refused(LIMIT * 5), [true, true, false, false]);
        assert_eq!(refused(LIMIT * 400), [true, true, true, false]);
        assert_eq!(refused(Duration::ZERO), [false; 4]);
    }

    #[test]
    fn a_refused_sender_stays_a_large_one_while_its_items_wait() {
        let (gate, now) = (LagGate::new(Some(LIMIT)), Instant::now());
        let [flood, small] = ["flood", "small"].map(OrgId::new);
        gate.accepted(&flood, 10_000, now);
        for passed in 1..=40 {
            let now = now + LIMIT * passed;
            gate.set_lag(LIMIT * (passed + 1).min(20), now);
            gate.accepted(&small, 1, now);
            assert_eq!([&flood, &small].map(|org| gate.refuses(org, now)), [true, false], "{passed}");
        }
    }

    #[test]
    fn a_sender_whose_items_are_processed_is_a_small_one_again() {
        let (gate, now) = (LagGate::new(Some(LIMIT)), Instant::now());
        let [once, steady] = ["once", "steady"].map(OrgId::new);
        gate.accepted(&once, 10_000, now);
        // The other sends a little more than is processed, so that the lag stays above the limit.
        let refused: Vec<_> = (1..=3_u32)
            .map(|passed| {
                let now = now + LIMIT * passed;
                gate.set_lag(LIMIT + Duration::from_secs(1), now);
                gate.accepted(&steady, 1_500, now);
                [&once, &steady].map(|org| gate.refuses(org, now))
            })
            .collect();
        assert_eq!((refused[0], refused[2]), ([true, false], [false, true]), "{refused:?}");
    }

    #[test]
    fn an_organisation_alone_is_refused_once_it_has_sent_something() {
        let (gate, now) = (LagGate::new(Some(LIMIT)), Instant::now());
        let org = OrgId::new("org");
        gate.set_lag(LIMIT + Duration::from_secs(1), now);
        assert!(!gate.refuses(&org, now));
        gate.accepted(&org, 1, now);
        assert!(gate.refuses(&org, now));
    }

    #[test]
    fn what_was_sent_long_ago_counts_less_and_is_forgotten() {
        let (gate, now) = (LagGate::new(Some(LIMIT)), Instant::now());
        let [earlier, now_large] = ["earlier", "now"].map(OrgId::new);
        gate.accepted(&earlier, 1_000, now);
        let later = now + LIMIT * 2;
        gate.accepted(&now_large, 500, later);
        gate.set_lag(LIMIT + Duration::from_secs(1), later);
        assert!(!gate.refuses(&earlier, later));
        assert!(gate.refuses(&now_large, later));
        // What counts is the time since processing caught up.
        gate.set_lag(Duration::ZERO, later);
        gate.set_lag(Duration::ZERO, later + LIMIT * 30);
        assert!(gate.senders.lock().by_org.is_empty());
    }

    #[test]
    fn without_a_limit_any_lag_is_accepted() {
        let (gate, now) = (LagGate::new(None), Instant::now());
        gate.accepted(&OrgId::new("org"), 1, now);
        gate.set_lag(LIMIT * 100, now);
        assert!(!gate.refuses(&OrgId::new("org"), now));
    }
}
