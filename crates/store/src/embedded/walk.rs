//! Reads a range of one table's keys, page by page.
//!
//! It does not decode rows. It holds nothing of the database between two pages, so a slow reader pins no old data.

use std::{ops::Bound, sync::Arc};

use bytes::Bytes;
use fjall::UserKey;

use super::{Slot, engine_error, value::Header};
use crate::{Error, time::Clock};

/// Entries that a page may visit on the caller's thread: some tens of microseconds when cached. A longer page goes on
/// on a thread that may block, because a scan can meet any number of expired rows before it finds a live one.
const INLINE: usize = 64;

pub(crate) struct Walk {
    slot: Arc<Slot>,
    clock: Clock,
    low: Bound<Vec<u8>>,
    high: Bound<Vec<u8>>,
    finished: bool,
}

/// A visible row: its key and value bytes. The header was read already.
pub(crate) type Entry = (UserKey, Bytes);

impl Walk {
    pub(super) fn new(slot: Arc<Slot>, clock: Clock, low: Bound<Vec<u8>>, high: Bound<Vec<u8>>) -> Self {
        // An empty range must not reach the database, which panics on a start behind its end.
        let finished = match (&low, &high) {
            (Bound::Included(low), Bound::Included(high)) => low > high,
            (Bound::Included(low) | Bound::Excluded(low), Bound::Included(high) | Bound::Excluded(high)) => {
                low >= high
            }
            _ => false,
        };
        Self { slot, clock, low, high, finished }
    }

    pub(crate) fn slot(&self) -> &Arc<Slot> {
        &self.slot
    }

    /// The next at most `want` visible rows. Fewer than `want`: the range is at its end.
    pub(crate) async fn page(mut self, want: usize) -> (Self, Result<Vec<Entry>, Error>) {
        let mut rows = Vec::with_capacity(want.min(INLINE));
        match self.step(want, INLINE, &mut rows) {
            Err(error) => return (self, Err(error)),
            Ok(()) if self.finished || rows.len() >= want => return (self, Ok(rows)),
            Ok(()) => {}
        }
        let rest = tokio::task::spawn_blocking(move || {
            let read = self.step(want, usize::MAX, &mut rows);
            (self, read.map(|()| rows))
        });
        match rest.await {
            Ok(done) => done,
            // Either the read panicked, and goes on doing so here, or the runtime is going down.
            Err(gone) => match gone.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => std::future::pending().await,
            },
        }
    }

    fn step(&mut self, want: usize, visits: usize, rows: &mut Vec<Entry>) -> Result<(), Error> {
        if self.finished || rows.len() >= want {
            return Ok(());
        }
        let Some(keyspace) = self.slot.keyspace() else {
            self.finished = true;
            return Ok(());
        };
        let now = (self.clock)().0;
        let range = (self.low.as_ref().map(Vec::as_slice), self.high.as_ref().map(Vec::as_slice));
        let mut last = None;
        let mut visited = 0;
        let mut entries = keyspace.range::<&[u8], _>(range);
        let ended = loop {
            if rows.len() >= want || visited >= visits {
                break false;
            }
            let Some(entry) = entries.next() else { break true };
            let (key, value) = entry.into_inner().map_err(engine_error)?;
            visited += 1;
            let value = Bytes::from(value);
            last = Some(key.clone());
            if Header::read(&value).is_none_or(|(header, _)| header.is_visible(now)) {
                rows.push((key, value));
            }
        };
        drop(entries);
        self.finished = ended;
        if let Some(last) = last {
            self.low = Bound::Excluded(last.to_vec());
        }
        Ok(())
    }
}
