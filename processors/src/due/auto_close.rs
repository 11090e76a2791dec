//! Schedules the orgs' turns to close old jobs. Turns are computed, not stored: the queue entries determine which jobs
//! are old, so a missed or repeated turn is harmless.
//!
//! An org is assigned to a partition of the topic `decisions` by its id.

use std::{collections::HashSet, ops::RangeInclusive, time::Duration};

use parking_lot::Mutex;
use tidegate_moderation::{self as moderation, review::auto_close};
use tidegate_schemas::ids::{Millis, OrgId};
use tidegate_stream::Topic;

use super::{
    index::{DueRow, FollowUp, MINUTE_MS, minute_of},
    scanner::DueTable,
};
use crate::consumer::error::TaskError;

/// Largest number of jobs closed in one turn. An org with more jobs gets another turn after the other orgs.
const JOBS_PER_TURN: usize = 200;

pub(crate) struct AutoCloseTurns {
    deps: moderation::Deps,
    interval: Duration,
    /// Time of the first turn of this process, its start. Earlier turns belonged to earlier processes.
    first_turn_at: Millis,
    /// Orgs with a running turn. Two concurrent turns would compete for the same jobs.
    running_orgs: Mutex<HashSet<OrgId>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AutoCloseTurn {
    due_at: Millis,
    org: OrgId,
}

impl DueRow for AutoCloseTurn {
    type Id = (Millis, OrgId);

    fn id(&self) -> Self::Id {
        (self.due_at, self.org.clone())
    }

    fn minute(&self) -> i64 {
        minute_of(self.due_at)
    }

    fn due_at(&self) -> Millis {
        self.due_at
    }
}

impl AutoCloseTurns {
    pub(crate) fn new(deps: moderation::Deps, interval: Duration, first_turn_at: Millis) -> Self {
        Self { deps, interval, first_turn_at, running_orgs: Mutex::default() }
    }

    /// Returns the orgs of a shard with a queue that closes old jobs.
    fn auto_closing_orgs(&self, shard: u32) -> Vec<OrgId> {
        let mut orgs = self.deps.live.orgs();
        orgs.retain(|org| {
            let partition = self.deps.log.partition(Topic::Decisions, org.as_str().as_bytes());
            partition.index == shard
                && self.deps.live.org(org).is_some_and(|config| auto_close::queues(&config).next().is_some())
        });
        orgs
    }
}

/// Returns the times of turns in a minute. They are multiples of the interval, so all processes compute the same times.
fn turn_times(minute: i64, interval: Duration) -> impl Iterator<Item = Millis> {
    let interval_ms = i64::try_from(interval.as_millis()).unwrap_or(i64::MAX).max(1);
    let start = minute.saturating_mul(MINUTE_MS);
    let first_multiple = start.div_euclid(interval_ms) + i64::from(start.rem_euclid(interval_ms) != 0);
    let times = (first_multiple..).map(move |multiple| multiple.saturating_mul(interval_ms));
    times.take_while(move |at| *at < start.saturating_add(MINUTE_MS)).map(Millis)
}

impl DueTable for AutoCloseTurns {
    type Row = AutoCloseTurn;

    async fn read_minute(
        &self,
        shard: u32,
        minute: i64,
        due_range: Option<RangeInclusive<Millis>>,
    ) -> Result<Vec<AutoCloseTurn>, TaskError> {
        let is_due =
            |at: &Millis| *at >= self.first_turn_at && due_range.as_ref().is_none_or(|due| due.contains(at));
        let times: Vec<_> = turn_times(minute, self.interval).filter(is_due).collect();
        if times.is_empty() {
            return Ok(Vec::new());
        }
        let orgs = self.auto_closing_orgs(shard).into_iter();
        Ok(orgs
            .flat_map(|org| times.iter().map(move |at| AutoCloseTurn { due_at: *at, org: org.clone() }))
            .collect())
    }

    async fn saved_cursor(&self, _: u32) -> Result<Option<i64>, TaskError> {
        Ok(None)
    }

    async fn oldest_minute(&self, _: u32) -> Result<Option<i64>, TaskError> {
        Ok(None)
    }

    async fn save_cursor(&self, _: u32, _: i64) -> Result<(), TaskError> {
        Ok(())
    }

    async fn act(&self, turn: &AutoCloseTurn, now: Millis) -> Result<FollowUp, TaskError> {
        let Some(config) = self.deps.live.org(&turn.org) else { return Ok(FollowUp::Settled) };
        // The org's previous turn is still closing the same jobs.
        if !self.running_orgs.lock().insert(turn.org.clone()) {
            return Ok(FollowUp::Settled);
        }
        let _running_turn = RunningTurn { turns: self, org: &turn.org };
        let pass = auto_close::close_old(&self.deps.store, &config, JOBS_PER_TURN, now).await?;
        if pass.closed > 0 {
            tracing::info!(org = %turn.org, jobs = pass.closed, "jobs older than `auto_close_after` of their queue were closed");
        }
        // Due again at once, but after the other due orgs.
        Ok(if pass.has_more { FollowUp::DueAgain(now) } else { FollowUp::Settled })
    }
}

/// Running turn of an org. Dropping it removes the org from `running_orgs`, also after an error.
struct RunningTurn<'a> {
    turns: &'a AutoCloseTurns,
    org: &'a OrgId,
}

impl Drop for RunningTurn<'_> {
    fn drop(&mut self) {
        self.turns.running_orgs.lock().remove(self.org);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_multiple_of_the_interval_is_a_turn_of_one_minute() {
        for seconds in [1, 7, 60, 90, 300, 3_600] {
            let times = (0..120).flat_map(|minute| turn_times(minute, Duration::from_secs(seconds)));
            let expected = (0..7_200_000).step_by(usize::try_from(seconds * 1_000).unwrap_or(1)).map(Millis);
            assert!(times.eq(expected), "{seconds}");
        }
    }
}
