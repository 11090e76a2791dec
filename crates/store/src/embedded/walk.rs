//! Scans a key range of one table, page by page, and returns undecoded rows.
//!
//! No snapshot of the database is held between two pages, so a slow reader does not keep old data on the disk.

use std::{ops::Bound, sync::Arc};

use bytes::Bytes;
use fjall::UserKey;

use super::{Slot, engine_error, value::Header};
use crate::{Error, time::Clock};

/// Entries that a page may visit on the caller's thread: some tens of microseconds if they are cached. A longer page
/// continues on a blocking thread, because a scan can meet any number of expired rows before a visible one.
const MAX_INLINE_ENTRIES: usize = 64;

pub(crate) struct KeyRangeScan {
    slot: Arc<Slot>,
    clock: Clock,
    low: Bound<Vec<u8>>,
    high: Bound<Vec<u8>>,
    is_finished: bool,
}

/// Visible row: its key and value bytes.
pub(crate) type Entry = (UserKey, Bytes);

impl KeyRangeScan {
    pub(super) fn new(slot: Arc<Slot>, clock: Clock, low: Bound<Vec<u8>>, high: Bound<Vec<u8>>) -> Self {
        // The database panics on a range with its start behind its end, so an empty range must not reach it.
        let is_finished = match (&low, &high) {
            (Bound::Included(low), Bound::Included(high)) => low > high,
            (Bound::Included(low) | Bound::Excluded(low), Bound::Included(high) | Bound::Excluded(high)) => {
                low >= high
            }
            _ => false,
        };
        Self { slot, clock, low, high, is_finished }
    }

    pub(crate) fn slot(&self) -> &Arc<Slot> {
        &self.slot
    }

    /// Reads up to `max_rows` visible rows. Fewer rows: the range is at its end.
    pub(crate) async fn read_page(mut self, max_rows: usize) -> (Self, Result<Vec<Entry>, Error>) {
        let mut rows = Vec::with_capacity(max_rows.min(MAX_INLINE_ENTRIES));
        match self.read_entries(max_rows, MAX_INLINE_ENTRIES, &mut rows) {
            Err(error) => return (self, Err(error)),
            Ok(()) if self.is_finished || rows.len() >= max_rows => return (self, Ok(rows)),
            Ok(()) => {}
        }
        let blocking_read = tokio::task::spawn_blocking(move || {
            let result = self.read_entries(max_rows, usize::MAX, &mut rows);
            (self, result.map(|()| rows))
        });
        match blocking_read.await {
            Ok(scan_and_rows) => scan_and_rows,
            // The read panicked: the panic continues here. Or the runtime shuts down: the caller is dropped soon.
            Err(join_error) => match join_error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => std::future::pending().await,
            },
        }
    }

    fn read_entries(
        &mut self,
        max_rows: usize,
        max_visits: usize,
        rows: &mut Vec<Entry>,
    ) -> Result<(), Error> {
        if self.is_finished || rows.len() >= max_rows {
            return Ok(());
        }
        let Some(keyspace) = self.slot.keyspace() else {
            self.is_finished = true;
            return Ok(());
        };
        let now_ms = (self.clock)().0;
        let range = (self.low.as_ref().map(Vec::as_slice), self.high.as_ref().map(Vec::as_slice));
        let mut last_key = None;
        let mut visited_entries = 0;
        let mut entries = keyspace.range::<&[u8], _>(range);
        let reached_end = loop {
            if rows.len() >= max_rows || visited_entries >= max_visits {
                break false;
            }
            let Some(entry) = entries.next() else { break true };
            let (key, value) = entry.into_inner().map_err(engine_error)?;
            visited_entries += 1;
            let value = Bytes::from(value);
            last_key = Some(key.clone());
            // A value without a readable header is passed on, so that the decoder reports it as corrupt.
            if Header::read(&value).is_none_or(|(header, _)| header.is_visible(now_ms)) {
                rows.push((key, value));
            }
        };
        drop(entries);
        self.is_finished = reached_end;
        if let Some(last_key) = last_key {
            // Continues behind the last visited key, even if its row was not visible.
            self.low = Bound::Excluded(last_key.to_vec());
        }
        Ok(())
    }
}
