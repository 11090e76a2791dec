//! Releases decisions whose time to undo is over: the due rows of the partitions of `decisions` that are owned here.
//!
//! What a release is, `tidegate_moderation::review::decisions` knows; when to look, `due_scan`.

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

use crate::{
    consumer::error::Fault,
    scheduler::due_scanner::{DueRow, DueTable, Next},
};

pub(crate) struct DueDecisions {
    pub(crate) deps: moderation::Deps,
    /// How long a decision that was released may be under way into the log.
    pub(crate) lease: Duration,
}

impl DueDecisions {
    async fn cursor(&self, shard: i64) -> Result<Option<DecisionCursor>, Fault> {
        Ok(self.deps.store.get(&(shard,)).await.map_err(moderation::Error::from)?)
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

    async fn read(
        &self,
        shard: u32,
        minute: i64,
        due: Option<RangeInclusive<Millis>>,
    ) -> Result<Vec<DecisionDue>, Fault> {
        let partition = (i64::from(shard), minute);
        let range = due.map_or_else(At::all, |due| At::range((), due));
        let rows = self.deps.store.scan::<DecisionDue>(&partition, range).all().await;
        Ok(rows.map_err(moderation::Error::from)?)
    }

    async fn saved(&self, shard: u32) -> Result<Option<i64>, Fault> {
        Ok(self.cursor(i64::from(shard)).await?.map(|cursor| cursor.minute))
    }

    async fn oldest(&self, shard: u32) -> Result<Option<i64>, Fault> {
        let shard = i64::from(shard);
        let mut oldest = None;
        let mut rows = self.deps.store.scan_all::<DecisionDue>(&Split::whole());
        while let Some(rows) = rows.next_page().await.map_err(moderation::Error::from)? {
            let own = rows.iter().filter(|row| row.shard == shard).map(|row| row.minute);
            oldest = own.chain(oldest).min();
        }
        Ok(oldest)
    }

    async fn save(&self, shard: u32, minute: i64) -> Result<(), Fault> {
        let shard = i64::from(shard);
        let last = self.cursor(shard).await?.and_then(|cursor| cursor.written).map(WriteTime);
        let at = WriteTime::after(last, Millis::now());
        let row = DecisionCursor { shard, minute, written: Some(at.0) };
        Ok(self.deps.store.put(at, &[row]).await.map_err(moderation::Error::from)?)
    }

    async fn act(&self, row: &DecisionDue, now: Millis) -> Result<Next, Fault> {
        Ok(match decisions::release(&self.deps, row, self.lease, now).await? {
            Release::Settled => Next::Settled,
            Release::Again(at) => Next::Again(at),
        })
    }
}
