//! Progress counters of a conversion, and the request to stop it.

use std::{
    io::{self, Read},
    sync::atomic::{AtomicU64, Ordering},
};

use crate::error::ConvertError;

/// Counters shared between a conversion and its observer.
#[derive(Debug, Default)]
pub struct Meter {
    /// Rows read; those that are read again, to be written in another form, count again.
    pub rows: AtomicU64,
    /// Bytes read, as they lie on disk; those that are read twice count twice. It only grows.
    pub read: AtomicU64,
    /// Bytes that will have been read, as far as is known; never fewer than have been.
    pub total: AtomicU64,
    /// Number of rows after which to stop, plus one; 0 for no limit.
    stop_threshold: AtomicU64,
}

impl Meter {
    /// Asks the conversion to end after the block that it is at.
    pub fn stop(&self) {
        self.stop_after(0);
    }

    /// Asks the conversion to stop after this many rows.
    pub fn stop_after(&self, rows: u64) {
        self.stop_threshold.store(rows.saturating_add(1), Ordering::Relaxed);
    }

    /// Adds bytes that have been read.
    pub(crate) fn add_read(&self, bytes: u64) {
        let bytes_read = self.read.load(Ordering::Relaxed) + bytes;
        // First, for whoever looks in between.
        self.total.fetch_max(bytes_read, Ordering::Release);
        self.read.store(bytes_read, Ordering::Release);
    }

    /// Sets how many more bytes will be read.
    pub(crate) fn expect(&self, bytes: u64) {
        let total = self.read.load(Ordering::Relaxed) + bytes;
        self.total.store(total, Ordering::Release);
    }

    pub(crate) fn stopped(&self) -> bool {
        let threshold = self.stop_threshold.load(Ordering::Relaxed);
        threshold > 0 && self.rows.load(Ordering::Relaxed) + 1 >= threshold
    }

    pub(crate) fn row(&self) {
        self.rows.fetch_add(1, Ordering::Relaxed);
    }

    /// A fault, if it was asked to end.
    pub(crate) fn check_stop(&self) -> Result<(), ConvertError> {
        if self.stopped() {
            return Err(ConvertError::Stopped { rows: self.rows.load(Ordering::Relaxed) });
        }
        Ok(())
    }
}

/// Counts the bytes read through it, and fails once the meter asks to stop.
pub(crate) struct Metered<'m, R> {
    inner: R,
    meter: &'m Meter,
}

impl<'m, R> Metered<'m, R> {
    pub(crate) fn new(inner: R, meter: &'m Meter) -> Self {
        Self { inner, meter }
    }
}

impl<R: Read> Read for Metered<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.meter.check_stop().map_err(ConvertError::into_io)?;
        let byte_count = self.inner.read(buffer)?;
        self.meter.add_read(byte_count as u64);
        Ok(byte_count)
    }
}
