//! Scanner of due rows: reads the shards of the partitions that this process owns, and acts on rows when they are due.
//!
//! A `DueTable` says what a row leads to, `due_index` which rows are due.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering::Relaxed},
    },
    time::Duration,
};

use futures::{StreamExt as _, stream};
use tidegate_schemas::ids::Millis;
use tidegate_stream::{
    Topic,
    consumer::{inbox::Ownership, ticket::Epoch},
    topics::{Partition, Role},
};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use super::due_index::{DueIndex, DueRow, FollowUp, LATE_MINUTES, minute_of};
use crate::{
    consumer::{backoff::Backoff, error::TaskError},
    health::Health,
    metrics,
    settings::Settings,
};

/// Number of minutes from which on a clock counts as set back. Clocks of hosts differ by seconds.
const SET_BACK_MINUTES: i64 = 2;

/// Time before and after now that a poll between two sweeps reads.
const NEAR: Duration = Duration::from_secs(3);

/// Number of backlog minutes that are read before due rows are acted on again.
const BACKLOG: usize = 64;

/// Number of rows of a shard that are acted on at once.
const AT_ONCE: usize = 16;

/// Pause before a row is tried again that failed for another reason than an outage.
const ERROR_PAUSE: Duration = Duration::from_secs(60);

/// Table whose rows come due, and the action on such a row.
pub(crate) trait DueTable: Send + Sync + 'static {
    type Row: DueRow;

    /// Reads the rows of a shard's minute, all or those that are due in the range.
    fn read_minute(
        &self,
        shard: u32,
        minute: i64,
        due: Option<RangeInclusive<Millis>>,
    ) -> impl Future<Output = Result<Vec<Self::Row>, TaskError>> + Send;

    /// Returns the saved cursor. This is the first call after a shard was taken over.
    fn saved_cursor(&self, shard: u32) -> impl Future<Output = Result<Option<i64>, TaskError>> + Send;

    /// Returns the oldest minute with a row, for a shard without a saved cursor: its rows may be old by now.
    fn oldest_minute(&self, shard: u32) -> impl Future<Output = Result<Option<i64>, TaskError>> + Send;

    fn save_cursor(&self, shard: u32, minute: i64) -> impl Future<Output = Result<(), TaskError>> + Send;

    /// Returns rows, due at `now`, for work that a process which has ended left unfinished. Read once after a takeover.
    fn abandoned_rows(
        &self,
        _shard: u32,
        _now: Millis,
    ) -> impl Future<Output = Result<Vec<Self::Row>, TaskError>> + Send {
        std::future::ready(Ok(Vec::new()))
    }

    fn act(&self, row: &Self::Row, now: Millis) -> impl Future<Output = Result<FollowUp, TaskError>> + Send;
}

/// Scans the shards of the partitions that this process owns, as long as it owns them.
pub(crate) struct DueScanner<T> {
    role: Role,
    topic: Topic,
    table: T,
    poll: Duration,
    sweep: Duration,
    settings: Arc<Settings>,
    health: Health,
    /// Latest minute that the clock is known to have shown.
    latest_minute: AtomicI64,
    /// True once it is logged that the clock is behind that, so that the shards together log it once.
    is_reported: AtomicBool,
}

impl<T: DueTable> DueScanner<T> {
    pub(crate) fn new(
        role: Role,
        topic: Topic,
        table: T,
        poll: Duration,
        sweep: Duration,
        settings: Arc<Settings>,
        health: Health,
    ) -> Self {
        let (latest_minute, is_reported) = (AtomicI64::default(), AtomicBool::default());
        Self { role, topic, table, poll, sweep, settings, health, latest_minute, is_reported }
    }

    /// Runs until `stop`, or until the consumer that owns the partitions has ended.
    pub(crate) async fn run(self, mut ownership: watch::Receiver<Ownership>, stop: CancellationToken) {
        let scanner = Arc::new(self);
        let mut shards: BTreeMap<(Partition, Epoch), CancellationToken> = BTreeMap::new();
        let mut tasks = JoinSet::new();
        loop {
            let owned: BTreeSet<_> = ownership
                .borrow_and_update()
                .partitions
                .iter()
                .filter(|(partition, _)| partition.topic == scanner.topic)
                .copied()
                .collect();
            shards.retain(|shard, shard_stop| {
                let is_owned = owned.contains(shard);
                if !is_owned {
                    shard_stop.cancel();
                }
                is_owned
            });
            for shard in owned {
                shards.entry(shard).or_insert_with(|| {
                    let shard_stop = stop.child_token();
                    tasks.spawn(Arc::clone(&scanner).scan(shard.0.index, shard_stop.clone()));
                    shard_stop
                });
            }
            tokio::select! {
                changed = ownership.changed() => if changed.is_err() { break },
                () = stop.cancelled() => break,
                Some(ended) = tasks.join_next() => {
                    // The task of a shard ends only when it is cancelled or panics.
                    if ended.is_err() {
                        tracing::error!(role = %scanner.role, "a scan of due rows panicked and is started again");
                        shards.values().for_each(CancellationToken::cancel);
                        shards.clear();
                        sleep(ERROR_PAUSE.min(scanner.sweep)).await;
                    }
                }
            }
        }
        shards.values().for_each(CancellationToken::cancel);
        while tasks.join_next().await.is_some() {}
    }

