//! Thread that measures the disk, and sets how much of it requests may still use.
//!
//! It reserves ahead: what is written until the next look at the rate of the last seconds, what accepted records still lead
//! to, and what the database needs to write down what it holds in memory and to compact.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use fjall::KeyspaceCreateOptions;
use tidegate_schemas::Space;

use super::{
    disk_quota::{self, DiskUsage, Limits},
    disk_rate::DiskRate,
    format,
    state::State,
};
use crate::{metrics, wakeup::Wakeup};

/// Longest time between two looks, and the time between them while little is left.
const EVERY: Duration = Duration::from_secs(1);
const EVERY_NEAR_THE_END: Duration = Duration::from_millis(50);
/// Interval at which memory is written down while little is left, so that journals can go.
const FLUSH_EVERY: Duration = Duration::from_secs(10);
const LEAST_FLUSH_BYTES: u64 = 8 << 20;
/// Bytes of rows, journals and further records that a byte of an accepted record leads to.
const EFFECTS: u64 = 3;
/// Part of a disk that is kept free unless a setting says how much, and the most of it.
const FREE_PART: u64 = 8;
const MOST_FREE_BYTES: u64 = 512 << 20;
/// Largest need of compactions: levels are rewritten some tables at a time.
const MOST_REWRITTEN_BYTES: u64 = 512 << 20;

pub(super) struct DiskWatch {
    state: Arc<State>,
    wakeup: Arc<Wakeup>,
    stop: Arc<AtomicBool>,
    rate: DiskRate,
    tables_at: Option<Instant>,
    flushed_at: Option<Instant>,
}

impl DiskWatch {
    /// Measures for the first time.
    pub(super) fn new(state: Arc<State>, wakeup: Arc<Wakeup>, stop: Arc<AtomicBool>) -> Self {
        let mut watch =
            Self { state, wakeup, stop, rate: DiskRate::default(), tables_at: None, flushed_at: None };
        watch.look(Instant::now());
        watch
    }

    pub(super) fn run(mut self) {
        while !self.stop.load(Ordering::Acquire) {
            let pause = self.look(Instant::now());
            self.wakeup.wait(pause);
        }
    }

    /// Measures, and returns the time until the next look. What cannot be measured does not limit.
    fn look(&mut self, now: Instant) -> Duration {
        let (state, settings) = (&self.state, &self.state.settings);
        let space = state.disk.space().unwrap_or(Space { free: u64::MAX, total: u64::MAX });
        self.rate.add(now, space.free);
        if self.tables_at.is_none_or(|at| now.duration_since(at) >= EVERY) {
            self.tables_at = Some(now);
            state.disk.set_rewritten(rewritten_by_compaction(state));
        }
        let used = state.db.disk_space().unwrap_or_else(|error| {
            tracing::warn!(%error, "the size of the data folder cannot be measured");
            0
        });
        let min_free = settings.min_free_bytes.unwrap_or(MOST_FREE_BYTES.min(space.total / FREE_PART));
        let needed = state.disk.needed(state.db.write_buffer_size(), space.total);
        let reaction = settings.disk_reaction_ms.max(1);
        // Neither a burst nor a group that nobody consumes may take a whole disk out of use.
        let ahead = (self.rate.bytes_per_second().saturating_mul(reaction) / 1_000).min(space.total / 4);
        let effects = state.unprocessed_bytes().saturating_mul(EFFECTS).min(space.total / 4);
        let limits = Limits {
            max_bytes: settings.max_bytes,
            keep_from_requests: min_free.max(needed.saturating_add(ahead).saturating_add(effects)),
            keep_from_all: needed.max(min_free / 4),
        };
        let headroom = disk_quota::headroom(limits, DiskUsage { used, free: space.free });
        state.quota.set(headroom, limits.keep_from_requests);
        metrics::embedded_headroom(headroom.request, limits.keep_from_requests);

        let is_near = space.free < limits.keep_from_requests.saturating_mul(4);
        if space.free < limits.keep_from_requests {
            self.flush(now);
        }
        let every = EVERY.min(self.state.settings.housekeeping());
        if is_near { every.min(EVERY_NEAR_THE_END) } else { every }
    }

    /// Has the database write down what it holds in memory: tables are smaller than journals, which go then.
    fn flush(&mut self, now: Instant) {
        let db = &self.state.db;
        let is_due = self.flushed_at.is_none_or(|at| now.duration_since(at) >= FLUSH_EVERY);
        if !is_due || db.write_buffer_size() < LEAST_FLUSH_BYTES {
            return;
        }
        self.flushed_at = Some(now);
        for name in db.list_keyspace_names() {
            let rotated = db
                .keyspace(&name, KeyspaceCreateOptions::default)
                .and_then(|keyspace| keyspace.rotate_memtable());
            if let Err(error) = rotated {
                tracing::warn!(%error, "memory cannot be written to tables");
                return;
            }
        }
    }
}

/// Returns the size of the two largest tables, as two may be compacted at once. Those of the log are only moved.
fn rewritten_by_compaction(state: &State) -> u64 {
    let names = state.db.list_keyspace_names();
    let tables = names.iter().filter(|name| format::parse_keyspace(name).is_none());
    let mut sizes: Vec<u64> = tables
        .filter_map(|name| state.db.keyspace(name, KeyspaceCreateOptions::default).ok())
        .map(|keyspace| keyspace.disk_space())
        .collect();
    sizes.sort_unstable_by(|left, right| right.cmp(left));
    sizes.iter().take(2).sum::<u64>().min(MOST_REWRITTEN_BYTES)
}
