//! Circuit breaker per org and host: repeated failures make a host rest, then one probe decides.
//!
//! The caller supplies the clock and reports the outcomes of fetches.

use std::{collections::HashMap, sync::Arc, time::Duration};

use tidegate_schemas::ids::OrgId;
use tokio::time::Instant;

/// Thresholds and pauses of the breakers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BreakerSettings {
    /// Consecutive failures after which a host rests.
    pub(crate) failures: u32,
    pub(crate) rest: Duration,
    pub(crate) longest_rest: Duration,
    /// Longest duration of a probe. After it another fetch may probe.
    pub(crate) probe: Duration,
    /// Number of consecutive rests during which fetches wait. After them only probes call the host.
    pub(crate) rests: u32,
    /// Maximum number of remembered failing hosts.
    pub(crate) hosts: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Allowed,
    /// The fetch probes the host. The probe counts as abandoned after this instant.
    Probe(Instant),
    /// The host rests until this instant.
    Resting(Instant),
    /// Another fetch probes the host until this instant at most.
    Probing(Instant),
    /// The host has rested too often in a row, so fetches do not wait for it.
    GivenUp,
}

#[derive(Debug)]
pub(crate) struct HostBreakers {
    settings: BreakerSettings,
    failing: HashMap<OrgHost, Breaker>,
    /// Number of breakers that are not closed, maintained because each fetch reports it.
    open_breakers: usize,
    /// Time of the last removal of stale hosts.
    swept_at: Option<Instant>,
}

/// Host as seen by one org. Breakers are per org, because an org could otherwise open the breaker for all others with
/// URLs at which the host fails.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OrgHost {
    pub(crate) org: OrgId,
    pub(crate) host: Arc<str>,
}

#[derive(Clone, Copy, Debug)]
struct Breaker {
    failures: u32,
    /// Number of consecutive rests.
    rests: u32,
    last_failure_at: Instant,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed,
    Resting { until: Instant },
    Probing { until: Instant },
}

impl HostBreakers {
    pub(crate) fn new(settings: BreakerSettings) -> Self {
        Self { settings, failing: HashMap::new(), open_breakers: 0, swept_at: None }
    }

    /// Decides whether a fetch may start. After a rest only a single probe may.
    pub(crate) fn admit(&mut self, host: &OrgHost, now: Instant) -> Admission {
        let Some(breaker) = self.failing.get_mut(host) else { return Admission::Allowed };
        match breaker.state {
            State::Closed => Admission::Allowed,
            State::Resting { until } | State::Probing { until }
                if now < until && breaker.rests >= self.settings.rests =>
            {
                Admission::GivenUp
            }
            State::Resting { until } if now < until => Admission::Resting(until),
            State::Probing { until } if now < until => Admission::Probing(until),
            State::Resting { .. } | State::Probing { .. } => {
                let until = now + self.settings.probe;
                breaker.state = State::Probing { until };
                Admission::Probe(until)
            }
        }
    }

    /// Ends a probe without a result, so that the next fetch can probe.
    pub(crate) fn abandon_probe(&mut self, host: &OrgHost, until: Instant, now: Instant) {
        if let Some(breaker) = self.failing.get_mut(host)
            && breaker.state == (State::Probing { until })
        {
            // A rest that has ended makes the next fetch the probe.
            breaker.state = State::Resting { until: now };
        }
    }

    pub(crate) fn record_success(&mut self, host: &OrgHost) {
        if let Some(breaker) = self.failing.remove(host) {
            self.open_breakers -= usize::from(breaker.is_open());
        }
    }

    /// Records a failure. Returns true if the host rests now.
    pub(crate) fn record_failure(&mut self, host: &OrgHost, now: Instant) -> bool {
        let settings = self.settings;
        if !self.failing.contains_key(host) && !self.has_room(now) {
            // The host cannot be remembered. Treating it as resting keeps it from counting as known.
            return true;
        }
        let fresh = Breaker { failures: 0, rests: 0, last_failure_at: now, state: State::Closed };
        let breaker = self.failing.entry(host.clone()).or_insert(fresh);
        breaker.last_failure_at = now;
        breaker.failures = breaker.failures.saturating_add(1);
        let starts_rest = match breaker.state {
            State::Closed => breaker.failures >= settings.failures,
            // One failed probe suffices, because the host has failed repeatedly before.
            State::Probing { .. } => true,
            // The fetch began before the rest, so its failure is no new evidence.
            State::Resting { .. } => false,
        };
        if starts_rest {
            self.open_breakers += usize::from(!breaker.is_open());
            // The shift is bounded, because a larger one would overflow.
            let rest = settings.rest.saturating_mul(1 << breaker.rests.min(16)).min(settings.longest_rest);
            breaker.rests = breaker.rests.saturating_add(1);
            breaker.state = State::Resting { until: now + rest };
        }
        breaker.is_open()
    }

    /// Number of hosts that rest or are being probed.
    pub(crate) fn open_count(&self) -> usize {
        self.open_breakers
    }

    /// Returns true if another host can be remembered. Host names are free, so a flood of them must not grow the map:
    /// stale hosts are removed first. At most once per rest, because every failure of an unremembered host calls
    /// this.
    fn has_room(&mut self, now: Instant) -> bool {
        if self.failing.len() < self.settings.hosts {
            return true;
        }
        if self.swept_at.is_some_and(|at| now.saturating_duration_since(at) < self.settings.rest) {
            return false;
        }
        self.swept_at = Some(now);
        let forget_after = self.settings.longest_rest.saturating_mul(2);
        self.failing.retain(|_, breaker| {
            let is_recent = now.saturating_duration_since(breaker.last_failure_at) < forget_after;
            self.open_breakers -= usize::from(!is_recent && breaker.is_open());
            is_recent
        });
        self.failing.len() < self.settings.hosts
    }
}

