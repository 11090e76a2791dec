//! Removes expired rows and old tombstones from the disk, slowly, in the background.
//!
//! Readers never see expired rows, whether they are swept or not.

use std::{
    ops::Bound,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError},
    },
    thread::JoinHandle,
    time::Duration,
};

use fjall::{UserKey, UserValue};
use tokio::sync::oneshot;

use super::{
    Settings, Slot,
    value::Header,
    write_queue::{Request, Work, WriteQueue},
};
use crate::{Mode, time::Clock};

/// Number of slices a second over which the reads are spread.
const SLICES: u32 = 10;

pub(super) struct Sweep {
    pub(super) slots: Vec<Arc<Slot>>,
    pub(super) queue: WriteQueue,
    pub(super) clock: Clock,
    pub(super) settings: Settings,
    /// Disconnected when the engine closes.
    pub(super) stop: Receiver<()>,
}

/// The engine is closed or its writer has ended.
struct EngineClosed;

impl Sweep {
    pub(super) fn start(self) -> std::io::Result<JoinHandle<()>> {
        std::thread::Builder::new().name("store-sweep".to_owned()).spawn(move || {
            while self.pause(self.settings.sweep_every()).is_ok() {
                for slot in &self.slots {
                    match self.sweep_table(slot, self.slice_rows(), Duration::from_secs(1) / SLICES) {
                        Ok(0) => {}
                        Ok(removed) => {
                            crate::metrics::rows_swept(slot.table.name, removed);
                        }
                        Err(EngineClosed) => return,
                    }
                }
            }
        })
    }

    fn slice_rows(&self) -> usize {
        usize::try_from(self.settings.sweep_rows_per_second.div_ceil(SLICES)).unwrap_or(usize::MAX)
    }

    fn pause(&self, duration: Duration) -> Result<(), EngineClosed> {
        match self.stop.recv_timeout(duration) {
            Err(RecvTimeoutError::Timeout) => Ok(()),
            _ => Err(EngineClosed),
        }
    }

    /// Reads the whole table once. Tables without expired rows and tombstones are skipped.
    fn sweep_table(
        &self,
        slot: &Arc<Slot>,
        slice_rows: usize,
        pause_time: Duration,
    ) -> Result<u64, EngineClosed> {
        if slot.table.mode == Mode::Versioned && slot.table.ttl.is_none() {
            return Ok(0);
        }
        let Some(keyspace) = slot.keyspace() else { return Ok(0) };
        let mut removed = 0;
        let mut low: Bound<UserKey> = Bound::Unbounded;
        loop {
            let now_ms = (self.clock)().0;
            let mut dead_rows: Vec<(UserKey, UserValue)> = Vec::new();
            let (mut visited_rows, mut last_key) = (0, None);
            // A new iterator for each slice, so that no snapshot is held during the pause.
            for entry in keyspace.range((low.clone(), Bound::Unbounded)).take(slice_rows) {
                let Ok((key, value)) = entry.into_inner() else {
                    // Skips the rest of the table: a retry would fail at the same block. Readers report the error too.
                    tracing::error!(
                        table = slot.table.name,
                        "the sweep stopped at an unreadable block of the table"
                    );
                    return Ok(removed);
                };
                visited_rows += 1;
                last_key = Some(key.clone());
                if is_dead(&value, now_ms, self.settings.tombstone_millis()) {
                    dead_rows.push((key, value));
                }
            }
            removed += dead_rows.len() as u64;
            self.purge(slot, dead_rows)?;
            match last_key {
                // A short slice is the end of the table.
                Some(last_key) if visited_rows == slice_rows => low = Bound::Excluded(last_key),
                _ => return Ok(removed),
            }
            self.pause(pause_time)?;
        }
    }

    fn purge(&self, slot: &Arc<Slot>, rows: Vec<(UserKey, UserValue)>) -> Result<(), EngineClosed> {
        if rows.is_empty() {
            return Ok(());
        }
        let (reply, answer) = oneshot::channel();
        let bytes = rows.iter().map(|(key, _)| key.len()).sum();
        let work = Work::Purge { slot: Arc::clone(slot), rows };
        self.queue.push(&None, Request { work, bytes, reply, room: None }).map_err(|_| EngineClosed)?;
        match answer.blocking_recv() {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => {
                tracing::error!(table = slot.table.name, %error, "the sweep could not remove rows");
                Ok(())
            }
            Err(_) => Err(EngineClosed),
        }
    }
}

fn is_dead(value: &[u8], now_ms: i64, tombstone_millis: i64) -> bool {
    Header::read(value).is_some_and(|(header, _)| {
        if header.is_tombstone {
            // Write times are microseconds, the setting is milliseconds.
            header.written_at.div_euclid(1_000).saturating_add(tombstone_millis) <= now_ms
        } else {
            !header.is_visible(now_ms)
        }
    })
}
