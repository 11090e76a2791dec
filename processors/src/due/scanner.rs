//! Scanner of due rows: reads the shards of this process's partitions and acts on due rows.
//!
//! A `DueTable` defines the action on a row; `index` selects the due rows.

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

use super::index::{DueIndex, DueRow, FollowUp, LATE_MINUTES, minute_of};
use crate::{
    consumer::{backoff::Backoff, error::TaskError},
    health::Health,
    metrics,
    settings::Settings,
};

/// Smallest difference that counts as a clock set back. Clocks of different hosts differ by seconds.
const MIN_SET_BACK_MINUTES: i64 = 2;

/// Time before and after the current time that a poll between two sweeps reads.
const POLL_RANGE: Duration = Duration::from_secs(3);

/// Number of backlog minutes read in one pass. Due rows are acted on between two passes.
const BACKLOG_BATCH_MINUTES: usize = 64;

/// Number of concurrent actions on the rows of a shard.
const CONCURRENT_ACTIONS: usize = 16;

/// Pause before the retry of a row that failed for another reason than an outage.
const ERROR_PAUSE: Duration = Duration::from_secs(60);

/// Table of due rows, and the action on a due row.
pub(crate) trait DueTable: Send + Sync + 'static {
    type Row: DueRow;

    /// Reads the rows of one minute of a shard, all or those due in the range.
    fn read_minute(
        &self,
        shard: u32,
        minute: i64,
        due_range: Option<RangeInclusive<Millis>>,
    ) -> impl Future<Output = Result<Vec<Self::Row>, TaskError>> + Send;

    /// Returns the saved cursor. First call after the takeover of a shard.
    fn saved_cursor(&self, shard: u32) -> impl Future<Output = Result<Option<i64>, TaskError>> + Send;

    /// Returns the oldest minute with a row. Used for a shard without a saved cursor, because its rows may be old.
    fn oldest_minute(&self, shard: u32) -> impl Future<Output = Result<Option<i64>, TaskError>> + Send;

    fn save_cursor(&self, shard: u32, minute: i64) -> impl Future<Output = Result<(), TaskError>> + Send;

    /// Returns rows, due at `now`, for unfinished work of an ended process. Called once after a takeover.
    fn abandoned_rows(
        &self,
        _shard: u32,
        _now: Millis,
    ) -> impl Future<Output = Result<Vec<Self::Row>, TaskError>> + Send {
        std::future::ready(Ok(Vec::new()))
    }

    fn act(&self, row: &Self::Row, now: Millis) -> impl Future<Output = Result<FollowUp, TaskError>> + Send;
}

