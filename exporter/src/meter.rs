//! Progress counters of a conversion, and its stop request.

use std::{
    io::{self, Read},
    sync::atomic::{AtomicU64, Ordering},
};

use crate::error::ConvertError;

/// Counters shared between a conversion and its observer.
#[derive(Debug, Default)]
pub struct Meter {
    /// Rows read. A second reading counts its rows again.
    pub rows_read: AtomicU64,
    /// Stored (compressed) bytes read. A second reading counts its bytes again; the counter never decreases.
    pub bytes_read: AtomicU64,
    /// Expected total of bytes read; never below the bytes read so far.
    pub bytes_expected: AtomicU64,
    /// Number of rows after which to stop, plus one; 0 for no limit.
    stop_threshold: AtomicU64,
}

impl Meter {
    /// Stops the conversion after its current block.
    pub fn stop(&self) {
        self.stop_after(0);
    }

    /// Stops the conversion after this many rows.
    pub fn stop_after(&self, rows: u64) {
        self.stop_threshold.store(rows.saturating_add(1), Ordering::Relaxed);
    }

    /// Adds stored bytes to the counter.
    pub(crate) fn add_read(&self, bytes: u64) {
        let bytes_read = self.bytes_read.load(Ordering::Relaxed) + bytes;
        // The total is raised first: an observer between the two stores must not see more bytes read than expected.
        self.bytes_expected.fetch_max(bytes_read, Ordering::Release);
        self.bytes_read.store(bytes_read, Ordering::Release);
    }

    /// Sets the number of bytes still to be read.
    pub(crate) fn expect(&self, bytes: u64) {
        let total = self.bytes_read.load(Ordering::Relaxed) + bytes;
        self.bytes_expected.store(total, Ordering::Release);
    }

    pub(crate) fn is_stop_requested(&self) -> bool {
        let threshold = self.stop_threshold.load(Ordering::Relaxed);
        // The stored value is offset by one, so that 0 means no limit.
        threshold > 0 && self.rows_read.load(Ordering::Relaxed) + 1 >= threshold
    }

    pub(crate) fn count_row(&self) {
        self.rows_read.fetch_add(1, Ordering::Relaxed);
    }

    /// Fails if a stop was requested.
    pub(crate) fn check_stop(&self) -> Result<(), ConvertError> {
        if self.is_stop_requested() {
            return Err(ConvertError::Stopped { rows: self.rows_read.load(Ordering::Relaxed) });
        }
        Ok(())
    }
}

/// Reader that counts its bytes and fails once a stop is requested.
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