impl Breaker {
    fn is_open(&self) -> bool {
        self.state != State::Closed
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn org_host(host: &str) -> OrgHost {
        OrgHost { org: OrgId::new("o"), host: host.into() }
    }

    fn breakers() -> HostBreakers {
        HostBreakers::new(BreakerSettings {
            failures: 3,
            rest: 10 * SECOND,
            longest_rest: 25 * SECOND,
            probe: 5 * SECOND,
            rests: 5,
            hosts: 2,
        })
    }

    #[test]
    fn failing_host_rests_and_is_then_probed_once() {
        let (mut breakers, host, start) = (breakers(), org_host("host"), Instant::now());
        for _ in 0..2 {
            breakers.record_failure(&host, start);
        }
        breakers.record_success(&host);
        for _ in 0..2 {
            breakers.record_failure(&host, start);
            assert_eq!(breakers.admit(&host, start), Admission::Allowed);
        }
        breakers.record_failure(&host, start);
        let until = start + 10 * SECOND;
        assert_eq!(breakers.admit(&host, start), Admission::Resting(until));
        assert_eq!(breakers.admit(&org_host("other"), start), Admission::Allowed);
        assert_eq!(breakers.admit(&host, until), Admission::Probe(until + 5 * SECOND));
        assert_eq!(breakers.admit(&host, until), Admission::Probing(until + 5 * SECOND));
        // The probe ended without a report, so the next fetch may probe.
        let later = until + 5 * SECOND;
        assert_eq!(breakers.admit(&host, later), Admission::Probe(later + 5 * SECOND));
        breakers.abandon_probe(&host, later, later);
        assert_eq!(breakers.admit(&host, later), Admission::Probing(later + 5 * SECOND), "another probe");
        breakers.abandon_probe(&host, later + 5 * SECOND, later);
        assert_eq!(breakers.admit(&host, later), Admission::Probe(later + 5 * SECOND));
        breakers.record_success(&host);
        assert_eq!((breakers.admit(&host, until), breakers.open_count()), (Admission::Allowed, 0));
    }

    #[test]
    fn each_rest_is_longer_up_to_a_limit() {
        let (mut breakers, host, mut now) = (breakers(), org_host("host"), Instant::now());
        for _ in 0..3 {
            breakers.record_failure(&host, now);
        }
        for seconds in [10, 20, 25, 25] {
            let until = now + seconds * SECOND;
            assert_eq!(breakers.admit(&host, now), Admission::Resting(until));
            now = until;
            assert_eq!(breakers.admit(&host, now), Admission::Probe(now + 5 * SECOND));
            breakers.record_failure(&host, now);
        }
    }

    #[test]
    fn host_is_given_up_until_a_probe_succeeds() {
        let (mut breakers, host, mut now) = (breakers(), org_host("host"), Instant::now());
        assert_eq!([(); 3].map(|()| breakers.record_failure(&host, now)), [false, false, true]);
        for _ in 1..5 {
            let Admission::Resting(until) = breakers.admit(&host, now) else {
                panic!("the host is still resting")
            };
            now = until;
            assert_eq!(breakers.admit(&host, now), Admission::Probe(now + 5 * SECOND));
            breakers.record_failure(&host, now);
        }
        assert_eq!(breakers.admit(&host, now), Admission::GivenUp);
        now += 25 * SECOND;
        assert_eq!(breakers.admit(&host, now), Admission::Probe(now + 5 * SECOND));
        assert_eq!(
            breakers.admit(&host, now),
            Admission::GivenUp,
            "while one fetch probes, the others do not wait"
        );
        breakers.record_success(&host);
        assert_eq!(breakers.admit(&host, now), Admission::Allowed);
    }

    #[test]
    fn fetches_under_way_do_not_prolong_a_rest() {
        let (mut breakers, host, start) = (breakers(), org_host("host"), Instant::now());
        for _ in 0..9 {
            breakers.record_failure(&host, start);
        }
        assert_eq!(breakers.admit(&host, start), Admission::Resting(start + 10 * SECOND));
    }

    #[test]
    fn flood_of_host_names_is_not_remembered() {
        let (mut breakers, start) = (breakers(), Instant::now());
        for nth in 0..100 {
            breakers.record_failure(&org_host(&format!("{nth}.example")), start);
        }
        assert_eq!(breakers.failing.len(), 2);
        // Two are old enough after fifty seconds, and were looked at ten seconds before the last.
        for (seconds, remembered) in [(45, 2), (54, 2), (55, 1)] {
            breakers.record_failure(&org_host("late.example"), start + seconds * SECOND);
            assert_eq!(breakers.failing.len(), remembered, "{seconds}");
        }
    }

    proptest! {
        #[test]
        fn open_count_equals_the_open_breakers(
            events in proptest::collection::vec((0_u8..4, 0_u8..5, 0_u32..40), 0..200),
        ) {
            let (mut breakers, mut now) = (breakers(), Instant::now());
            for (kind, host, seconds) in events {
                let host = org_host(&host.to_string());
                match kind {
                    0 => breakers.record_success(&host),
                    1 => _ = breakers.admit(&host, now),
                    2 => now += seconds * SECOND,
                    _ => (0..seconds % 5).for_each(|_| _ = breakers.record_failure(&host, now)),
                }
                let open = breakers.failing.values().filter(|breaker| breaker.is_open()).count();
                prop_assert_eq!(breakers.open_count(), open);
            }
        }
    }
}
