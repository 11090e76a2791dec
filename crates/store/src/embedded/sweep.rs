//! Removes expired rows and old tombstones from the disk, slowly, in the background.
//!
//! It does not decide what readers see: an expired row is invisible at once, swept or not.

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

/// Slices a second: how finely the sweep's reading is spread.
const SLICES: u32 = 10;

pub(super) struct Sweep {
    pub(super) slots: Vec<Arc<Slot>>,
    pub(super) queue: WriteQueue,
    pub(super) clock: Clock,
    pub(super) settings: Settings,
    /// Closed when the engine is.
    pub(super) stop: Receiver<()>,
}

/// The engine is closed, or its writer is gone.
struct Stopped;

impl Sweep {
    pub(super) fn start(self) -> std::io::Result<JoinHandle<()>> {
        std::thread::Builder::new().name("store-sweep".to_owned()).spawn(move || {
            while self.rest(self.settings.sweep_every()).is_ok() {
                for slot in &self.slots {
                    match self.pass(slot, self.slice_rows(), Duration::from_secs(1) / SLICES) {
                        Ok(0) => {}
                        Ok(removed) => {
                            crate::metrics::rows_swept(slot.table.name, removed);
                        }
                        Err(Stopped) => return,
                    }
                }
            }
        })
    }

    fn slice_rows(&self) -> usize {
        usize::try_from(self.settings.sweep_rows_per_second.div_ceil(SLICES)).unwrap_or(usize::MAX)
    }

    fn rest(&self, time: Duration) -> Result<(), Stopped> {
        match self.stop.recv_timeout(time) {
            Err(RecvTimeoutError::Timeout) => Ok(()),
            _ => Err(Stopped),
        }
    }

    /// Reads the whole table once. Tables that can hold neither expired rows nor tombstones are left alone.
    fn pass(&self, slot: &Arc<Slot>, slice: usize, rest: Duration) -> Result<u64, Stopped> {
        if slot.table.mode == Mode::Versioned && slot.table.ttl.is_none() {
            return Ok(0);
        }
        let Some(keyspace) = slot.keyspace() else { return Ok(0) };
        let mut removed = 0;
        let mut low: Bound<UserKey> = Bound::Unbounded;
        loop {
            let now = (self.clock)().0;
            let mut dead: Vec<(UserKey, UserValue)> = Vec::new();
            let (mut visited, mut last) = (0, None);
            for entry in keyspace.range((low.clone(), Bound::Unbounded)).take(slice) {
                let Ok((key, value)) = entry.into_inner() else {
                    // A broken block is the readers' to report; the sweep only must not spin on it.
                    tracing::error!(table = slot.table.name, "the sweep met an unreadable block");
                    return Ok(removed);
                };
                visited += 1;
                last = Some(key.clone());
                if is_dead(&value, now, self.settings.tombstone_millis()) {
                    dead.push((key, value));
                }
            }
            removed += dead.len() as u64;
            self.purge(slot, dead)?;
            match last {
                Some(last) if visited == slice => low = Bound::Excluded(last),
                _ => return Ok(removed),
            }
            self.rest(rest)?;
        }
    }

    fn purge(&self, slot: &Arc<Slot>, rows: Vec<(UserKey, UserValue)>) -> Result<(), Stopped> {
        if rows.is_empty() {
            return Ok(());
        }
        let (reply, done) = oneshot::channel();
        let bytes = rows.iter().map(|(key, _)| key.len()).sum();
        let work = Work::Purge { slot: Arc::clone(slot), rows };
        self.queue.push(&None, Request { work, bytes, reply, room: None }).map_err(|_| Stopped)?;
        match done.blocking_recv() {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => {
                tracing::error!(table = slot.table.name, %error, "the sweep could not remove rows");
                Ok(())
            }
            Err(_) => Err(Stopped),
        }
    }
}

fn is_dead(value: &[u8], now: i64, tombstone_millis: i64) -> bool {
    Header::read(value).is_some_and(|(header, _)| {
        if header.tombstone {
            header.written.div_euclid(1_000).saturating_add(tombstone_millis) <= now
        } else {
            !header.is_visible(now)
        }
    })
}
