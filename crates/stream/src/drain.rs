//! When the owner of partitions may let go of them: the one path of a revocation and of a shutdown.
//!
//! It neither commits nor waits: it is told the time and the work in flight, and says what is next.

use std::time::{Duration, Instant};

/// Why partitions are let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    Revoked,
    Shutdown,
    Failed,
}

impl Cause {
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Revoked => "revoked",
            Self::Shutdown => "shutdown",
            Self::Failed => "failed",
        }
    }
}

/// What the drain asks for next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Work is in flight, and there is this much time for it.
    Wait(Duration),
    /// Commit what is complete, and let go. `clean`: nothing was left in flight.
    Commit { clean: bool },
    /// The commit is answered, or there is no time left to wait for it.
    Release { clean: bool },
}

/// A drain in progress.
#[derive(Debug)]
pub(crate) struct Drain {
    pub(crate) cause: Cause,
    began: Instant,
    deadline: Instant,
    /// The commit has its own share of time: work that ran over must not cost the commit of the rest.
    commit_deadline: Option<Instant>,
    clean: bool,
}

impl Drain {
    pub(crate) fn new(cause: Cause, now: Instant, timeout: Duration) -> Self {
        Self { cause, began: now, deadline: now + timeout, commit_deadline: None, clean: false }
    }

    /// `in_flight`: records somebody works on. `uncommitted`: partitions with something complete that no
    /// acknowledged commit has passed.
    pub(crate) fn step(
        &mut self,
        now: Instant,
        in_flight: usize,
        uncommitted: usize,
        commit_timeout: Duration,
    ) -> Step {
        let Some(commit_deadline) = self.commit_deadline else {
            if in_flight > 0 && now < self.deadline {
                return Step::Wait(self.deadline - now);
            }
            self.clean = in_flight == 0;
            self.commit_deadline = Some(now + commit_timeout);
            return Step::Commit { clean: self.clean };
        };
        if uncommitted > 0 && now < commit_deadline {
            return Step::Wait(commit_deadline - now);
        }
        Step::Release { clean: self.clean && uncommitted == 0 }
    }

    pub(crate) fn took(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.began)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_drain_waits_for_work_then_commits_then_releases() {
        let start = Instant::now();
        let mut drain = Drain::new(Cause::Revoked, start, 3 * SECOND);
        assert_eq!(drain.step(start + SECOND, 2, 1, SECOND), Step::Wait(2 * SECOND));
        assert_eq!(drain.step(start + SECOND, 0, 1, SECOND), Step::Commit { clean: true });
        assert_eq!(drain.step(start + SECOND, 0, 1, SECOND), Step::Wait(SECOND));
        assert_eq!(drain.step(start + SECOND, 0, 0, SECOND), Step::Release { clean: true });
        assert_eq!(drain.took(start + SECOND), SECOND);
    }

    #[test]
    fn work_that_runs_over_the_deadline_is_left_and_the_rest_is_committed() {
        let start = Instant::now();
        let mut drain = Drain::new(Cause::Shutdown, start, SECOND);
        assert_eq!(drain.step(start + SECOND, 1, 1, SECOND), Step::Commit { clean: false });
        assert_eq!(drain.step(start + SECOND, 1, 0, SECOND), Step::Release { clean: false });
    }

    #[test]
    fn a_commit_that_nobody_answers_ends_with_its_own_deadline() {
        let start = Instant::now();
        let mut drain = Drain::new(Cause::Revoked, start, SECOND);
        assert_eq!(drain.step(start, 0, 1, SECOND), Step::Commit { clean: true });
        assert_eq!(drain.step(start + 2 * SECOND, 0, 1, SECOND), Step::Release { clean: false });
    }
}
