//! Decides when partitions may be released, for revocations and shutdowns alike.
//!
//! Pure: the driver passes the time and the work in flight, and performs the steps.

use std::time::{Duration, Instant};

/// Reason for a release of partitions.
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

/// Next step of a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DrainStep {
    /// Work or a commit is in flight and may take this long.
    Wait(Duration),
    /// Commit the completed records. `clean`: no work is left in flight.
    Commit { clean: bool },
    /// Release the partitions: the commit is answered, or its time is over.
    Release { clean: bool },
}

/// A drain in progress.
#[derive(Debug)]
pub(crate) struct Drain {
    pub(crate) cause: DrainCause,
    started_at: Instant,
    deadline: Instant,
    /// Deadline of the commit, separate from that of the work: late work must not prevent the commit of completed records.
    commit_deadline: Option<Instant>,
    clean: bool,
}

impl Drain {
    pub(crate) fn new(cause: DrainCause, now: Instant, timeout: Duration) -> Self {
        Self { cause, started_at: now, deadline: now + timeout, commit_deadline: None, clean: false }
    }

    /// Returns the next step. `in_flight`: number of records in work. `uncommitted`: number of partitions with completed
    /// records that no acknowledged commit has passed.
    pub(crate) fn step(
        &mut self,
        now: Instant,
        in_flight: usize,
        uncommitted: usize,
        commit_timeout: Duration,
    ) -> DrainStep {
        let Some(commit_deadline) = self.commit_deadline else {
            // Work in flight may still complete and belongs into the commit.
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
        // Without an acknowledgement the next owner repeats completed records.
        DrainStep::Release { clean: self.clean && uncommitted == 0 }
    }

    pub(crate) fn elapsed(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.started_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn drain_waits_for_work_then_commits_then_releases() {
        let start = Instant::now();
        let mut drain = Drain::new(DrainCause::Revoked, start, 3 * SECOND);
        assert_eq!(drain.step(start + SECOND, 2, 1, SECOND), DrainStep::Wait(2 * SECOND));
        assert_eq!(drain.step(start + SECOND, 0, 1, SECOND), DrainStep::Commit { clean: true });
        assert_eq!(drain.step(start + SECOND, 0, 1, SECOND), DrainStep::Wait(SECOND));
        assert_eq!(drain.step(start + SECOND, 0, 0, SECOND), DrainStep::Release { clean: true });
        assert_eq!(drain.elapsed(start + SECOND), SECOND);
    }

    #[test]
    fn work_past_the_deadline_is_left_and_the_rest_committed() {
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
