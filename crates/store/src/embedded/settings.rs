//! Settings of the embedded engine. The location of the database is a setting of the caller, which shares it with the log.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Error;

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Default number of rows a page of a scan.
    pub page_rows: usize,
    /// Bytes of one organisation that may be queued for the writer before its further writes wait.
    pub queue_bytes: usize,
    /// Greatest number of bytes that the writer puts into one group, and so into one sync; each row counts as 256 bytes more. A
    /// write of one organisation waits for at most one group of another.
    pub group_bytes: usize,
    /// Days after which the trace of a deletion is removed. It must be longer than the time for which any record
    /// can be processed again (the log's retention, plus the longest outage), because an older put of the same row
    /// that arrives later would bring the row back.
    pub tombstone_days: u32,
    /// Seconds between two passes of the sweep that removes expired rows and old tombstones from the disk.
    pub sweep_every_seconds: u64,
    /// Rows a second that the sweep reads at most.
    pub sweep_rows_per_second: u32,
    /// Size limit of a row, in bytes. The record of a larger row becomes a dead letter. The default is the limit for
    /// Cassandra, so that data of this engine also fits there.
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
        let invalid = |text: &str| Err(Error::Settings(text.to_owned()));
        if self.page_rows == 0 {
            return invalid("page_rows is 0");
        }
        // A smaller queue would never fill a group.
        if self.group_bytes == 0 || self.queue_bytes < self.group_bytes {
            return invalid(&format!(
                "queue_bytes ({}) must hold at least one group, and group_bytes ({}) must not be 0",
                self.queue_bytes, self.group_bytes
            ));
        }
        if self.tombstone_days == 0 {
            return invalid("tombstone_days is 0: every replayed put would bring deleted rows back");
        }
        if self.sweep_rows_per_second == 0 {
            return invalid("sweep_rows_per_second is 0: expired rows would never be removed from the disk");
        }
        if self.max_row_bytes == 0 {
            return invalid("max_row_bytes is 0: no row could be written");
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
