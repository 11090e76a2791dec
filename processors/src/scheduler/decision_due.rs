//! Due rows of decisions: a decision is released when its time to undo is over.

use std::{ops::RangeInclusive, time::Duration};

use tidegate_moderation::{
    self as moderation,
    review::decisions::{self, Release},
};
use tidegate_schemas::ids::{JobId, Millis, OrgId};
use tidegate_store::{
    At, Split, WriteTime,
    tables::review::decisions::{DecisionCursor, DecisionDue},
};

use super::{
    due_index::{DueRow, FollowUp},
    due_scanner::DueTable,
};
use crate::consumer::error::TaskError;

pub(crate) struct DueDecisions {
    pub(crate) deps: moderation::Deps,
    /// Time after which a released decision that is not in the log is appended again.
    pub(crate) lease: Duration,
}

impl DueDecisions {
    async fn cursor(&self, shard: i64) -> Result<Option<DecisionCursor>, TaskError> {
        Ok(self.deps.store.get(&(shard,)).await?)
    }
}

impl DueRow for DecisionDue {
    type Id = (Millis, OrgId, JobId);

    fn id(&self) -> Self::Id {
        (self.due_at, self.org.clone(), self.job_id)
    }

    fn minute(&self) -> i64 {
        self.minute
    }

    fn due_at(&self) -> Millis {
        self.due_at
    }
}

impl DueTable for DueDecisions {
    type Row = DecisionDue;

    async fn read_minute(
        &self,
        shard: u32,
        minute: i64,
        due: Option<RangeInclusive<Millis>>,
    ) -> Result<Vec<DecisionDue>, TaskError> {
        let partition = (i64::from(shard), minute);
        let range = due.map_or_else(At::all, |due| At::range((), due));
        Ok(self.deps.store.scan::<DecisionDue>(&partition, range).all().await?)
    }

    async fn saved_cursor(&self, shard: u32) -> Result<Option<i64>, TaskError> {
        Ok(self.cursor(i64::from(shard)).await?.map(|cursor| cursor.minute))
    }

    async fn oldest_minute(&self, shard: u32) -> Result<Option<i64>, TaskError> {
        let shard = i64::from(shard);
        let mut oldest = None;
        let mut rows = self.deps.store.scan_all::<DecisionDue>(&Split::whole());
        while let Some(rows) = rows.next_page().await? {
            let own = rows.iter().filter(|row| row.shard == shard).map(|row| row.minute);
            oldest = own.chain(oldest).min();
        }
        Ok(oldest)
    }

    async fn save_cursor(&self, shard: u32, minute: i64) -> Result<(), TaskError> {
        let shard = i64::from(shard);
        let last = self.cursor(shard).await?.and_then(|cursor| cursor.written).map(WriteTime);
        let at = WriteTime::after(last, Millis::now());
        let row = DecisionCursor { shard, minute, written: Some(at.0) };
        Ok(self.deps.store.put(at, &[row]).await?)
    }

    async fn act(&self, row: &DecisionDue, now: Millis) -> Result<FollowUp, TaskError> {
        Ok(match decisions::release(&self.deps, row, self.lease, now).await? {
            Release::Settled => FollowUp::Settled,
            Release::Again(at) => FollowUp::DueAgain(at),
        })
    }
}
