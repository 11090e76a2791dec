//! Back-pressure when processing falls behind: while the oldest unprocessed record is too old, items of the
//! organisations that use most of the processing time are refused.
//!
//! Processors measure the time per organisation, see `tidegate_catalog::ProcessingLoad`. An organisation without
//! delayed items is refused only while no item of any organisation is processed.

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::RwLock;
use tidegate_catalog::{LiveConfigs, LoadReport};
use tidegate_schemas::ids::{Millis, OrgId};
use tidegate_stream::{Log, Topic, topics::Group};
use tidegate_web::{Limit, Problem};
use tokio_util::sync::CancellationToken;

use crate::{Api, metrics};

#[derive(Debug)]
pub(crate) struct LagGate {
    /// Largest lag at which all items are accepted. `None`: items are accepted at any lag.
    limit: Option<Duration>,
    started_at: Instant,
    state: RwLock<LagState>,
}

/// Result of the last poll of log and loads.
#[derive(Debug, Default)]
struct LagState {
    lag: Duration,
    refused_orgs: RefusedOrgs,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum RefusedOrgs {
    #[default]
    NoOrg,
    Listed(HashSet<OrgId>),
    /// No item was evaluated for longer than the limit, so the processing time cannot be attributed to organisations.
    All,
}

/// Reason of a refusal, with the lag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    OrgDelaysProcessing(Duration),
    ProcessingStopped(Duration),
}

impl LagGate {
    pub(crate) fn new(limit: Option<Duration>, now: Instant) -> Self {
        Self { limit, started_at: now, state: RwLock::default() }
    }

    /// Returns the time between two polls of the log. Refused clients receive it as `Retry-After`.
    pub(crate) fn poll_interval(&self) -> Duration {
        // Without a limit the lag is only a metric, so it is polled at the longest interval.
        let limit = self.limit.unwrap_or(Duration::from_secs(900));
        // Proportional to the limit, so a passed limit is noticed soon. The bounds limit the load on the log.
        (limit / 60).clamp(Duration::from_secs(1), Duration::from_secs(15))
    }

    /// Decides which organisations are refused until the next poll.
    fn update(&self, lag: Duration, load: &LoadReport, now: Instant) {
        let refused_orgs = match self.limit {
            Some(limit) if lag > limit => {
                let since_start = now.saturating_duration_since(self.started_at);
                // A process that starts on a backlog has not had the time to see an evaluated item.
                let idle_time = load.idle_ms.map_or(since_start, Duration::from_millis).min(since_start);
                if idle_time > limit { RefusedOrgs::All } else { find_delaying_orgs(load, limit) }
            }
            _ => RefusedOrgs::NoOrg,
        };
        metrics::set_lag(lag, refused_orgs.count());
        let mut state = self.state.write();
        log_change(&state.refused_orgs, &refused_orgs, lag);
        *state = LagState { lag, refused_orgs };
    }

    /// Returns the reason if items of the organisation are currently refused.
    fn refusal(&self, org: &OrgId) -> Option<Refusal> {
        let LagState { lag, refused_orgs } = &*self.state.read();
        match refused_orgs {
            RefusedOrgs::NoOrg => None,
            RefusedOrgs::Listed(orgs) => orgs.contains(org).then_some(Refusal::OrgDelaysProcessing(*lag)),
            RefusedOrgs::All => Some(Refusal::ProcessingStopped(*lag)),
        }
    }

    /// Polls the lag until `stop`.
    pub(crate) async fn watch(self: Arc<Self>, log: Log, live: Arc<LiveConfigs>, stop: CancellationToken) {
        loop {
            match log.oldest_uncommitted(Group::ITEMS, Topic::Items).await {
                Ok(oldest_written_at) => {
                    let age = oldest_written_at
                        .map_or(0, |written_at| Millis::now().0.saturating_sub(written_at.0).max(0));
                    let lag = Duration::from_millis(age.unsigned_abs());
                    // Without the other processes' measurements, this process decides by its own.
                    let load = live.read_load_report().await.unwrap_or_else(|error| {
                        tracing::warn!(%error, "cannot read the processing time of other processes: this process decides by its own measurements");
                        live.processing_load().report(Instant::now())
                    });
                    self.update(lag, &load, Instant::now());
                }
                // The last decision stays in force: an outage of the log also fails the appends, so no items are accepted.
                Err(error) => {
                    tracing::warn!(%error, "cannot read the lag of the items: the last decision about refusals stays in force");
                }
            }
            if stop.run_until_cancelled(tokio::time::sleep(self.poll_interval())).await.is_none() {
                return;
            }
        }
    }
}

