//! Decision when the owner of partitions may let go of them: the one path of a revocation and of a shutdown.
//!
//! It is pure: the driver tells it the time and the work in flight, commits and releases.

use std::time::{Duration, Instant};

/// Reason for which partitions are let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DrainCause {
    Revoked,
    Shutdown,
    Failed,
}

impl DrainCause {
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Revoked => "revoked",
            Self::Shutdown => "shutdown",
            Self::Failed => "failed",
        }
    }
}

/// The next step of a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DrainStep {
    /// Work or a commit is in flight, and there is this much time for it.
    Wait(Duration),
    /// Commit what is complete, then go on. `clean`: nothing was left in flight.
    Commit { clean: bool },
    /// The commit is answered, or there is no time left to wait for it.
    Release { clean: bool },
}

/// A drain in progress.
#[derive(Debug)]
pub(crate) struct Drain {
    pub(crate) cause: DrainCause,
    began: Instant,
    deadline: Instant,
    /// The commit has its own share of time: work that ran over must not cost the commit of the rest.
    commit_deadline: Option<Instant>,
    clean: bool,
}

impl Drain {
    pub(crate) fn new(cause: DrainCause, now: Instant, timeout: Duration) -> Self {
        Self { cause, began: now, deadline: now + timeout, commit_deadline: None, clean: false }
    }

    /// Returns the next step. `in_flight`: records somebody works on. `uncommitted`: partitions with something complete
    /// that no acknowledged commit has passed.
    pub(crate) fn step(
        &mut self,
        now: Instant,
        in_flight: usize,
        uncommitted: usize,
        commit_timeout: Duration,
    ) -> DrainStep {
        let Some(commit_deadline) = self.commit_deadline else {
            if in_flight > 0 && now < self.deadline {
                return DrainStep::Wait(self.deadline - now);
            }
            self.clean = in_flight == 0;
            self.commit_deadline = Some(now + commit_timeout);
            return DrainStep::Commit { clean: self.clean };
        };
        if uncommitted > 0 && now < commit_deadline {
            return DrainStep::Wait(commit_deadline - now);
        }
        DrainStep::Release { clean: self.clean && uncommitted == 0 }
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
        let mut drain = Drain::new(DrainCause::Revoked, start, 3 * SECOND);
        assert_eq!(drain.step(start + SECOND, 2, 1, SECOND), DrainStep::Wait(2 * SECOND));
        assert_eq!(drain.step(start + SECOND, 0, 1, SECOND), DrainStep::Commit { clean: true });
        assert_eq!(drain.step(start + SECOND, 0, 1, SECOND), DrainStep::Wait(SECOND));
        assert_eq!(drain.step(start + SECOND, 0, 0, SECOND), DrainStep::Release { clean: true });
        assert_eq!(drain.took(start + SECOND), SECOND);
    }

    #[test]
    fn work_that_runs_over_the_deadline_is_left_and_the_rest_is_committed() {
        let start = Instant::now();
        let mut drain = Drain::new(DrainCause::Shutdown, start, SECOND);
        assert_eq!(drain.step(start + SECOND, 1, 1, SECOND), DrainStep::Commit { clean: false });
        assert_eq!(drain.step(start + SECOND, 1, 0, SECOND), DrainStep::Release { clean: false });
    }

    #[test]
    fn an_unanswered_commit_ends_at_its_own_deadline() {
        let start = Instant::now();
        let mut drain = Drain::new(DrainCause::Revoked, start, SECOND);
        assert_eq!(drain.step(start, 0, 1, SECOND), DrainStep::Commit { clean: true });
        assert_eq!(drain.step(start + 2 * SECOND, 0, 1, SECOND), DrainStep::Release { clean: false });
    }
}
