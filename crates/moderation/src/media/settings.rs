//! Settings of the section `signals`, with their defaults. `egress.media` configures a single request, `media`
//! the decoding.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_scheduler::Limits;

use crate::outbound::{host_breaker::BreakerSettings, retry::Retries};

/// The section `signals` of the service's settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Maximum number of media fetched per item; further ones are `fetch_failed`, reason `too_many`. Default 64.
    pub per_item: usize,
    /// Maximum number of concurrent fetches. An organisation holds at most as many as it leaves to the others. Default
    /// 256.
    pub fetches: usize,
    /// Maximum number of concurrent fetches from one host, for all organisations. One organisation holds at most as
    /// many as it leaves to the others, so this should be twice `signals.fetches_per_host`. Default 16.
    pub fetches_per_host_in_all: usize,
    /// The same limit for one organisation. Default 8.
    pub fetches_per_host: usize,
    /// Maximum number of concurrent fetches of one organisation. A host holds at most as many as it leaves to the
    /// others. Hosts that rest or never delivered a medium share half of them. Default 64.
    pub fetches_per_org: usize,
    /// Maximum number of fetches that continue after their item was handed over, at some 4 KiB each. An organisation
    /// holds at most as many as it leaves to the others. Further fetches are dropped and restarted when it is the
    /// item's turn; with 0, all of them. Default 16,384.
    pub left_running: usize,
    /// Memory for bodies that arrive or wait for a decoder, in bytes. Should hold several bodies of the size
    /// `egress.media.max_bytes`. Default 512 MiB.
    pub body_bytes: u64,
    /// The same limit for one organisation; above it, its bodies wait for each other. Should hold one of the largest
    /// bodies. Default 128 MiB.
    pub body_bytes_per_org: u64,
    /// Longest wait of a fetch for memory, in milliseconds. Default 5,000.
    pub room_wait_ms: u64,
    /// Maximum number of attempts per medium. Failed connections, the statuses 408, 429 and 5xx, and resting hosts
    /// lead to another attempt. After this number of consecutive rests, fetches do not wait for the host. Default 3.
    pub attempts: u32,
    /// Longest pause before the second attempt, in milliseconds; it doubles with each attempt. Default 500.
    pub retry_ms: u64,
    /// Longest pause between two attempts, in milliseconds. If a host requests a longer pause, the fetch fails.
    /// Default 30,000.
    pub longest_retry_ms: u64,
    /// Consecutive failures after which a host rests. Default 8.
    pub host_failures: u32,
    /// Duration of the first rest, in milliseconds; it doubles with each further failure. Default 5,000.
    pub host_rest_ms: u64,
    /// Longest rest, in milliseconds. Default 60,000.
    pub longest_host_rest_ms: u64,
    /// Maximum number of remembered failing hosts, and of remembered hosts that delivered a medium. Default 10,000.
    pub hosts: usize,
    /// Longest time for which the content of a URL is used without asking the host again, in milliseconds. Default
    /// 300,000.
    pub url_ttl_ms: u64,
    /// Maximum number of URLs with cached content. Default 10,000.
    pub urls: usize,
    /// Maximum number of contents with hashes cached in memory; the store keeps the hashes for 30 days. Default
    /// 50,000.
    pub contents: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            per_item: 64,
            fetches: 256,
            fetches_per_host_in_all: 16,
            fetches_per_host: 8,
            fetches_per_org: 64,
            left_running: 16_384,
            body_bytes: 512 << 20,
            body_bytes_per_org: 128 << 20,
            room_wait_ms: 5_000,
            attempts: 3,
            retry_ms: 500,
            longest_retry_ms: 30_000,
            host_failures: 8,
            host_rest_ms: 5_000,
            longest_host_rest_ms: 60_000,
            hosts: 10_000,
            url_ttl_ms: 300_000,
            urls: 10_000,
            contents: 50_000,
        }
    }
}

/// Setting with a value that is unusable alone or together with another setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SettingsError(String);

impl SettingsError {
    pub const fn tag(&self) -> &'static str {
        "setting_unusable"
    }
}

