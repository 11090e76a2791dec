//! Settings of the section `ingest`: defaults and checks.
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
    /// Approximate size of a record in bytes: items of one request and partition share a record up to it. A larger item has
    /// its own record. Default 921,600.
    pub record_bytes: usize,
    /// Size in bytes above which bodies are parsed on a separate thread, so they do not delay other requests. Default
    /// 131,072.
    pub offload_bytes: usize,
    /// Longest `wait` of a look-up in milliseconds. A longer one is shortened to it. Default 30,000.
    pub longest_wait_ms: u64,
    /// Longest wait of `POST /api/v1/content` for the evaluation, in milliseconds. Default 5,000.
    pub content_wait_ms: u64,
    /// Number of look-ups and requests of `/api/v1/content` that may wait concurrently; further ones are answered with
    /// 503. An organisation may use as many places as it leaves free. Default 1,000.
    pub waiting_requests: usize,
    /// Age in seconds of the oldest unprocessed item above which items are answered with 503. It applies to
    /// organisations with delayed items that use most of the processing time. 0: items are accepted at any age. Default
    /// 900.
    pub max_lag_seconds: u64,
    /// `Retry-After` in milliseconds for requests refused by an unavailable log or store, rounded up to seconds. Default
    /// 2,000.
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

/// Unusable value in the settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    #[error("ingest.limits: {0}")]
    Limits(String),
    #[error("ingest.record_bytes = {0} must be between 1 and {MAX_RECORD_BYTES}, the largest record size")]
    RecordBytes(usize),
}

/// Largest record size. The log accepts 10 MiB; the difference leaves room for the record's envelope.
const MAX_RECORD_BYTES: usize = 8 << 20;

impl Settings {
    pub fn validate(&self) -> Result<(), SettingsError> {
        self.limits.validate().map_err(SettingsError::Limits)?;
        if self.record_bytes == 0 || self.record_bytes > MAX_RECORD_BYTES {
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
    fn defaults_are_valid_and_unknown_settings_are_refused() {
        Settings::default().validate().unwrap();
        assert_eq!(serde_json::from_str::<Settings>("{}").unwrap(), Settings::default());
        assert!(serde_json::from_str::<Settings>(r#"{"record_byte":1}"#).is_err());
    }

    #[test]
    fn record_size_above_the_logs_limit_is_refused_at_startup() {
        for record_bytes in [0, 9 << 20] {
            let settings = Settings { record_bytes, ..Settings::default() };
            assert_eq!(settings.validate(), Err(SettingsError::RecordBytes(record_bytes)));
        }
        let limits = Limits { items: 0, ..Limits::default() };
        assert!(Settings { limits, ..Settings::default() }.validate().is_err());
    }
}
