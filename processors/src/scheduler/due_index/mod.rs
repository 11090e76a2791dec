//! Index of the due rows of one shard: a cursor over minutes, and the state of each row that was read.
//!
//! Pure: `due_scanner` reads the rows, acts on them and passes the time in.
//!
//! Rows are stored in partitions of one shard and one minute. A writer's clock may be behind, so a row may appear in a
//! minute that was read before. Therefore the last ten minutes are read again and again, and the cursor passes a minute
//! only when the minute was read after those ten and all its rows are settled. Settled rows stay in the index until then,
//! so reading one again costs nothing more.
//!
//! If the clock is set back by more than that, the cursor goes back too, since rows that are written now would be behind
//! it. Rows that were written in the time that comes again wait until then. The scanner reports it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    ops::RangeInclusive,
};

use tidegate_schemas::ids::Millis;

pub(crate) const MINUTE_MS: i64 = 60_000;

/// Number of past minutes that are read again: the bound on how far a writer's clock may be behind.
pub(crate) const LATE_MINUTES: i64 = 10;

pub(crate) fn minute_of(at: Millis) -> i64 {
    at.0.div_euclid(MINUTE_MS)
}

pub(crate) trait DueRow: Clone + Debug + Send + Sync + 'static {
    type Id: Clone + Debug + Ord + Send + Sync;

    fn id(&self) -> Self::Id;
    /// Returns the minute of the row's partition.
    fn minute(&self) -> i64;
    fn due_at(&self) -> Millis;
}

/// Further need of a row for action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FollowUp {
    Settled,
    DueAgain(Millis),
}

#[derive(Debug)]
pub(crate) struct DueIndex<R: DueRow> {
    /// Oldest minute that may have unsettled rows.
    cursor: i64,
    minutes: BTreeMap<i64, BTreeMap<R::Id, RowState<R>>>,
    waiting: BTreeSet<(Millis, i64, R::Id)>,
    /// Minutes from the cursor on that were read when no row could appear in them any more.
    closed: BTreeSet<i64>,
}

#[derive(Debug)]
enum RowState<R> {
    Waiting(R),
    InProgress,
    Settled,
}

impl<R: DueRow> DueIndex<R> {
    pub(crate) fn new(cursor: i64) -> Self {
        Self { cursor, minutes: BTreeMap::new(), waiting: BTreeSet::new(), closed: BTreeSet::new() }
    }

    pub(crate) const fn cursor(&self) -> i64 {
        self.cursor
    }

    /// Moves the cursor back if rows that are written at `now` would be behind it. Returns by how many minutes.
    pub(crate) fn rewind(&mut self, now: Millis) -> Option<i64> {
        let latest = minute_of(now) - LATE_MINUTES;
        // Rows can appear in these minutes again, also when the cursor waits for an unsettled row before them.
        self.closed.split_off(&latest);
        let behind = self.cursor - latest;
        if behind <= 0 {
            return None;
        }
        self.cursor = latest;
        Some(behind)
    }

    /// Returns the minutes in which rows may still appear.
    pub(crate) fn recent(&self, now: Millis) -> RangeInclusive<i64> {
        let now = minute_of(now);
        self.cursor.max(now - LATE_MINUTES)..=now + 1
    }

    /// Returns the oldest minutes before the recent ones that are not closed, at most `limit`.
    pub(crate) fn backlog(&self, now: Millis, limit: usize) -> Vec<i64> {
        let recent = *self.recent(now).start();
        (self.cursor..recent).filter(|minute| !self.closed.contains(minute)).take(limit).collect()
    }

    /// Adds a row that was read. A row that is known already changes nothing.
    pub(crate) fn insert(&mut self, row: R) {
        let (minute, id, at) = (row.minute(), row.id(), row.due_at());
        let rows = self.minutes.entry(minute).or_default();
        if !rows.contains_key(&id) {
            rows.insert(id.clone(), RowState::Waiting(row));
            self.waiting.insert((at, minute, id));
        }
    }

    /// Notes that the whole minute was read by a read that began at `began`.
    pub(crate) fn note_read(&mut self, minute: i64, began: Millis) {
        if minute >= self.cursor && minute < minute_of(began) - LATE_MINUTES {
            self.closed.insert(minute);
        }
    }

    /// Takes the rows that are due. Each comes back through `finish`.
    pub(crate) fn take_due(&mut self, now: Millis) -> Vec<R> {
        let mut due = Vec::new();
        while let Some((at, minute, id)) = self.waiting.pop_first() {
            if at > now {
                self.waiting.insert((at, minute, id));
                break;
            }
            let Some(state) = self.minutes.get_mut(&minute).and_then(|rows| rows.get_mut(&id)) else {
                continue;
            };
            if let RowState::Waiting(row) = std::mem::replace(state, RowState::InProgress) {
                due.push(row);
            }
        }
        due
    }

    pub(crate) fn finish(&mut self, row: R, follow_up: FollowUp) {
        let (minute, id) = (row.minute(), row.id());
        let Some(state) = self.minutes.get_mut(&minute).and_then(|rows| rows.get_mut(&id)) else { return };
        *state = match follow_up {
            FollowUp::Settled => RowState::Settled,
            FollowUp::DueAgain(at) => {
                self.waiting.insert((at, minute, id));
                RowState::Waiting(row)
            }
        };
    }

    /// Returns when the next known row is due.
    pub(crate) fn next_due_at(&self) -> Option<Millis> {
        self.waiting.first().map(|(at, ..)| *at)
    }

    /// Moves the cursor past closed minutes without unsettled rows, and returns it.
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
            .is_none_or(|rows| rows.values().all(|state| matches!(state, RowState::Settled)))
    }
}

#[cfg(test)]
mod tests;