/// Returns the organisations that delay processing. Among those with delayed items: the one with the most processing
/// time, and each with at least half as much. Without delayed items a single record is stuck; refusing items would not
/// help, so no organisation is returned.
fn find_delaying_orgs(load: &LoadReport, limit: Duration) -> RefusedOrgs {
    // A delay is known of evaluated items only. The oldest waiting item, which sets the lag, has waited longer than those, so half
    // of the limit counts as late.
    let is_late = |delay_ms: u64| Duration::from_millis(delay_ms) > limit / 2;
    let late_orgs = || load.orgs.iter().filter(|org| is_late(org.delay_ms));
    // Refusing only the maximum would leave a second org with similar load, which would keep processing behind.
    let max_seconds = late_orgs().map(|org| org.seconds).fold(0.0, f64::max);
    let orgs: HashSet<_> =
        late_orgs().filter(|org| org.seconds >= max_seconds / 2.0).map(|org| org.org.clone()).collect();
    if orgs.is_empty() { RefusedOrgs::NoOrg } else { RefusedOrgs::Listed(orgs) }
}

impl RefusedOrgs {
    /// Counts the refused organisations. `None` if all are refused.
    fn count(&self) -> Option<usize> {
        match self {
            Self::NoOrg => Some(0),
            Self::Listed(orgs) => Some(orgs.len()),
            Self::All => None,
        }
    }
}

fn log_change(old_orgs: &RefusedOrgs, new_orgs: &RefusedOrgs, lag: Duration) {
    if old_orgs == new_orgs {
        return;
    }
    match new_orgs {
        RefusedOrgs::NoOrg => tracing::info!(?lag, "processing has caught up: all items are accepted again"),
        RefusedOrgs::Listed(orgs) => {
            let mut orgs: Vec<_> = orgs.iter().map(OrgId::as_str).collect();
            orgs.sort_unstable();
            tracing::warn!(
                ?lag,
                ?orgs,
                "processing is behind ingest.max_lag_seconds: items of the organisations that take most of the \
                 processing time are refused; `tidegate lint` names costly rules"
            );
        }
        RefusedOrgs::All => tracing::error!(
            ?lag,
            "no item was processed for longer than ingest.max_lag_seconds: all items are refused; check the processes with \
             the role `process`"
        ),
    }
}

impl Api {
    /// Refuses items of an organisation that delays processing.
    pub(crate) fn check_lag(&self, org: &OrgId) -> Result<(), Problem> {
        let Some(refusal) = self.lag.refusal(org) else { return Ok(()) };
        self.http.count_limited(Limit::LagShare);
        let detail = match refusal {
            Refusal::OrgDelaysProcessing(lag) => format!(
                "Processing is {} seconds behind, and the items of this organisation take most of the processing time. Retry \
                 later. To avoid refusals, send fewer items or make rules cheaper: `tidegate lint` names costly ones.",
                lag.as_secs()
            ),
            Refusal::ProcessingStopped(lag) => format!(
                "Processing is {} seconds behind, and no item was processed recently. Retry later.",
                lag.as_secs()
            ),
        };
        Err(Problem::unavailable(detail, self.lag.poll_interval()))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use tidegate_catalog::{OrgLoad, ProcessingLoad};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(5);
    const TICK: Duration = Duration::from_millis(50);

    /// Order in which the simulated processor takes items.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Order {
        /// The org with the least used time first, as in the compute pool.
        Fair,
        /// Order of the log, as for a resource that all orgs share.
        Log,
    }

    /// Org of a simulation: items a second and processing time of each.
    #[derive(Clone, Copy)]
    struct Sender {
        name: &'static str,
        rate: f64,
        cost: Duration,
    }

