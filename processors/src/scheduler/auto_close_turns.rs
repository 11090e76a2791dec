//! Turns of orgs at closing their old jobs. They are computed and not stored: the entries of the queues say which jobs are
//! old, so a turn that is missed or taken twice does no harm.
//!
//! An org belongs to the shard of its id among the partitions of decisions.

use std::{collections::HashSet, ops::RangeInclusive, time::Duration};

use parking_lot::Mutex;
use tidegate_moderation::{self as moderation, review::auto_close};
use tidegate_schemas::ids::{Millis, OrgId};
use tidegate_stream::Topic;

use super::{
    due_index::{DueRow, FollowUp, MINUTE_MS, minute_of},
    due_scanner::DueTable,
};
use crate::consumer::error::TaskError;

/// Number of jobs of a queue that a turn closes before the turns of other orgs.
const JOBS_AT_ONCE: usize = 200;

pub(crate) struct AutoCloseTurns {
    deps: moderation::Deps,
    every: Duration,
    /// Turns before this instant were those of earlier processes.
    since: Millis,
    /// Orgs whose jobs are being closed. Two turns at once would compete for the same jobs.
    under_way: Mutex<HashSet<OrgId>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    at: Millis,
    org: OrgId,
}

impl DueRow for Turn {
    type Id = (Millis, OrgId);

    fn id(&self) -> Self::Id {
        (self.at, self.org.clone())
    }

    fn minute(&self) -> i64 {
        minute_of(self.at)
    }

    fn due_at(&self) -> Millis {
        self.at
    }
}

impl AutoCloseTurns {
    pub(crate) fn new(deps: moderation::Deps, every: Duration, since: Millis) -> Self {
        Self { deps, every, since, under_way: Mutex::default() }
    }

    /// Returns the orgs of a shard that have queues which close their jobs.
    fn orgs(&self, shard: u32) -> Vec<OrgId> {
        let mut orgs = self.deps.live.orgs();
        orgs.retain(|org| {
            let partition = self.deps.log.partition(Topic::Decisions, org.as_str().as_bytes());
            partition.index == shard
                && self.deps.live.org(org).is_some_and(|config| auto_close::queues(&config).next().is_some())
        });
        orgs
    }
}

/// Returns the instants of turns in a minute: multiples of the interval, so that all processes have the same.
fn turns(minute: i64, every: Duration) -> impl Iterator<Item = Millis> {
    let every = i64::try_from(every.as_millis()).unwrap_or(i64::MAX).max(1);
    let start = minute.saturating_mul(MINUTE_MS);
    let first = start.div_euclid(every) + i64::from(start.rem_euclid(every) != 0);
    let instants = (first..).map(move |nth| nth.saturating_mul(every));
    instants.take_while(move |at| *at < start.saturating_add(MINUTE_MS)).map(Millis)
}

impl DueTable for AutoCloseTurns {
    type Row = Turn;

    async fn read_minute(
        &self,
        shard: u32,
        minute: i64,
        due: Option<RangeInclusive<Millis>>,
    ) -> Result<Vec<Turn>, TaskError> {
        let is_due = |at: &Millis| *at >= self.since && due.as_ref().is_none_or(|due| due.contains(at));
        let turns: Vec<_> = turns(minute, self.every).filter(is_due).collect();
        if turns.is_empty() {
            return Ok(Vec::new());
        }
        let orgs = self.orgs(shard).into_iter();
        Ok(orgs.flat_map(|org| turns.iter().map(move |at| Turn { at: *at, org: org.clone() })).collect())
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

    async fn act(&self, turn: &Turn, now: Millis) -> Result<FollowUp, TaskError> {
        let Some(config) = self.deps.live.org(&turn.org) else { return Ok(FollowUp::Settled) };
        if !self.under_way.lock().insert(turn.org.clone()) {
            return Ok(FollowUp::Settled);
        }
        let _done = Done { turns: self, org: &turn.org };
        let pass = auto_close::close_old(&self.deps.store, &config, JOBS_AT_ONCE, now).await?;
        if pass.closed > 0 {
            tracing::info!(org = %turn.org, jobs = pass.closed, "jobs were closed at the longest age of their queue");
        }
        Ok(if pass.has_more { FollowUp::DueAgain(now) } else { FollowUp::Settled })
    }
}

/// Takes an org out of those under way, however its turn ends.
struct Done<'a> {
    turns: &'a AutoCloseTurns,
    org: &'a OrgId,
}

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.turns.under_way.lock().remove(self.org);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_multiple_of_the_interval_is_a_turn_of_one_minute() {
        for seconds in [1, 7, 60, 90, 300, 3_600] {
            let all = (0..120).flat_map(|minute| turns(minute, Duration::from_secs(seconds)));
            let expected = (0..7_200_000).step_by(usize::try_from(seconds * 1_000).unwrap_or(1)).map(Millis);
            assert!(all.eq(expected), "{seconds}");
        }
    }
}