impl Settings {
    /// Checks the values. The error names both settings where two contradict each other.
    pub fn validate(&self) -> Result<(), SettingsError> {
        for (name, value) in [
            ("per_item", self.per_item as u64),
            ("fetches", self.fetches as u64),
            ("fetches_per_host", self.fetches_per_host as u64),
            ("fetches_per_org", self.fetches_per_org as u64),
            ("room_wait_ms", self.room_wait_ms),
            ("attempts", self.attempts.into()),
            ("host_failures", self.host_failures.into()),
            ("host_rest_ms", self.host_rest_ms),
            ("hosts", self.hosts as u64),
        ] {
            if value == 0 {
                return Err(SettingsError(format!("signals.{name} must be above 0")));
            }
        }
        if self.body_bytes < 1 << 20 || self.body_bytes > 1 << 40 {
            return Err(SettingsError(format!(
                "signals.body_bytes = {} must be from 1 MiB to 1 TiB",
                self.body_bytes
            )));
        }
        if self.body_bytes_per_org < 1 << 20 {
            return Err(SettingsError(format!(
                "signals.body_bytes_per_org = {} must be at least 1 MiB",
                self.body_bytes_per_org
            )));
        }
        for (lesser, less, greater, great) in [
            ("body_bytes_per_org", self.body_bytes_per_org, "body_bytes", self.body_bytes),
            (
                "fetches_per_host",
                self.fetches_per_host as u64,
                "fetches_per_host_in_all",
                self.fetches_per_host_in_all as u64,
            ),
            ("fetches_per_host_in_all", self.fetches_per_host_in_all as u64, "fetches", self.fetches as u64),
            ("fetches_per_org", self.fetches_per_org as u64, "fetches", self.fetches as u64),
            ("retry_ms", self.retry_ms, "longest_retry_ms", self.longest_retry_ms),
            ("host_rest_ms", self.host_rest_ms, "longest_host_rest_ms", self.longest_host_rest_ms),
        ] {
            if less > great {
                return Err(SettingsError(format!(
                    "signals.{lesser} = {less} must not be above signals.{greater} = {great}"
                )));
            }
        }
        Ok(())
    }

    /// Returns the limits of fetches. Waiting fetches need no limit: they belong to items, and those are bounded.
    pub(super) fn limits(&self) -> Limits {
        Limits {
            running: self.fetches,
            running_per_org: self.fetches_per_org,
            running_per_key: self.fetches_per_host_in_all,
            running_per_org_and_key: self.fetches_per_host,
            ..Limits::UNLIMITED
        }
    }

    pub(super) fn retries(&self) -> Retries {
        Retries {
            attempts: self.attempts,
            step: Duration::from_millis(self.retry_ms),
            longest: Duration::from_millis(self.longest_retry_ms),
        }
    }

    /// Returns the settings of host breakers. `probe` is the longest duration of one attempt.
    pub(super) fn breakers(&self, probe: Duration) -> BreakerSettings {
        BreakerSettings {
            failures: self.host_failures,
            rest: Duration::from_millis(self.host_rest_ms),
            longest_rest: Duration::from_millis(self.longest_host_rest_ms),
            probe,
            rests: self.attempts,
            hosts: self.hosts,
        }
    }

    pub(super) fn room_wait(&self) -> Duration {
        Duration::from_millis(self.room_wait_ms)
    }

    pub(super) fn url_ttl(&self) -> Duration {
        Duration::from_millis(self.url_ttl_ms)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn an_empty_section_is_the_documented_default() {
        let settings: Settings = serde_json::from_str("{}").unwrap();
        assert_eq!(settings, Settings::default());
        settings.validate().unwrap();
    }

    #[test]
    fn contradicting_settings_are_rejected_by_name() {
        for (settings, named) in [
            (Settings { attempts: 0, ..Settings::default() }, "signals.attempts"),
            (Settings { body_bytes: 1, ..Settings::default() }, "signals.body_bytes = 1"),
            (Settings { body_bytes_per_org: 0, ..Settings::default() }, "signals.body_bytes_per_org = 0"),
            (
                Settings { body_bytes: 1 << 20, ..Settings::default() },
                "signals.body_bytes_per_org = 134217728",
            ),
            (Settings { fetches: 4, ..Settings::default() }, "signals.fetches = 4"),
            (
                Settings { fetches_per_host: 17, ..Settings::default() },
                "signals.fetches_per_host_in_all = 16",
            ),
            (Settings { longest_host_rest_ms: 1, ..Settings::default() }, "signals.host_rest_ms = 5000"),
        ] {
            let error = settings.validate().unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
    }
}