    const SLOW: Sender = Sender { name: "slow", rate: 6.0, cost: Duration::from_millis(250) };
    const MIDDLE: Sender = Sender { name: "middle", rate: 200.0, cost: Duration::from_micros(500) };
    const SMALL: Sender = Sender { name: "small", rate: 3.0, cost: Duration::from_micros(500) };

    /// Simulated processing of one thread, with a gate that polls once a second. Time is simulated too.
    struct Simulation {
        order: Order,
        gate: LagGate,
        load: ProcessingLoad,
        start: Instant,
        now: Instant,
        /// Acceptance times of the items that wait.
        queues: Vec<(Sender, VecDeque<Instant>)>,
        used_times: Vec<Duration>,
        item_debts: Vec<f64>,
        /// Computing time that is left, or was taken in advance by a long item.
        budget: f64,
        refusal_times: Vec<Vec<Duration>>,
    }

    impl Simulation {
        fn new(order: Order, senders: &[Sender]) -> Self {
            let start = Instant::now();
            Self {
                order,
                gate: LagGate::new(Some(LIMIT), start),
                load: ProcessingLoad::default(),
                start,
                now: start,
                queues: senders.iter().map(|sender| (*sender, VecDeque::new())).collect(),
                used_times: vec![Duration::ZERO; senders.len()],
                item_debts: vec![0.0; senders.len()],
                budget: 0.0,
                refusal_times: vec![Vec::new(); senders.len()],
            }
        }

        fn send(&mut self, nth: usize, items: usize) {
            let (sender, queue) = &mut self.queues[nth];
            for _ in 0..items {
                if self.gate.refusal(&OrgId::new(sender.name)).is_some() {
                    self.refusal_times[nth].push(self.now - self.start);
                } else {
                    queue.push_back(self.now);
                }
            }
        }

        /// Runs for `duration`, with each sender at its rate times `factor`.
        fn run(&mut self, duration: Duration, factor: f64) {
            let end = self.now + duration;
            while self.now < end {
                for nth in 0..self.queues.len() {
                    self.item_debts[nth] += self.queues[nth].0.rate * factor * TICK.as_secs_f64();
                    while self.item_debts[nth] >= 1.0 {
                        self.item_debts[nth] -= 1.0;
                        self.send(nth, 1);
                    }
                }
                self.now += TICK;
                self.process();
                if (self.now - self.start).as_millis().is_multiple_of(1_000) {
                    let lag = self.oldest_accepted_at().map_or(Duration::ZERO, |at| self.now - at);
                    self.gate.update(lag, &self.load.report(self.now), self.now);
                }
            }
        }

        fn oldest_accepted_at(&self) -> Option<Instant> {
            self.queues.iter().filter_map(|(_, queue)| queue.front().copied()).min()
        }

        fn process(&mut self) {
            self.budget += TICK.as_secs_f64();
            while self.budget > 0.0 {
                let waiting_queues = (0..self.queues.len()).filter(|nth| !self.queues[*nth].1.is_empty());
                let next_index = match self.order {
                    Order::Fair => waiting_queues.min_by_key(|nth| self.used_times[*nth]),
                    Order::Log => waiting_queues.min_by_key(|nth| self.queues[*nth].1.front().copied()),
                };
                let Some(nth) = next_index else {
                    self.budget = 0.0;
                    return;
                };
                let (sender, queue) = &mut self.queues[nth];
                let Some(accepted_at) = queue.pop_front() else { return };
                self.used_times[nth] += sender.cost;
                self.budget -= sender.cost.as_secs_f64();
                let org = OrgId::new(sender.name);
                self.load.add_time(&org, sender.cost, self.now);
                self.load.set_delay(&org, self.now - accepted_at, self.now);
            }
        }

        fn refusals_of_others(&self) -> usize {
            self.refusal_times[1..].iter().map(Vec::len).sum()
        }
    }

