//! Looks at rows when they are due: a cursor over minutes, what was seen of each, and the loop over owned shards.
//!
//! It does not know what the rows are about: a `DueTable` does. `Agenda` is pure: instants are passed in.
//!
//! Rows lie in partitions of one shard and one minute. A writer's clock may be behind, so a row may appear in a minute
//! that was read before: the last ten minutes are always read again, and the cursor passes a minute only when it was
//! read after those ten and everything in it is settled. What was settled and is seen again costs nothing more.
//!
//! The clock may be set back further than that. Then the cursor goes back too, or what is written now would lie behind
//! it, and rows of the time that is yet to come again wait for it: that is told.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
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

use crate::{
    Health, Settings,
    consumer::backoff::Backoff,
    consumer::error::{Class, Fault},
};

const MINUTE: i64 = 60_000;

/// So many minutes are read again and again: how far behind a writer's clock may be.
pub(crate) const LATE_MINUTES: i64 = 10;

/// Hosts differ by seconds; a clock that is behind by more was set back.
const SET_BACK_MINUTES: i64 = 2;

/// A poll between two sweeps reads so far back and ahead.
const NEAR: Duration = Duration::from_secs(3);

/// Minutes of a backlog that are read before what is due is looked at again.
const BACKLOG: usize = 64;

/// Rows of a shard that are acted on at once.
const AT_ONCE: usize = 16;

/// A row that cannot be acted on is looked at again after this time.
const DEFECT_PAUSE: Duration = Duration::from_secs(60);

pub(crate) fn minute_of(at: Millis) -> i64 {
    at.0.div_euclid(MINUTE)
}

pub(crate) trait DueRow: Clone + Debug + Send + Sync + 'static {
    type Id: Clone + Debug + Ord + Send + Sync;

    fn id(&self) -> Self::Id;
    /// The minute of its partition.
    fn minute(&self) -> i64;
    fn due_at(&self) -> Millis;
}

/// What is left to do for a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing, now or later.
    Settled,
    Again(Millis),
}

/// What is known of the rows of one shard.
#[derive(Debug)]
pub(crate) struct Agenda<R: DueRow> {
    /// The oldest minute that may hold rows which are not settled.
    cursor: i64,
    minutes: BTreeMap<i64, BTreeMap<R::Id, State<R>>>,
    waiting: BTreeSet<(Millis, i64, R::Id)>,
    /// Minutes from the cursor on that were read when no row could appear in them any more.
    closed: BTreeSet<i64>,
}

#[derive(Debug)]
enum State<R> {
    Waiting(R),
    UnderWay,
    Settled,
}

impl<R: DueRow> Agenda<R> {
    pub(crate) fn new(cursor: i64) -> Self {
        Self { cursor, minutes: BTreeMap::new(), waiting: BTreeSet::new(), closed: BTreeSet::new() }
    }

    /// Goes back with the clock. How many minutes, if rows are written behind the cursor.
    pub(crate) fn rewind(&mut self, now: Millis) -> Option<i64> {
        let latest = minute_of(now) - LATE_MINUTES;
        let behind = self.cursor - latest;
        if behind <= 0 {
            return None;
        }
        self.cursor = latest;
        self.closed.clear();
        Some(behind)
    }

    /// The minutes in which rows may still appear.
    pub(crate) fn recent(&self, now: Millis) -> RangeInclusive<i64> {
        let now = minute_of(now);
        self.cursor.max(now - LATE_MINUTES)..=now + 1
    }

    /// The oldest minutes before those that were not read to their end, `limit` at most.
    pub(crate) fn backlog(&self, now: Millis, limit: usize) -> Vec<i64> {
        let recent = *self.recent(now).start();
        (self.cursor..recent).filter(|minute| !self.closed.contains(minute)).take(limit).collect()
    }

    /// A row was read. One that is known changes nothing.
    pub(crate) fn see(&mut self, row: R) {
        let (minute, id, at) = (row.minute(), row.id(), row.due_at());
        let rows = self.minutes.entry(minute).or_default();
        if !rows.contains_key(&id) {
            rows.insert(id.clone(), State::Waiting(row));
            self.waiting.insert((at, minute, id));
        }
    }

    /// The whole minute was read, by a reading that began at `began`.
    pub(crate) fn read(&mut self, minute: i64, began: Millis) {
        if minute >= self.cursor && minute < minute_of(began) - LATE_MINUTES {
            self.closed.insert(minute);
        }
    }

    /// The rows to act on now. Each comes back through `acted`.
    pub(crate) fn due(&mut self, now: Millis) -> Vec<R> {
        let mut due = Vec::new();
        while let Some((at, minute, id)) = self.waiting.pop_first() {
            if at > now {
                self.waiting.insert((at, minute, id));
                break;
            }
            let Some(state) = self.minutes.get_mut(&minute).and_then(|rows| rows.get_mut(&id)) else {
                continue;
            };
            if let State::Waiting(row) = std::mem::replace(state, State::UnderWay) {
                due.push(row);
            }
        }
        due
    }

