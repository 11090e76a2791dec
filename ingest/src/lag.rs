//! Back-pressure when processing falls behind: items are refused while the oldest unprocessed record is too old.
//!
//! Organisations are weighed by the items that this process accepted of them lately. Those that sent at least the average
//! are refused first; beyond twice the limit all are.

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
    senders: Mutex<HashMap<OrgId, SenderWeight>>,
}

/// Items of an organisation, of which each counts less the longer ago it was accepted.
#[derive(Clone, Copy, Debug)]
struct SenderWeight {
    items: f64,
    at: Instant,
}

/// Senders that are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LagRefusal {
    LargeSender,
    Everybody,
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
        self.lag_ms.store(u64::try_from(lag.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.senders.lock().retain(|_, sent| self.weight(*sent, now) >= FORGOTTEN);
    }

    pub(crate) fn accepted(&self, org: &OrgId, items: usize, now: Instant) {
        if self.limit.is_none() {
            return;
        }
        let mut senders = self.senders.lock();
        let sent = senders.entry(org.clone()).or_insert(SenderWeight { items: 0.0, at: now });
        #[expect(clippy::cast_precision_loss, reason = "a request has a thousand items")]
        let items = self.weight(*sent, now) + items as f64;
        *sent = SenderWeight { items, at: now };
    }

    /// Returns the reason to refuse items of the organisation now; none if they are accepted.
    pub(crate) fn refuses(&self, org: &OrgId, now: Instant) -> Option<LagRefusal> {
        let (limit, lag) = (self.limit?, self.lag());
        if lag <= limit {
            return None;
        }
        if lag > limit * 2 {
            return Some(LagRefusal::Everybody);
        }
        let senders = self.senders.lock();
        let own = self.weight(*senders.get(org)?, now);
        let all: f64 = senders.values().map(|sent| self.weight(*sent, now)).sum();
        #[expect(clippy::cast_precision_loss, reason = "there are not so many organisations")]
        let average = all / senders.len() as f64;
        (own >= average).then_some(LagRefusal::LargeSender)
    }

    /// Items that count after what has passed since: half of them after the time of the limit.
    fn weight(&self, sent: SenderWeight, now: Instant) -> f64 {
        let passed = now.saturating_duration_since(sent.at).as_secs_f64();
        let half_life = self.limit.map_or(1.0, |limit| limit.as_secs_f64().max(1.0));
        sent.items * (-passed / half_life).exp2()
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

impl Api {
    /// Refuses items of an organisation while processing is too far behind.
    pub(crate) fn check_lag(&self, org: &OrgId) -> Result<(), Problem> {
        let Some(refused) = self.lag.refuses(org, Instant::now()) else { return Ok(()) };
        let (limit, detail) = match refused {
            LagRefusal::LargeSender => (
                Limit::LagShare,
                "Processing is behind, and the organisation sends more than most: send again later.",
            ),
            LagRefusal::Everybody => (Limit::LagTotal, "Processing is far behind: send again later."),
        };
        self.http.count_limited(limit);
        Err(Problem::unavailable(detail, self.lag.interval()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(900);

    #[test]
    fn the_largest_senders_are_refused_first_and_everybody_far_beyond() {
        let (gate, now) = (LagGate::new(Some(LIMIT)), Instant::now());
        let [large, small, new] = ["large", "small", "new"].map(OrgId::new);
        gate.accepted(&large, 10_000, now);
        gate.accepted(&small, 10, now);
        gate.set_lag(LIMIT, now);
        assert_eq!(gate.refuses(&large, now), None);
        gate.set_lag(LIMIT + Duration::from_secs(1), now);
        let refused = [&large, &small, &new].map(|org| gate.refuses(org, now));
        assert_eq!(refused, [Some(LagRefusal::LargeSender), None, None]);
        gate.set_lag(LIMIT * 2 + Duration::from_secs(1), now);
        let refused = [&large, &small, &new].map(|org| gate.refuses(org, now));
        assert_eq!(refused, [Some(LagRefusal::Everybody); 3]);
        gate.set_lag(Duration::ZERO, now);
        assert_eq!(gate.refuses(&large, now), None);
    }

    #[test]
    fn an_organisation_alone_is_refused_once_it_has_sent_something() {
        let (gate, now) = (LagGate::new(Some(LIMIT)), Instant::now());
        let org = OrgId::new("org");
        gate.set_lag(LIMIT + Duration::from_secs(1), now);
        assert_eq!(gate.refuses(&org, now), None);
        gate.accepted(&org, 1, now);
        assert_eq!(gate.refuses(&org, now), Some(LagRefusal::LargeSender));
    }

    #[test]
    fn what_was_sent_long_ago_counts_less_and_is_forgotten() {
        let (gate, now) = (LagGate::new(Some(LIMIT)), Instant::now());
        let [earlier, now_large] = ["earlier", "now"].map(OrgId::new);
        gate.accepted(&earlier, 1_000, now);
        let later = now + LIMIT * 2;
        gate.accepted(&now_large, 500, later);
        gate.set_lag(LIMIT + Duration::from_secs(1), later);
        assert_eq!(gate.refuses(&earlier, later), None);
        assert_eq!(gate.refuses(&now_large, later), Some(LagRefusal::LargeSender));
        gate.set_lag(Duration::ZERO, now + LIMIT * 30);
        assert!(gate.senders.lock().is_empty());
    }

    #[test]
    fn without_a_limit_any_lag_is_accepted() {
        let (gate, now) = (LagGate::new(None), Instant::now());
        gate.accepted(&OrgId::new("org"), 1, now);
        gate.set_lag(LIMIT * 100, now);
        assert_eq!(gate.refuses(&OrgId::new("org"), now), None);
    }
}
