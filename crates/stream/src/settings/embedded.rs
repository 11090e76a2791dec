//! Settings of the log inside the process. The folder is not among them, because the binary opens the shared database.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::OpenError;

/// The section `stream.embedded`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EmbeddedSettings {
    /// Size limit of the data folder, in bytes; 0 sets no limit. At nine tenths of it new requests are refused and `/readyz`
    /// reports it; the last tenth is reserved for effects of accepted requests. Default 0.
    pub max_bytes: u64,
    /// Bytes of the disk that stay free, in addition to pending writes and compactions. Below it new requests are refused,
    /// below a quarter of it every append. Default an eighth of the disk, at most 512 MiB.
    pub min_free_bytes: Option<u64>,
    /// Period for which requests leave room for writes at the rate of the last seconds, in milliseconds.
    /// Default 2,000.
    pub disk_reaction_ms: u64,
    /// Time for which records are kept after every group has passed them, in milliseconds. Default 7 days.
    pub retention_ms: u64,
    /// Bytes of records that one partition keeps; 0 sets no limit. Above it the oldest records that every group has passed are
    /// removed; records that a group still needs count, but stay. Default 1 GiB.
    pub retention_bytes: u64,
    /// Interval between two checks of retention, in milliseconds. The disk is measured every second, and more often
    /// when it is nearly full. Default 10,000.
    pub housekeeping_ms: u64,
    /// Largest number of bytes of records that one sync makes durable. Default 8 MiB.
    pub group_commit_bytes: usize,
    /// Bytes of appends that may be queued for the writer; above it appends are refused as full.
    /// Default 64 MiB.
    pub queue_bytes: usize,
}

impl Default for EmbeddedSettings {
    fn default() -> Self {
        Self {
            max_bytes: 0,
            min_free_bytes: None,
            disk_reaction_ms: 2_000,
            retention_ms: 7 * 24 * 60 * 60 * 1_000,
            retention_bytes: 1 << 30,
            housekeeping_ms: 10_000,
            group_commit_bytes: 8 << 20,
            queue_bytes: 64 << 20,
        }
    }
}

impl EmbeddedSettings {
    pub(crate) const fn retention(&self) -> Duration {
        Duration::from_millis(self.retention_ms)
    }

    pub(crate) const fn housekeeping(&self) -> Duration {
        Duration::from_millis(self.housekeeping_ms)
    }

    pub(crate) fn validate(&self) -> Result<(), OpenError> {
        let refuse = |text: String| Err(OpenError::Settings(text));
        if self.housekeeping_ms == 0 {
            return refuse("stream.embedded.housekeeping_ms must be above 0".to_owned());
        }
        if self.group_commit_bytes == 0 {
            return refuse("stream.embedded.group_commit_bytes must be above 0".to_owned());
        }
        let largest = crate::topics::Topic::DeadLetters.max_record_bytes();
        if self.queue_bytes < largest {
            return refuse(format!(
                "stream.embedded.queue_bytes is {}, below the {largest} bytes of the largest record",
                self.queue_bytes
            ));
        }
        if self.max_bytes != 0 && self.max_bytes < 128 << 20 {
            return refuse(format!(
                "stream.embedded.max_bytes is {}, but the data folder needs at least {} to work in",
                self.max_bytes,
                128 << 20
            ));
        }
        Ok(())
    }
}
