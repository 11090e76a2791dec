//! Which hosts are left alone for a while because they failed again and again.
//!
//! It reads no clock and calls nobody: it is told the time, and how fetches ended.

use std::{collections::HashMap, sync::Arc, time::Duration};

use tidegate_schemas::ids::OrgId;
use tokio::time::Instant;

/// When a host is left alone, and for how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// Failures in a row.
    pub(super) failures: u32,
    pub(super) rest: Duration,
    pub(super) longest_rest: Duration,
    /// How long the one fetch that tries the host may take before another one may.
    pub(super) trial: Duration,
    /// As many rests in a row are waited for at most; one that does not come back is given up, but for trials.
    pub(super) rests: u32,
    /// Hosts that are remembered.
    pub(super) hosts: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    Go,
    /// It is the one that tries the host, and others wait until then if it does not say how that went.
    Try(Instant),
    /// Not before then.
    Wait(Instant),
    /// Once the one that tries the host is done, or then.
    Watch(Instant),
    /// There is no use in waiting.
    GivenUp,
}

#[derive(Debug)]
pub(super) struct Breakers {
    patience: Patience,
    troubled: HashMap<Site, Trouble>,
    /// Those of them that are not closed: each fetch asks for their number.
    open: usize,
    /// When room was looked for.
    swept_at: Option<Instant>,
}

/// A host as one org knows it: who could spoil it for others would only have to send them to a place where it fails.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Site {
    pub(super) org: OrgId,
    pub(super) host: Arc<str>,
}

#[derive(Clone, Copy, Debug)]
struct Trouble {
    failures: u32,
    /// Rested so often.
    rests: u32,
    at: Instant,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed,
    Resting { until: Instant },
    Trying { until: Instant },
}

impl Breakers {
    pub(super) fn new(patience: Patience) -> Self {
        Self { patience, troubled: HashMap::new(), open: 0, swept_at: None }
    }

    /// Whether a fetch from the host may start. After a rest it is one alone that tries.
    pub(super) fn admit(&mut self, site: &Site, now: Instant) -> Admission {
        let Some(trouble) = self.troubled.get_mut(site) else { return Admission::Go };
        match trouble.state {
            State::Closed => Admission::Go,
            State::Resting { until } | State::Trying { until }
                if now < until && trouble.rests >= self.patience.rests =>
            {
                Admission::GivenUp
            }
            State::Resting { until } if now < until => Admission::Wait(until),
            State::Trying { until } if now < until => Admission::Watch(until),
            State::Resting { .. } | State::Trying { .. } => {
                let until = now + self.patience.trial;
                trouble.state = State::Trying { until };
                Admission::Try(until)
            }
        }
    }

    /// Whoever was to try the host until then has left without having done so: the next one may.
    pub(super) fn left(&mut self, site: &Site, until: Instant, now: Instant) {
        if let Some(trouble) = self.troubled.get_mut(site)
            && trouble.state == (State::Trying { until })
        {
            trouble.state = State::Resting { until: now };
        }
    }

    pub(super) fn succeeded(&mut self, site: &Site) {
        if let Some(trouble) = self.troubled.remove(site) {
            self.open -= usize::from(trouble.is_open());
        }
    }

    /// Says whether the host rests now, as far as it is remembered.
    pub(super) fn failed(&mut self, site: &Site, now: Instant) -> bool {
        let patience = self.patience;
        if !self.troubled.contains_key(site) && !self.has_room(now) {
            return true;
        }
        let fresh = Trouble { failures: 0, rests: 0, at: now, state: State::Closed };
        let trouble = self.troubled.entry(site.clone()).or_insert(fresh);
        trouble.at = now;
        trouble.failures = trouble.failures.saturating_add(1);
        let rests = match trouble.state {
            State::Closed => trouble.failures >= patience.failures,
            State::Trying { .. } => true,
            // It was under way when the rest began.
            State::Resting { .. } => false,
        };
        if rests {
            self.open += usize::from(!trouble.is_open());
            let rest = patience.rest.saturating_mul(1 << trouble.rests.min(16)).min(patience.longest_rest);
            trouble.rests = trouble.rests.saturating_add(1);
            trouble.state = State::Resting { until: now + rest };
        }
        trouble.is_open()
    }

    /// Hosts that rest, or are being tried.
    pub(super) fn open(&self) -> usize {
        self.open
    }

    /// Names are free, so hosts that nobody has asked for lately are forgotten before a new one is remembered. Those that
    /// are not remembered fail often, so room is looked for only now and then.
    fn has_room(&mut self, now: Instant) -> bool {
        if self.troubled.len() < self.patience.hosts {
            return true;
        }
        if self.swept_at.is_some_and(|at| now.saturating_duration_since(at) < self.patience.rest) {
            return false;
        }
        self.swept_at = Some(now);
        let forget_after = self.patience.longest_rest.saturating_mul(2);
        self.troubled.retain(|_, trouble| {
            let stays = now.saturating_duration_since(trouble.at) < forget_after;
            self.open -= usize::from(!stays && trouble.is_open());
            stays
        });
        self.troubled.len() < self.patience.hosts
    }
}