    pub(crate) fn acted(&mut self, row: R, next: Next) {
        let (minute, id) = (row.minute(), row.id());
        let Some(state) = self.minutes.get_mut(&minute).and_then(|rows| rows.get_mut(&id)) else { return };
        *state = match next {
            Next::Settled => State::Settled,
            Next::Again(at) => {
                self.waiting.insert((at, minute, id));
                State::Waiting(row)
            }
        };
    }

    /// When something is due next, of what is known.
    pub(crate) fn next_at(&self) -> Option<Millis> {
        self.waiting.first().map(|(at, ..)| *at)
    }

    /// Passes what is settled, and says where the cursor stands.
    pub(crate) fn advance(&mut self) -> i64 {
        while self.closed.contains(&self.cursor) && self.is_settled(self.cursor) {
            self.closed.remove(&self.cursor);
            self.minutes.remove(&self.cursor);
            self.cursor += 1;
        }
        self.cursor
    }

    fn is_settled(&self, minute: i64) -> bool {
        self.minutes
            .get(&minute)
            .is_none_or(|rows| rows.values().all(|state| matches!(state, State::Settled)))
    }
}

/// The rows of a table that come due, and what to do then.
pub(crate) trait DueTable: Send + Sync + 'static {
    type Row: DueRow;

    /// The rows of a shard's minute, all or those that are due in the range.
    fn read(
        &self,
        shard: u32,
        minute: i64,
        due: Option<RangeInclusive<Millis>>,
    ) -> impl Future<Output = Result<Vec<Self::Row>, Fault>> + Send;

    /// The minute that the cursor was saved at. Asked first, when a shard was taken over.
    fn saved(&self, shard: u32) -> impl Future<Output = Result<Option<i64>, Fault>> + Send;

    /// The oldest minute with a row. Nobody may have scanned the shard yet, and what was written meanwhile be old.
    fn oldest(&self, shard: u32) -> impl Future<Output = Result<Option<i64>, Fault>> + Send;

    fn save(&self, shard: u32, minute: i64) -> impl Future<Output = Result<(), Fault>> + Send;

    fn act(&self, row: &Self::Row, now: Millis) -> impl Future<Output = Result<Next, Fault>> + Send;
}

/// Scans the shards of the partitions that this process owns, as long as it owns them.
pub(crate) struct Scanner<T> {
    pub(crate) role: Role,
    pub(crate) topic: Topic,
    pub(crate) table: T,
    pub(crate) poll: Duration,
    pub(crate) sweep: Duration,
    pub(crate) settings: Arc<Settings>,
    pub(crate) health: Health,
    /// The latest minute that the clock is known to have shown.
    pub(crate) latest: AtomicI64,
    /// Whether it was told that the clock is behind that: once, whichever shards see it.
    pub(crate) is_told: AtomicBool,
}

