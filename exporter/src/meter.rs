//! How far a conversion is: counters that whoever shows progress reads, and the wish to stop.
//!
//! It prints nothing and knows no clock.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Shared between the conversion and whoever watches it.
#[derive(Debug, Default)]
pub struct Meter {
    /// Rows read.
    pub rows: AtomicU64,
    /// Bytes read, as they lie on disk; those that are read twice count twice. It only grows.
    pub read: AtomicU64,
    /// Bytes that will have been read, as far as is known; never fewer than have been.
    pub total: AtomicU64,
    stop: AtomicBool,
}

impl Meter {
    /// Asks the conversion to end after the block that it is at.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// So many more have been read.
    pub(crate) fn pass(&self, bytes: u64) {
        let read = self.read.load(Ordering::Relaxed) + bytes;
        // First, for whoever looks in between.
        self.total.fetch_max(read, Ordering::Release);
        self.read.store(read, Ordering::Release);
    }

    /// From here on so many will be read.
    pub(crate) fn expect(&self, bytes: u64) {
        let total = self.read.load(Ordering::Relaxed) + bytes;
        self.total.store(total, Ordering::Release);
    }

    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