    async fn scan(self: Arc<Self>, shard: u32, stop: CancellationToken) {
        let mut backoff = Backoff::new(&self.settings);
        let mut outage = None;
        let mut index = None;
        let mut sweep_at = Instant::now();
        while !stop.is_cancelled() {
            let pause = match self.pass(shard, &mut index, &mut sweep_at, &stop).await {
                Ok(pause) => {
                    outage = None;
                    backoff = Backoff::new(&self.settings);
                    pause
                }
                Err(error) => {
                    outage.get_or_insert_with(|| self.health.report_outage(self.role, error.tag()));
                    tracing::debug!(role = %self.role, shard, tag = error.tag(), "{error}");
                    backoff.next()
                }
            };
            tokio::select! {
                () = sleep(pause) => {}
                () = stop.cancelled() => {}
            }
        }
        drop(outage);
    }

    /// Reads new rows and acts on those that are due. Returns the pause until the next pass.
    async fn pass(
        &self,
        shard: u32,
        index: &mut Option<DueIndex<T::Row>>,
        sweep_at: &mut Instant,
        stop: &CancellationToken,
    ) -> Result<Duration, TaskError> {
        let index = match index {
            Some(index) => index,
            None => {
                let latest = minute_of(Millis::now()) - LATE_MINUTES;
                let start = match self.table.saved_cursor(shard).await? {
                    Some(saved) => saved,
                    None => {
                        self.table.oldest_minute(shard).await?.map_or(latest, |oldest| oldest.min(latest))
                    }
                };
                let mut new_index = DueIndex::new(start);
                for row in self.table.abandoned_rows(shard, Millis::now()).await? {
                    new_index.insert(row);
                }
                index.insert(new_index)
            }
        };
        let cursor_before = index.cursor();
        let now = Millis::now();
        if let Some(minutes) = self.follow_clock(index, now) {
            tracing::error!(
                role = %self.role,
                minutes,
                "the clock was set back: rows that were due in the time that is to come again wait for it"
            );
        }
        let backlog = index.backlog(now, BACKLOG);
        for minute in &backlog {
            self.read_whole_minute(shard, *minute, index, now).await?;
        }
        if Instant::now() >= *sweep_at {
            for minute in index.recent(now) {
                self.read_whole_minute(shard, minute, index, now).await?;
            }
            *sweep_at = Instant::now() + self.sweep;
        } else {
            // Only what is due about now: reading ten minutes at every poll would cost too much.
            let near = now.minus(NEAR)..=now.plus(NEAR);
            for minute in minute_of(*near.start())..=minute_of(*near.end()) {
                for row in self.table.read_minute(shard, minute, Some(near.clone())).await? {
                    index.insert(row);
                }
            }
        }
        self.act_on_due(index, now, stop).await?;
        let cursor = index.advance();
        if cursor != cursor_before {
            self.table.save_cursor(shard, cursor).await?;
        }
        if backlog.len() == BACKLOG {
            return Ok(Duration::ZERO);
        }
        let now = Millis::now();
        let until_next = index.next_due_at().map(|at| at.0.saturating_sub(now.0).max(0).unsigned_abs());
        Ok(until_next.map_or(self.poll, |next| Duration::from_millis(next).min(self.poll)))
    }

    /// Moves the cursor back with the clock. Returns by how many minutes the clock was set back, unless that is reported
    /// already.
    fn follow_clock(&self, index: &mut DueIndex<T::Row>, now: Millis) -> Option<i64> {
        let latest = index.cursor() + LATE_MINUTES;
        let behind = self.latest_minute.fetch_max(latest, Relaxed).max(latest) - minute_of(now);
        let behind = if behind < SET_BACK_MINUTES { 0 } else { behind };
        metrics::set_clock_set_back(self.role, behind);
        if behind == 0 {
            self.is_reported.store(false, Relaxed);
        }
        let is_set_back = index.rewind(now).is_some_and(|minutes| minutes >= SET_BACK_MINUTES);
        (is_set_back && !self.is_reported.swap(true, Relaxed)).then_some(behind)
    }