impl<T: DueTable> Scanner<T> {
    /// Runs until the consumer that owns the partitions has ended.
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
            shards.retain(|shard, own| {
                let is_owned = owned.contains(shard);
                if !is_owned {
                    own.cancel();
                }
                is_owned
            });
            for shard in owned {
                shards.entry(shard).or_insert_with(|| {
                    let own = stop.child_token();
                    tasks.spawn(Arc::clone(&scanner).scan(shard.0.index, own.clone()));
                    own
                });
            }
            tokio::select! {
                changed = ownership.changed() => if changed.is_err() { break },
                () = stop.cancelled() => break,
                Some(ended) = tasks.join_next() => {
                    // A shard's task ends when it is told to, unless it panicked: then it starts anew.
                    if ended.is_err() {
                        tracing::error!(role = %scanner.role, "a scan of due rows panicked and begins anew");
                        shards.values().for_each(CancellationToken::cancel);
                        shards.clear();
                        sleep(DEFECT_PAUSE.min(scanner.sweep)).await;
                    }
                }
            }
        }
        shards.values().for_each(CancellationToken::cancel);
        while tasks.join_next().await.is_some() {}
    }

    async fn scan(self: Arc<Self>, shard: u32, stop: CancellationToken) {
        let mut backoff = Backoff::new(&self.settings);
        let mut waits = None;
        let mut agenda = None;
        let mut sweep_at = Instant::now();
        while !stop.is_cancelled() {
            let pause = match self.pass(shard, &mut agenda, &mut sweep_at, &stop).await {
                Ok(pause) => {
                    waits = None;
                    backoff = Backoff::new(&self.settings);
                    pause
                }
                Err(fault) => {
                    waits.get_or_insert_with(|| self.health.complain(self.role, fault.tag()));
                    tracing::debug!(role = %self.role, shard, tag = fault.tag(), "{fault}");
                    backoff.next()
                }
            };
            tokio::select! {
                () = sleep(pause) => {}
                () = stop.cancelled() => {}
            }
        }
        drop(waits);
    }

    /// Reads what is to be read now, acts on what is due, and says how long nothing else is.
    async fn pass(
        &self,
        shard: u32,
        agenda: &mut Option<Agenda<T::Row>>,
        sweep_at: &mut Instant,
        stop: &CancellationToken,
    ) -> Result<Duration, Fault> {
        let agenda = match agenda {
            Some(agenda) => agenda,
            None => {
                let latest = minute_of(Millis::now()) - LATE_MINUTES;
                let start = match self.table.saved(shard).await? {
                    Some(saved) => saved,
                    None => self.table.oldest(shard).await?.map_or(latest, |oldest| oldest.min(latest)),
                };
                agenda.insert(Agenda::new(start))
            }
        };
        let before = agenda.cursor;
        let now = Millis::now();
        if let Some(minutes) = self.follow_clock(agenda, now) {
            tracing::error!(
                role = %self.role,
                minutes,
                "the clock was set back: what came due in the time that is to come again waits for it"
            );
        }
        let backlog = agenda.backlog(now, BACKLOG);
        for minute in &backlog {
            self.read_minute(shard, *minute, agenda, now).await?;
        }
        if Instant::now() >= *sweep_at {
            for minute in agenda.recent(now) {
                self.read_minute(shard, minute, agenda, now).await?;
            }
            *sweep_at = Instant::now() + self.sweep;
        } else {
            let near = now.minus(NEAR)..=now.plus(NEAR);
            for minute in minute_of(*near.start())..=minute_of(*near.end()) {
                for row in self.table.read(shard, minute, Some(near.clone())).await? {
                    agenda.see(row);
                }
            }
        }
        self.act(agenda, now, stop).await?;
        let cursor = agenda.advance();
        if cursor != before {
            self.table.save(shard, cursor).await?;
        }
        if backlog.len() == BACKLOG {
            return Ok(Duration::ZERO);
        }
        let now = Millis::now();
        let until_next = agenda.next_at().map(|at| at.0.saturating_sub(now.0).max(0).unsigned_abs());
        Ok(until_next.map_or(self.poll, |next| Duration::from_millis(next).min(self.poll)))
    }

    /// How many minutes the clock was set back, where that is seen for the first time.
    fn follow_clock(&self, agenda: &mut Agenda<T::Row>, now: Millis) -> Option<i64> {
        let latest = agenda.cursor + LATE_MINUTES;
        let behind = self.latest.fetch_max(latest, Relaxed).max(latest) - minute_of(now);
        let behind = if behind < SET_BACK_MINUTES { 0 } else { behind };
        metrics::gauge!("tidegate_clock_set_back_minutes", "role" => self.role.0).set(behind as f64);
        if behind == 0 {
            self.is_told.store(false, Relaxed);
        }
        let is_set_back = agenda.rewind(now).is_some_and(|minutes| minutes >= SET_BACK_MINUTES);
        (is_set_back && !self.is_told.swap(true, Relaxed)).then_some(behind)
    }

    async fn read_minute(
        &self,
        shard: u32,
        minute: i64,
        agenda: &mut Agenda<T::Row>,
        now: Millis,
    ) -> Result<(), Fault> {
        for row in self.table.read(shard, minute, None).await? {
            agenda.see(row);
        }
        agenda.read(minute, now);
        Ok(())
    }

    /// Acts on what is due. Whatever fails comes due again; the first outage is told.
    async fn act(
        &self,
        agenda: &mut Agenda<T::Row>,
        now: Millis,
        stop: &CancellationToken,
    ) -> Result<(), Fault> {
        let mut acts = stream::iter(agenda.due(now))
            .map(|row| async move {
                if stop.is_cancelled() {
                    return (row, Ok(Next::Again(now)));
                }
                let next = self.table.act(&row, now).await;
                (row, next)
            })
            .buffer_unordered(AT_ONCE);
        let mut outage = None;
        while let Some((row, next)) = acts.next().await {
            let next = next.unwrap_or_else(|fault| {
                if fault.class() == Class::Outage {
                    outage.get_or_insert(fault);
                    return Next::Again(now);
                }
                metrics::counter!("tidegate_due_faults_total", "role" => self.role.0, "tag" => fault.tag())
                    .increment(1);
                tracing::error!(role = %self.role, tag = fault.tag(), "a due row waits for its fault to be mended: {fault}");
                Next::Again(now.plus(DEFECT_PAUSE))
            });
            agenda.acted(row, next);
        }
        outage.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests;
