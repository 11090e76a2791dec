//! How far a conversion is: counters that whoever shows progress reads, and the wish to stop.
//!
//! It prints nothing and knows no clock.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Shared between the conversion and whoever watches it.
#[derive(Debug, Default)]
pub struct Meter {
    /// Rows read.
    pub rows: AtomicU64,
    /// Bytes read, as they lie on disk.
    pub read: AtomicU64,
    /// Bytes that will be read, as they lie on disk.
    pub total: AtomicU64,
    stop: AtomicBool,
}

impl Meter {
    /// Asks the conversion to end after the block that it is at.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