    async fn read_whole_minute(
        &self,
        shard: u32,
        minute: i64,
        index: &mut DueIndex<T::Row>,
        now: Millis,
    ) -> Result<(), TaskError> {
        for row in self.table.read_minute(shard, minute, None).await? {
            index.insert(row);
        }
        index.note_read(minute, now);
        Ok(())
    }

    /// Acts on the due rows. A row whose action fails is due again. Returns the first outage.
    async fn act_on_due(
        &self,
        index: &mut DueIndex<T::Row>,
        now: Millis,
        stop: &CancellationToken,
    ) -> Result<(), TaskError> {
        let mut actions = stream::iter(index.take_due(now))
            .map(|row| async move {
                if stop.is_cancelled() {
                    return (row, Ok(FollowUp::DueAgain(now)));
                }
                let result = self.table.act(&row, now).await;
                (row, result)
            })
            .buffer_unordered(AT_ONCE);
        let mut outage = None;
        while let Some((row, result)) = actions.next().await {
            let follow_up = result.unwrap_or_else(|error| {
                if error.is_outage() {
                    outage.get_or_insert(error);
                    return FollowUp::DueAgain(now);
                }
                metrics::due_row_failed(self.role, error.tag());
                tracing::error!(role = %self.role, tag = error.tag(),
                    "a due row cannot be acted on and is tried again: {error}");
                FollowUp::DueAgain(now.plus(ERROR_PAUSE))
            });
            index.finish(row, follow_up);
        }
        outage.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[derive(Clone, Debug)]
    struct Row(Millis);

    impl DueRow for Row {
        type Id = Millis;

        fn id(&self) -> Millis {
            self.0
        }

        fn minute(&self) -> i64 {
            minute_of(self.0)
        }

        fn due_at(&self) -> Millis {
            self.0
        }
    }

    /// Table whose shards nobody has scanned, with one row that is due later.
    struct NeverScanned(Millis);

    impl DueTable for NeverScanned {
        type Row = Row;

        async fn read_minute(
            &self,
            _: u32,
            _: i64,
            _: Option<RangeInclusive<Millis>>,
        ) -> Result<Vec<Row>, TaskError> {
            Ok(Vec::new())
        }

        async fn saved_cursor(&self, _: u32) -> Result<Option<i64>, TaskError> {
            Ok(None)
        }

        async fn oldest_minute(&self, _: u32) -> Result<Option<i64>, TaskError> {
            Ok(Some(minute_of(self.0)))
        }

        async fn save_cursor(&self, _: u32, _: i64) -> Result<(), TaskError> {
            Ok(())
        }

        async fn act(&self, _: &Row, _: Millis) -> Result<FollowUp, TaskError> {
            Ok(FollowUp::Settled)
        }
    }

    fn scanner(oldest: Millis) -> DueScanner<NeverScanned> {
        let (table, pause) = (NeverScanned(oldest), Duration::ZERO);
        let (settings, health) = (Arc::default(), Health::default());
        DueScanner::new(Role("test"), Topic::Decisions, table, pause, pause, settings, health)
    }

    #[test]
    fn clock_that_was_set_back_is_reported_once_by_all_shards() {
        let now = Millis(10_000 * 60_000);
        let scanner = scanner(now);
        let mut shards = [0; 2].map(|_| DueIndex::new(minute_of(now) - LATE_MINUTES));
        for (minutes, reported) in
            [(0, [None; 2]), (60, [Some(60), None]), (30, [None; 2]), (0, [None; 2]), (90, [Some(90), None])]
        {
            let now = Millis(now.0 - minutes * 60_000);
            let reports = shards.each_mut().map(|index| scanner.follow_clock(index, now));
            assert_eq!(reports, reported, "{minutes}");
            for index in &mut shards {
                for minute in index.backlog(now, usize::MAX) {
                    index.note_read(minute, now);
                }
                index.advance();
            }
        }
    }

    #[tokio::test]
    async fn row_that_is_due_later_says_nothing_about_the_clock() {
        let now = Millis::now();
        let scanner = scanner(now.plus(Duration::from_secs(3_600)));
        scanner.pass(0, &mut None, &mut Instant::now(), &CancellationToken::new()).await.unwrap();
        assert!(scanner.latest_minute.load(Relaxed) <= minute_of(Millis::now()));
    }
}
