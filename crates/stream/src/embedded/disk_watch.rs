//! Thread that measures the disk and sets how much of it requests may still use.
//!
//! It reserves space in advance: for the writes until the next measurement at the present rate, for the effects of accepted
//! records, and for the flushes and compactions of the database.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use fjall::KeyspaceCreateOptions;
use tidegate_embedded_data::DiskCapacity;

use super::{
    disk_quota::{self, DiskUsage, Limits},
    disk_rate::DiskRate,
    format,
    state::State,
};
use crate::{metrics, wakeup::Wakeup};

/// Longest time between two measurements, and the time between them while the disk is nearly full.
const MEASURE_INTERVAL: Duration = Duration::from_secs(1);
const MEASURE_INTERVAL_WHEN_NEARLY_FULL: Duration = Duration::from_millis(50);
/// Interval of flushes while the disk is nearly full, so that journals can be dropped.
const FLUSH_INTERVAL: Duration = Duration::from_secs(10);
const MIN_FLUSH_BYTES: u64 = 8 << 20;
/// Bytes of rows, journals and further records for each byte of an accepted record.
const EFFECT_BYTES_PER_BYTE: u64 = 3;
/// Default of `min_free_bytes`: the size of the disk over this divisor, up to a maximum.
const MIN_FREE_DIVISOR: u64 = 8;
const MAX_MIN_FREE_BYTES: u64 = 512 << 20;
/// Largest space for compactions, which rewrite only some tables of a level at a time.
const MAX_REWRITTEN_BYTES: u64 = 512 << 20;

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
        watch.measure(Instant::now());
        watch
    }

    pub(super) fn run(mut self) {
        while !self.stop.load(Ordering::Acquire) {
            let pause = self.measure(Instant::now());
            self.wakeup.wait_up_to(pause);
        }
    }

    /// Measures the disk and returns the time until the next measurement. A failed measurement does not limit appends.
    fn measure(&mut self, now: Instant) -> Duration {
        let (state, settings) = (&self.state, &self.state.settings);
        let space = state.disk.space().unwrap_or(DiskCapacity { free: u64::MAX, total: u64::MAX });
        self.rate.add(now, space.free);
        // Table sizes change slowly, and reading them visits every table.
        if self.tables_at.is_none_or(|at| now.duration_since(at) >= MEASURE_INTERVAL) {
            self.tables_at = Some(now);
            state.disk.set_compaction_bytes(rewritten_by_compaction(state));
        }
        let used_bytes = state.db.disk_space().unwrap_or_else(|error| {
            tracing::warn!(%error, "the size of the data folder cannot be measured");
            0
        });
        let min_free =
            settings.min_free_bytes.unwrap_or(MAX_MIN_FREE_BYTES.min(space.total / MIN_FREE_DIVISOR));
        let needed_bytes = state.disk.needed_bytes(state.db.write_buffer_size(), space.total);
        let reaction = settings.disk_reaction_ms.max(1);
        // Each estimate is capped at a quarter of the disk: a burst, or a group without a consumer, must not block all requests.
        let reserve_bytes =
            (self.rate.bytes_per_second().saturating_mul(reaction) / 1_000).min(space.total / 4);
        let effect_bytes =
            state.unprocessed_bytes().saturating_mul(EFFECT_BYTES_PER_BYTE).min(space.total / 4);
        let limits = Limits {
            max_bytes: settings.max_bytes,
            keep_from_requests: min_free
                .max(needed_bytes.saturating_add(reserve_bytes).saturating_add(effect_bytes)),
            keep_from_all: needed_bytes.max(min_free / 4),
        };
        let headroom = disk_quota::headroom(limits, DiskUsage { used: used_bytes, free: space.free });
        state.quota.set(headroom, limits.keep_from_requests);
        metrics::embedded_headroom(headroom.request, limits.keep_from_requests);

        let is_near = space.free < limits.keep_from_requests.saturating_mul(4);
        // Only while requests are refused: a flush turns journals into smaller tables.
        if space.free < limits.keep_from_requests {
            self.flush(now);
        }
        let interval = MEASURE_INTERVAL.min(self.state.settings.housekeeping());
        if is_near { interval.min(MEASURE_INTERVAL_WHEN_NEARLY_FULL) } else { interval }
    }

    /// Flushes the memory of the database. Tables are smaller than the journals, which are dropped afterwards.
    fn flush(&mut self, now: Instant) {
        let db = &self.state.db;
        let is_due = self.flushed_at.is_none_or(|at| now.duration_since(at) >= FLUSH_INTERVAL);
        if !is_due || db.write_buffer_size() < MIN_FLUSH_BYTES {
            return;
        }
        self.flushed_at = Some(now);
        for name in db.list_keyspace_names() {
            let result = db
                .keyspace(&name, KeyspaceCreateOptions::default)
                .and_then(|keyspace| keyspace.rotate_memtable());
            if let Err(error) = result {
                tracing::warn!(%error, "cannot flush memory to tables");
                return;
            }
        }
    }
}

/// Returns the size of the two largest tables, because two compactions can run at once. Tables of the log are moved and not
/// rewritten.
fn rewritten_by_compaction(state: &State) -> u64 {
    let names = state.db.list_keyspace_names();
    let tables = names.iter().filter(|name| format::parse_keyspace(name).is_none());
    let mut sizes: Vec<u64> = tables
        .filter_map(|name| state.db.keyspace(name, KeyspaceCreateOptions::default).ok())
        .map(|keyspace| keyspace.disk_space())
        .collect();
    sizes.sort_unstable_by(|left, right| right.cmp(left));
    sizes.iter().take(2).sum::<u64>().min(MAX_REWRITTEN_BYTES)
}