/// Scans the shards of this process's partitions while it owns them.
pub(crate) struct DueScanner<T> {
    role: Role,
    topic: Topic,
    table: T,
    poll_interval: Duration,
    sweep_interval: Duration,
    settings: Arc<Settings>,
    health: Health,
    /// Latest minute that the clock has shown.
    latest_minute: AtomicI64,
    /// True after a clock set back was logged. Shared by the shards, so they log it once.
    is_set_back_reported: AtomicBool,
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
        Self {
            role,
            topic,
            table,
            poll_interval: poll,
            sweep_interval: sweep,
            settings,
            health,
            latest_minute: AtomicI64::default(),
            is_set_back_reported: AtomicBool::default(),
        }
    }

    /// Runs until `stop`, or until the owning consumer has ended.
    pub(crate) async fn run(self, mut ownership: watch::Receiver<Ownership>, stop: CancellationToken) {
        let scanner = Arc::new(self);
        // Keyed with the epoch: a shard that was lost and regained starts with a new index.
        let mut shards: BTreeMap<(Partition, Epoch), CancellationToken> = BTreeMap::new();
        let mut tasks = JoinSet::new();
        loop {
            let owned_shards: BTreeSet<_> = ownership
                .borrow_and_update()
                .partitions
                .iter()
                .filter(|(partition, _)| partition.topic == scanner.topic)
                .copied()
                .collect();
            shards.retain(|shard, shard_stop| {
                let is_owned = owned_shards.contains(shard);
                if !is_owned {
                    shard_stop.cancel();
                }
                is_owned
            });
            for shard in owned_shards {
                shards.entry(shard).or_insert_with(|| {
                    let shard_stop = stop.child_token();
                    tasks.spawn(Arc::clone(&scanner).scan(shard.0.index, shard_stop.clone()));
                    shard_stop
                });
            }
            tokio::select! {
                // The consumer drops the sender when it ends.
                change = ownership.changed() => if change.is_err() { break },
                () = stop.cancelled() => break,
                Some(exit) = tasks.join_next() => {
                    // The task of a shard ends only when it is cancelled or panics.
                    if exit.is_err() {
                        tracing::error!(role = %scanner.role, "a scan of due rows panicked and is restarted");
                        // The error does not name the shard, so all of them start again with a new index.
                        shards.values().for_each(CancellationToken::cancel);
                        shards.clear();
                        // A panic that repeats at once must not occupy a core.
                        sleep(ERROR_PAUSE.min(scanner.sweep_interval)).await;
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
            let pause = match self.run_pass(shard, &mut index, &mut sweep_at, &stop).await {
                Ok(pause) => {
                    outage = None;
                    backoff = Backoff::new(&self.settings);
                    pause
                }
                Err(error) => {
                    // Kept over all failed passes: it is one outage until a pass succeeds.
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

    /// Reads new rows and acts on the due ones. Returns the pause until the next pass.
    async fn run_pass(
        &self,
        shard: u32,
        index: &mut Option<DueIndex<T::Row>>,
        sweep_at: &mut Instant,
        stop: &CancellationToken,
    ) -> Result<Duration, TaskError> {
        let index = match index {
            Some(index) => index,
            None => {
                // A new row can be at most as old as the largest clock difference, so an empty shard starts there.
                let latest_cursor = minute_of(Millis::now()) - LATE_MINUTES;
                let start = match self.table.saved_cursor(shard).await? {
                    Some(cursor) => cursor,
                    None => self
                        .table
                        .oldest_minute(shard)
                        .await?
                        .map_or(latest_cursor, |oldest| oldest.min(latest_cursor)),
                };
                let mut new_index = DueIndex::new(start);
                for row in self.table.abandoned_rows(shard, Millis::now()).await? {
                    new_index.insert(row);
                }
                index.insert(new_index)
            }
        };
        let previous_cursor = index.cursor();
        let now = Millis::now();
        if let Some(minutes) = self.follow_clock(index, now) {
            tracing::error!(
                role = %self.role,
                minutes,
                "the clock was set back: rows written under the later time are acted on when the clock reaches it again"
            );
        }
        let backlog_minutes = index.backlog_minutes(now, BACKLOG_BATCH_MINUTES);
        for minute in &backlog_minutes {
            self.index_minute(shard, *minute, index, now).await?;
        }
        if Instant::now() >= *sweep_at {
            for minute in index.recent_minutes(now) {
                self.index_minute(shard, minute, index, now).await?;
            }
            *sweep_at = Instant::now() + self.sweep_interval;
        } else {
            // A poll reads only the seconds around now, because ten minutes at every poll would be too expensive.
            let range = now.minus(POLL_RANGE)..=now.plus(POLL_RANGE);
            for minute in minute_of(*range.start())..=minute_of(*range.end()) {
                for row in self.table.read_minute(shard, minute, Some(range.clone())).await? {
                    index.insert(row);
                }
            }
        }
        self.act_on_due(index, now, stop).await?;
        // Saved after the actions: after a crash the rows of unfinished minutes are read again.
        let cursor = index.advance();
        if cursor != previous_cursor {
            self.table.save_cursor(shard, cursor).await?;
        }
        // A full batch means that more backlog may remain, so the next pass starts at once.
        if backlog_minutes.len() == BACKLOG_BATCH_MINUTES {
            return Ok(Duration::ZERO);
        }
        let now = Millis::now();
        let next_due_ms = index.next_due_at().map(|at| at.0.saturating_sub(now.0).max(0).unsigned_abs());
        Ok(next_due_ms
            .map_or(self.poll_interval, |millis| Duration::from_millis(millis).min(self.poll_interval)))
    }

    /// Moves the cursor back with the clock. Returns the minutes by which the clock was set back, unless already reported.
    fn follow_clock(&self, index: &mut DueIndex<T::Row>, now: Millis) -> Option<i64> {
        let latest_minute = index.cursor() + LATE_MINUTES;
        // `fetch_max` returns the former value, which is lower if this shard has the latest minute.
        let minutes_behind =
            self.latest_minute.fetch_max(latest_minute, Relaxed).max(latest_minute) - minute_of(now);
        let minutes_set_back = if minutes_behind < MIN_SET_BACK_MINUTES { 0 } else { minutes_behind };
        metrics::set_clock_set_back(self.role, minutes_set_back);
        if minutes_set_back == 0 {
            self.is_set_back_reported.store(false, Relaxed);
        }
        let is_set_back = index.rewind(now).is_some_and(|minutes| minutes >= MIN_SET_BACK_MINUTES);
        (is_set_back && !self.is_set_back_reported.swap(true, Relaxed)).then_some(minutes_set_back)
    }

    async fn index_minute(
        &self,
        shard: u32,
        minute: i64,
        index: &mut DueIndex<T::Row>,
        now: Millis,
    ) -> Result<(), TaskError> {
        for row in self.table.read_minute(shard, minute, None).await? {
            index.insert(row);
        }
        index.record_read(minute, now);
        Ok(())
    }

    /// Acts on the due rows. A failed row is due again. Returns the first outage.
    async fn act_on_due(
        &self,
        index: &mut DueIndex<T::Row>,
        now: Millis,
        stop: &CancellationToken,
    ) -> Result<(), TaskError> {
        let mut actions = stream::iter(index.take_due(now))
            .map(|row| async move {
                if stop.is_cancelled() {
                    // Left for the next owner of the shard.
                    return (row, Ok(FollowUp::DueAgain(now)));
                }
                let result = self.table.act(&row, now).await;
                (row, result)
            })
            .buffer_unordered(CONCURRENT_ACTIONS);
        let mut outage = None;
        while let Some((row, result)) = actions.next().await {
            let follow_up = result.unwrap_or_else(|error| {
                if error.is_outage() {
                    outage.get_or_insert(error);
                    return FollowUp::DueAgain(now);
                }
                metrics::record_due_row_failure(self.role, error.tag());
                tracing::error!(role = %self.role, tag = error.tag(),
                    "the action on a due row failed and is retried: {error}");
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

    /// Table without saved cursors, with one row that is due later.
    struct UnscannedTable(Millis);

    impl DueTable for UnscannedTable {
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

    fn scanner(oldest: Millis) -> DueScanner<UnscannedTable> {
        let (table, pause) = (UnscannedTable(oldest), Duration::ZERO);
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
                for minute in index.backlog_minutes(now, usize::MAX) {
                    index.record_read(minute, now);
                }
                index.advance();
            }
        }
    }

    #[tokio::test]
    async fn later_row_does_not_change_the_latest_minute() {
        let now = Millis::now();
        let scanner = scanner(now.plus(Duration::from_secs(3_600)));
        scanner.run_pass(0, &mut None, &mut Instant::now(), &CancellationToken::new()).await.unwrap();
        assert!(scanner.latest_minute.load(Relaxed) <= minute_of(Millis::now()));
    }
}