    #[test]
    fn only_the_org_that_fills_the_time_is_refused() {
        for (order, factor) in [(Order::Fair, 1.0), (Order::Fair, 2.0), (Order::Log, 1.0), (Order::Log, 2.0)]
        {
            let mut simulation = Simulation::new(order, &[SLOW, MIDDLE, SMALL]);
            simulation.run(Duration::from_secs(120), 1.0);
            simulation.queues[0].0.rate /= factor;
            simulation.run(Duration::from_secs(120), factor);
            let first_refusal = simulation.refusal_times[0].first().copied();
            // The lag passes the limit after about 15 seconds, for the slow one sends 1.5 seconds of work a second.
            assert!(first_refusal.is_some_and(|at| at < Duration::from_secs(25)), "{first_refusal:?}");
            assert!(
                simulation.refusal_times[0].len() > 200,
                "{} refusals",
                simulation.refusal_times[0].len()
            );
            assert_eq!(simulation.refusals_of_others(), 0);
        }
    }

    #[test]
    fn a_burst_is_refused_for_the_time_of_its_own_backlog() {
        let mut simulation = Simulation::new(Order::Fair, &[Sender { rate: 0.2, ..SLOW }, MIDDLE, SMALL]);
        simulation.run(Duration::from_secs(30), 1.0);
        simulation.send(0, 300);
        // 75 seconds of work, beside a tenth of the time for the middle one.
        simulation.run(Duration::from_secs(200), 1.0);
        let last_refusal = simulation.refusal_times[0].last().copied();
        let end = Duration::from_secs(30 + 90);
        assert!(last_refusal.is_some_and(|at| at > Duration::from_secs(60) && at < end), "{last_refusal:?}");
        assert_eq!(simulation.refusals_of_others(), 0);
    }

    fn load(orgs: &[(&str, f64, u64)]) -> LoadReport {
        let org_load = |(org, seconds, delay_ms): &(&str, f64, u64)| OrgLoad {
            org: OrgId::new(*org),
            seconds: *seconds,
            delay_ms: *delay_ms,
        };
        LoadReport { idle_ms: Some(0), orgs: orgs.iter().map(org_load).collect() }
    }

    fn are_refused(gate: &LagGate, orgs: &[&str]) -> Vec<bool> {
        orgs.iter().map(|org| gate.refusal(&OrgId::new(*org)).is_some()).collect()
    }

    #[test]
    fn org_without_waiting_items_is_always_accepted() {
        let (gate, now) = (LagGate::new(Some(LIMIT), Instant::now()), Instant::now());
        let orgs =
            load(&[("busy", 20.0, 100), ("late", 2.0, 9_000), ("equal", 1.5, 9_000), ("small", 0.5, 9_000)]);
        let names = ["busy", "late", "equal", "small", "new"];
        gate.update(LIMIT, &orgs, now);
        assert_eq!(are_refused(&gate, &names), [false; 5], "the lag is within its limit");
        gate.update(LIMIT * 2, &orgs, now);
        assert_eq!(are_refused(&gate, &names), [false, true, true, false, false]);
        gate.update(LIMIT * 100, &load(&[("busy", 20.0, 100)]), now);
        assert_eq!(are_refused(&gate, &names), [false; 5], "a single record is held up");
        gate.update(LIMIT, &orgs, now);
        assert_eq!(are_refused(&gate, &names), [false; 5]);
    }

    #[test]
    fn all_orgs_are_refused_while_processing_stands_still() {
        let start = Instant::now();
        let gate = LagGate::new(Some(LIMIT), start);
        gate.update(LIMIT * 10, &LoadReport::default(), start + LIMIT / 2);
        assert_eq!(are_refused(&gate, &["org"]), [false], "the process has just started on a backlog");
        gate.update(LIMIT * 10, &LoadReport::default(), start + LIMIT * 2);
        assert_eq!(are_refused(&gate, &["org"]), [true]);
        gate.update(LIMIT * 10, &load(&[]), start + LIMIT * 3);
        assert_eq!(are_refused(&gate, &["org"]), [false], "items are processed again");
    }

    #[test]
    fn without_a_limit_any_lag_is_accepted() {
        let now = Instant::now();
        let gate = LagGate::new(None, now);
        gate.update(LIMIT * 100, &load(&[("org", 1.0, 500_000)]), now + LIMIT * 1_000);
        assert_eq!(are_refused(&gate, &["org"]), [false]);
    }
}