impl Trouble {
    fn is_open(&self) -> bool {
        self.state != State::Closed
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn site(host: &str) -> Site {
        Site { org: OrgId::new("o"), host: host.into() }
    }

    fn breakers() -> Breakers {
        Breakers::new(Patience {
            failures: 3,
            rest: 10 * SECOND,
            longest_rest: 25 * SECOND,
            trial: 5 * SECOND,
            rests: 5,
            hosts: 2,
        })
    }

    #[test]
    fn a_host_that_fails_in_a_row_rests_and_is_then_tried_by_one() {
        let (mut breakers, host, start) = (breakers(), site("host"), Instant::now());
        for _ in 0..2 {
            breakers.failed(&host, start);
        }
        breakers.succeeded(&host);
        for _ in 0..2 {
            breakers.failed(&host, start);
            assert_eq!(breakers.admit(&host, start), Admission::Go);
        }
        breakers.failed(&host, start);
        let until = start + 10 * SECOND;
        assert_eq!(breakers.admit(&host, start), Admission::Wait(until));
        assert_eq!(breakers.admit(&site("other"), start), Admission::Go);
        assert_eq!(breakers.admit(&host, until), Admission::Try(until + 5 * SECOND));
        assert_eq!(breakers.admit(&host, until), Admission::Watch(until + 5 * SECOND));
        // Whoever tried it never said how it went: the next one may.
        let later = until + 5 * SECOND;
        assert_eq!(breakers.admit(&host, later), Admission::Try(later + 5 * SECOND));
        breakers.left(&host, later, later);
        assert_eq!(breakers.admit(&host, later), Admission::Watch(later + 5 * SECOND), "another one's trial");
        breakers.left(&host, later + 5 * SECOND, later);
        assert_eq!(breakers.admit(&host, later), Admission::Try(later + 5 * SECOND));
        breakers.succeeded(&host);
        assert_eq!((breakers.admit(&host, until), breakers.open()), (Admission::Go, 0));
    }

    #[test]
    fn each_rest_is_longer_up_to_the_longest() {
        let (mut breakers, host, mut now) = (breakers(), site("host"), Instant::now());
        for _ in 0..3 {
            breakers.failed(&host, now);
        }
        for seconds in [10, 20, 25, 25] {
            let until = now + seconds * SECOND;
            assert_eq!(breakers.admit(&host, now), Admission::Wait(until));
            now = until;
            assert_eq!(breakers.admit(&host, now), Admission::Try(now + 5 * SECOND));
            breakers.failed(&host, now);
        }
    }

    #[test]
    fn a_host_that_rested_again_and_again_is_given_up_until_a_trial_succeeds() {
        let (mut breakers, host, mut now) = (breakers(), site("host"), Instant::now());
        assert_eq!([(); 3].map(|()| breakers.failed(&host, now)), [false, false, true]);
        for _ in 1..5 {
            let Admission::Wait(until) = breakers.admit(&host, now) else { panic!("it is waited for") };
            now = until;
            assert_eq!(breakers.admit(&host, now), Admission::Try(now + 5 * SECOND));
            breakers.failed(&host, now);
        }
        assert_eq!(breakers.admit(&host, now), Admission::GivenUp);
        now += 25 * SECOND;
        assert_eq!(breakers.admit(&host, now), Admission::Try(now + 5 * SECOND));
        assert_eq!(
            breakers.admit(&host, now),
            Admission::GivenUp,
            "one tries, and nobody waits for how it goes"
        );
        breakers.succeeded(&host);
        assert_eq!(breakers.admit(&host, now), Admission::Go);
    }

    #[test]
    fn what_was_under_way_does_not_prolong_a_rest() {
        let (mut breakers, host, start) = (breakers(), site("host"), Instant::now());
        for _ in 0..9 {
            breakers.failed(&host, start);
        }
        assert_eq!(breakers.admit(&host, start), Admission::Wait(start + 10 * SECOND));
    }

    #[test]
    fn names_without_number_are_not_remembered() {
        let (mut breakers, start) = (breakers(), Instant::now());
        for nth in 0..100 {
            breakers.failed(&site(&format!("{nth}.example")), start);
        }
        assert_eq!(breakers.troubled.len(), 2);
        // Two are old enough after fifty seconds, and were looked at ten seconds before the last.
        for (seconds, remembered) in [(45, 2), (54, 2), (55, 1)] {
            breakers.failed(&site("late.example"), start + seconds * SECOND);
            assert_eq!(breakers.troubled.len(), remembered, "{seconds}");
        }
    }

    proptest! {
        #[test]
        fn as_many_are_open_as_are_found_open(
            events in proptest::collection::vec((0_u8..4, 0_u8..5, 0_u32..40), 0..200),
        ) {
            let (mut breakers, mut now) = (breakers(), Instant::now());
            for (kind, host, seconds) in events {
                let host = site(&host.to_string());
                match kind {
                    0 => breakers.succeeded(&host),
                    1 => _ = breakers.admit(&host, now),
                    2 => now += seconds * SECOND,
                    _ => (0..seconds % 5).for_each(|_| _ = breakers.failed(&host, now)),
                }
                let open = breakers.troubled.values().filter(|trouble| trouble.is_open()).count();
                prop_assert_eq!(breakers.open(), open);
            }
        }
    }
}
