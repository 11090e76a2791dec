//! Due rows in tables of the store: partitions of a shard and a minute, and one cursor row per shard.
//!
//! A table provides its store and the action on a row; reads and cursor are shared by all tables.

use std::ops::RangeInclusive;

use tidegate_schemas::ids::Millis;
use tidegate_store::{Fact, RowRange, Split, Store, WriteTime};

use super::{
    index::{DueRow, FollowUp},
    scanner::DueTable,
};
use crate::consumer::error::TaskError;

/// Due row that is a fact of the store.
pub(crate) trait StoredDueRow: DueRow + Fact<Partition = (i64, i64)> {
    type Cursor: StoredCursor;

    fn shard(&self) -> i64;
    /// Returns the range of a minute's rows that are due in the given time range.
    fn due_in(due_range: RangeInclusive<Millis>) -> RowRange<Self::Cluster>;
}

/// Row with the oldest unfinished minute of a shard.
pub(crate) trait StoredCursor: Fact<Key = (i64,)> {
    fn new(shard: i64, minute: i64, write_time: WriteTime) -> Self;
    fn minute(&self) -> i64;
    /// Returns the write time of this row. The next write must be later, even if the clock is behind.
    fn write_time(&self) -> Option<WriteTime>;
}

/// Implements row and cursor of a table. The columns have the same names in all tables.
macro_rules! stored_due_row {
    ($row:ident with $cursor:ident, by $id:ident: $id_type:ty) => {
        impl $crate::due::index::DueRow for $row {
            type Id = (Millis, OrgId, $id_type);

            fn id(&self) -> Self::Id {
                (self.due_at, self.org.clone(), self.$id)
            }

            fn minute(&self) -> i64 {
                self.minute
            }

            fn due_at(&self) -> Millis {
                self.due_at
            }
        }

        impl $crate::due::stored_rows::StoredDueRow for $row {
            type Cursor = $cursor;

            fn shard(&self) -> i64 {
                self.shard
            }

            fn due_in(
                due: std::ops::RangeInclusive<Millis>,
            ) -> tidegate_store::RowRange<<Self as tidegate_store::Row>::Cluster> {
                tidegate_store::RowRange::range((), due)
            }
        }

        impl $crate::due::stored_rows::StoredCursor for $cursor {
            fn new(shard: i64, minute: i64, written: tidegate_store::WriteTime) -> Self {
                Self { shard, minute, written: Some(written.0) }
            }

            fn minute(&self) -> i64 {
                self.minute
            }

            fn write_time(&self) -> Option<tidegate_store::WriteTime> {
                self.written.map(tidegate_store::WriteTime)
            }
        }
    };
}
pub(crate) use stored_due_row;

/// Table of due rows in the store, and the action on a due row.
pub(crate) trait StoredDueTable: Send + Sync + 'static {
    type Row: StoredDueRow;

    fn store(&self) -> &Store;

    /// Called at the takeover of a shard, before its first read.
    fn take_over(&self, _shard: u32) {}

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

type Cursor<T> = <<T as StoredDueTable>::Row as StoredDueRow>::Cursor;

async fn load_cursor<T: StoredDueTable>(table: &T, shard: i64) -> Result<Option<Cursor<T>>, TaskError> {
    Ok(table.store().get(&(shard,)).await?)
}

impl<T: StoredDueTable> DueTable for T {
    type Row = T::Row;

    async fn read_minute(
        &self,
        shard: u32,
        minute: i64,
        due_range: Option<RangeInclusive<Millis>>,
    ) -> Result<Vec<T::Row>, TaskError> {
        let range = due_range.map_or_else(RowRange::all, T::Row::due_in);
        Ok(self.store().scan::<T::Row>(&(i64::from(shard), minute), range).all().await?)
    }

    async fn saved_cursor(&self, shard: u32) -> Result<Option<i64>, TaskError> {
        self.take_over(shard);
        Ok(load_cursor(self, i64::from(shard)).await?.map(|cursor| cursor.minute()))
    }

    async fn oldest_minute(&self, shard: u32) -> Result<Option<i64>, TaskError> {
        let shard = i64::from(shard);
        // A full scan, needed once per shard: later starts read the saved cursor.
        let mut oldest_minute = None;
        let mut rows = self.store().scan_all::<T::Row>(&Split::whole_table());
        while let Some(rows) = rows.next_page().await? {
            let shard_minutes = rows.iter().filter(|row| row.shard() == shard).map(DueRow::minute);
            oldest_minute = shard_minutes.chain(oldest_minute).min();
        }
        Ok(oldest_minute)
    }

    async fn save_cursor(&self, shard: u32, minute: i64) -> Result<(), TaskError> {
        let shard = i64::from(shard);
        // With a plain timestamp, the write would lose against the stored cursor after the clock was set back.
        let last_write = load_cursor(self, shard).await?.and_then(|cursor| cursor.write_time());
        let write_time = WriteTime::after(last_write, Millis::now());
        Ok(self.store().put_rows(write_time, &[Cursor::<T>::new(shard, minute, write_time)]).await?)
    }

    async fn abandoned_rows(&self, shard: u32, now: Millis) -> Result<Vec<T::Row>, TaskError> {
        StoredDueTable::abandoned_rows(self, shard, now).await
    }

    async fn act(&self, row: &T::Row, now: Millis) -> Result<FollowUp, TaskError> {
        StoredDueTable::act(self, row, now).await
    }
}
