//! Settings of the embedded engine.
//!
//! It does not say where the database lies: the caller opens it, because the log lies in the same one.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Error;

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Rows of one page where a scan names no other number.
    pub page_rows: usize,
    /// Bytes of one organisation that may wait for the writer before its further writes are held back.
    pub queue_bytes: usize,
    /// Greatest number of bytes that the writer puts into one group, and so into one sync; each row counts as 256 bytes more. A
    /// write of one organisation waits for at most one group of another.
    pub group_bytes: usize,
    /// Days after which the trace of a deletion is removed. It must be longer than the time for which any record
    /// can be processed again (the log's retention, plus the longest outage), because an older put of the same row
    /// that arrives later would bring the row back.
    pub tombstone_days: u32,
    /// Seconds of rest between two passes of the sweep that removes expired rows and old tombstones from the disk.
    pub sweep_every_seconds: u64,
    /// Rows a second that the sweep reads at most.
    pub sweep_rows_per_second: u32,
    /// A larger row is not written, and what it belongs to goes to the dead letters. As much as a Cassandra takes, so
    /// that what works here works there.
    pub max_row_bytes: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            page_rows: 1_000,
            queue_bytes: 64 << 20,
            group_bytes: 1 << 20,
            tombstone_days: 30,
            sweep_every_seconds: 60,
            sweep_rows_per_second: 5_000,
            max_row_bytes: 15 << 20,
        }
    }
}

impl Settings {
    pub fn validate(&self) -> Result<(), Error> {
        let fault = |text: &str| Err(Error::Settings(text.to_owned()));
        if self.page_rows == 0 {
            return fault("page_rows is 0");
        }
        if self.group_bytes == 0 || self.queue_bytes < self.group_bytes {
            return fault(&format!(
                "queue_bytes ({}) must hold at least one group, and group_bytes ({}) must not be 0",
                self.queue_bytes, self.group_bytes
            ));
        }
        if self.tombstone_days == 0 {
            return fault("tombstone_days is 0: every replayed put would bring deleted rows back");
        }
        if self.sweep_rows_per_second == 0 {
            return fault("sweep_rows_per_second is 0: expired rows would stay on the disk for ever");
        }
        if self.max_row_bytes == 0 {
            return fault("max_row_bytes is 0: no row could be written");
        }
        Ok(())
    }

    pub(crate) fn tombstone_millis(&self) -> i64 {
        i64::from(self.tombstone_days) * tidegate_schemas::ids::DAY_MS
    }

    pub(crate) fn sweep_every(&self) -> Duration {
        Duration::from_secs(self.sweep_every_seconds)
    }
}
