//! Settings of the API, with their defaults.
//!
//! Limits of connections, bodies and rates belong to the HTTP server: see `tidegate_web::Settings`.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_schemas::wire::Limits;

/// The section `ingest` of the service's settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Limits of one request.
    pub limits: Limits,
    /// Items of one request that share a partition are put into records of about this size, in bytes; an item above
    /// it has a record of its own. Default 921,600.
    pub record_bytes: usize,
    /// Bodies above this size are parsed on a thread of their own, so that they hold up no other request, in bytes.
    /// Default 131,072.
    pub offload_bytes: usize,
    /// The longest `wait` of a look-up; a longer one is cut, in milliseconds. Default 30,000.
    pub longest_wait_ms: u64,
    /// The longest that `POST /api/v1/content` waits for its evaluation, in milliseconds. Default 5,000.
    pub content_wait_ms: u64,
    /// Number of look-ups and requests of `/api/v1/content` that may wait at once; above it they are answered with 503. An organisation may hold as many
    /// of them as it leaves to all others. Default 1,000.
    pub waiting_requests: usize,
    /// Age of the oldest unprocessed item in seconds above which items are answered with 503: of the organisations whose own
    /// items wait and that take most of the processing time. 0: items are accepted however far processing is behind. Default 900.
    pub max_lag_seconds: u64,
    /// Milliseconds in `Retry-After` when the log or the store cannot take a request, rounded up to whole seconds.
    /// Default 2,000.
    pub retry_after_ms: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            record_bytes: 900 << 10,
            offload_bytes: 128 << 10,
            longest_wait_ms: 30_000,
            content_wait_ms: 5_000,
            waiting_requests: 1_000,
            max_lag_seconds: 900,
            retry_after_ms: 2_000,
        }
    }
}

/// A value that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    #[error("ingest.limits: {0}")]
    Limits(String),
    #[error("ingest.record_bytes = {0}: must be between 1 and {LARGEST_RECORD}, or the log takes no record")]
    RecordBytes(usize),
}

/// The log takes ten MiB; beside the items a record holds its envelope.
const LARGEST_RECORD: usize = 8 << 20;

impl Settings {
    pub fn validate(&self) -> Result<(), SettingsError> {
        self.limits.validate().map_err(SettingsError::Limits)?;
        if self.record_bytes == 0 || self.record_bytes > LARGEST_RECORD {
            return Err(SettingsError::RecordBytes(self.record_bytes));
        }
        Ok(())
    }

    pub(crate) fn longest_wait(&self) -> Duration {
        Duration::from_millis(self.longest_wait_ms)
    }

    pub(crate) fn content_wait(&self) -> Duration {
        Duration::from_millis(self.content_wait_ms)
    }

    pub(crate) fn max_lag(&self) -> Option<Duration> {
        (self.max_lag_seconds > 0).then(|| Duration::from_secs(self.max_lag_seconds))
    }

    pub(crate) fn retry_after(&self) -> Duration {
        Duration::from_millis(self.retry_after_ms)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_defaults_hold_together_and_an_unknown_setting_is_refused() {
        Settings::default().validate().unwrap();
        assert_eq!(serde_json::from_str::<Settings>("{}").unwrap(), Settings::default());
        assert!(serde_json::from_str::<Settings>(r#"{"record_byte":1}"#).is_err());
    }

    #[test]
    fn a_record_that_the_log_would_refuse_is_refused_at_the_start() {
        for record_bytes in [0, 9 << 20] {
            let settings = Settings { record_bytes, ..Settings::default() };
            assert_eq!(settings.validate(), Err(SettingsError::RecordBytes(record_bytes)));
        }
        let limits = Limits { items: 0, ..Limits::default() };
        assert!(Settings { limits, ..Settings::default() }.validate().is_err());
    }
}
