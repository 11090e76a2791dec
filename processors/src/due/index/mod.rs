//! Index of the due rows of one shard: a cursor over minutes, and the state of each row that was read.
//!
//! Pure: `scanner` reads the rows, acts on them and passes the time in.
//!
//! Rows are stored in partitions of one shard and one minute. A writer's clock may be behind, so a row may appear in a
//! minute that was read before. Therefore the last ten minutes are read repeatedly, and the cursor passes a minute only
//! after the minute was read at an age above ten minutes and all its rows are settled. Settled rows stay in the index
//! until then, so a repeated read does not repeat their action.
//!
//! If the clock is set back by more than ten minutes, the cursor moves back too, because new rows would otherwise be behind
//! it. Rows written under the later time wait until the clock reaches that time again. The scanner reports the change.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    ops::RangeInclusive,
};

use tidegate_schemas::ids::Millis;

pub(crate) const MINUTE_MS: i64 = 60_000;

/// Number of past minutes that are read again. A writer's clock may be behind by at most this time.
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

/// State of a row after its action.
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
    waiting_rows: BTreeSet<(Millis, i64, R::Id)>,
    /// Minutes from the cursor on whose last read was late enough that no further row can appear in them.
    closed_minutes: BTreeSet<i64>,
}

#[derive(Debug)]
enum RowState<R> {
    Waiting(R),
    InProgress,
    Settled,
}

impl<R: DueRow> DueIndex<R> {
    pub(crate) fn new(cursor: i64) -> Self {
        Self {
            cursor,
            minutes: BTreeMap::new(),
            waiting_rows: BTreeSet::new(),
            closed_minutes: BTreeSet::new(),
        }
    }

    pub(crate) const fn cursor(&self) -> i64 {
        self.cursor
    }

    /// Moves the cursor back if rows written at `now` would be behind it. Returns the number of minutes.
    pub(crate) fn rewind(&mut self, now: Millis) -> Option<i64> {
        let latest_cursor = minute_of(now) - LATE_MINUTES;
        // Also without a cursor move: the cursor may wait at an older unsettled row while rows appear in these minutes
        // again.
        self.closed_minutes.split_off(&latest_cursor);
        let minutes_back = self.cursor - latest_cursor;
        if minutes_back <= 0 {
            return None;
        }
        self.cursor = latest_cursor;
        Some(minutes_back)
    }

    /// Returns the minutes in which new rows may appear.
    pub(crate) fn recent_minutes(&self, now: Millis) -> RangeInclusive<i64> {
        // The next minute is included, so its rows are indexed before they are due.
        let current_minute = minute_of(now);
        self.cursor.max(current_minute - LATE_MINUTES)..=current_minute + 1
    }

    /// Returns up to `limit` open minutes before the recent ones, oldest first.
    pub(crate) fn backlog_minutes(&self, now: Millis, limit: usize) -> Vec<i64> {
        let first_recent = *self.recent_minutes(now).start();
        (self.cursor..first_recent)
            .filter(|minute| !self.closed_minutes.contains(minute))
            .take(limit)
            .collect()
    }

    /// Adds a row. Ignores a row that the index already has.
    pub(crate) fn insert(&mut self, row: R) {
        let (minute, id, due_at) = (row.minute(), row.id(), row.due_at());
        let rows = self.minutes.entry(minute).or_default();
        if !rows.contains_key(&id) {
            rows.insert(id.clone(), RowState::Waiting(row));
            self.waiting_rows.insert((due_at, minute, id));
        }
    }

    /// Records a complete read of the minute that started at `read_started_at`.
    pub(crate) fn record_read(&mut self, minute: i64, read_started_at: Millis) {
        // Younger minutes can still receive rows from a writer with a late clock.
        if minute >= self.cursor && minute < minute_of(read_started_at) - LATE_MINUTES {
            self.closed_minutes.insert(minute);
        }
    }

    /// Takes the due rows. The caller returns each with `finish`.
    pub(crate) fn take_due(&mut self, now: Millis) -> Vec<R> {
        let mut due_rows = Vec::new();
        while let Some((at, minute, id)) = self.waiting_rows.pop_first() {
            if at > now {
                self.waiting_rows.insert((at, minute, id));
                break;
            }
            let Some(state) = self.minutes.get_mut(&minute).and_then(|rows| rows.get_mut(&id)) else {
                continue;
            };
            if let RowState::Waiting(row) = std::mem::replace(state, RowState::InProgress) {
                due_rows.push(row);
            }
        }
        due_rows
    }

    pub(crate) fn finish(&mut self, row: R, follow_up: FollowUp) {
        let (minute, id) = (row.minute(), row.id());
        let Some(state) = self.minutes.get_mut(&minute).and_then(|rows| rows.get_mut(&id)) else { return };
        *state = match follow_up {
            FollowUp::Settled => RowState::Settled,
            FollowUp::DueAgain(at) => {
                self.waiting_rows.insert((at, minute, id));
                RowState::Waiting(row)
            }
        };
    }

    /// Returns the due time of the next waiting row.
    pub(crate) fn next_due_at(&self) -> Option<Millis> {
        self.waiting_rows.first().map(|(at, ..)| *at)
    }

    /// Moves the cursor past closed minutes without unsettled rows, and returns it.
    pub(crate) fn advance(&mut self) -> i64 {
        while self.closed_minutes.contains(&self.cursor) && self.is_settled(self.cursor) {
            self.closed_minutes.remove(&self.cursor);
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
