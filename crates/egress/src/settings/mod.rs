//! Settings of outgoing requests, with their defaults and validation.

mod media;
pub mod partial_items;

use std::path::PathBuf;
use std::time::Duration;

use http::HeaderValue;
use serde::{Deserialize, Serialize};

pub use self::media::MediaSettings;
pub use self::partial_items::{PartialItemsEndpoints, PartialItemsSettings};
use crate::addresses::Cidr;
use crate::tls::{self, TlsError};

/// Section `egress` of the service's settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Allowed address ranges that are not public, such as `10.0.0.0/8` for receivers in the operator's own
    /// network. Every client that can name a URL reaches all addresses in them. Default none: only public
    /// addresses.
    pub allow_cidrs: Vec<Cidr>,
    /// Time for DNS, TCP and TLS together, in milliseconds. Default 3,000.
    pub connect_timeout_ms: u64,
    /// Time of a whole callback attempt, including the response body, in milliseconds. Default 15,000.
    pub total_timeout_ms: u64,
    /// Greatest number of bytes read of a callback's response. Default 16 KiB.
    pub response_read_bytes: u64,
    /// Greatest number of bytes of a callback's response stored with the attempt. Default 4 KiB.
    pub response_kept_bytes: usize,
    /// Greatest length of a model's answer, in bytes; a longer one is a failure. Default 1 MiB.
    pub score_response_bytes: u64,
    /// Lowest rate of a body after the grace time, in bytes per second; 0 accepts any rate. Default 256.
    pub min_rate: u64,
    /// Time before the rate of a body is enforced, in milliseconds. Default 5,000.
    pub min_rate_grace_ms: u64,
    /// Value of the `User-Agent` header. Default `tidegate/<version>`.
    pub user_agent: String,
    /// Time for which an idle connection stays open, in milliseconds. Default 60,000.
    pub pool_idle_ms: u64,
    /// Number of idle connections kept per host. Default 8.
    pub pool_idle_per_host: usize,
    /// Number of concurrent DNS lookups. Each occupies a thread until the system's resolver ends, even if its
    /// request was cancelled. Default 256.
    pub lookups: usize,
    /// PEM file of certificate authorities to trust in addition to those of the machine, for receivers with a
    /// private one. Default none.
    pub ca_file: Option<PathBuf>,
    /// Settings of media fetches.
    pub media: MediaSettings,
    /// Settings of requests for items.
    pub partial_items: PartialItemsSettings,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            allow_cidrs: Vec::new(),
            connect_timeout_ms: 3_000,
            total_timeout_ms: 15_000,
            response_read_bytes: 16 * 1024,
            response_kept_bytes: 4 * 1024,
            score_response_bytes: 1 << 20,
            min_rate: 256,
            min_rate_grace_ms: 5_000,
            user_agent: concat!("tidegate/", env!("CARGO_PKG_VERSION")).to_owned(),
            pool_idle_ms: 60_000,
            pool_idle_per_host: 8,
            lookups: 256,
            ca_file: None,
            media: MediaSettings::default(),
            partial_items: PartialItemsSettings::default(),
        }
    }
}

/// Invalid value, by itself or in combination with another.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    #[error("egress.{name} = {value}: {reason}")]
    Unusable { name: &'static str, value: String, reason: &'static str },
    #[error("egress.{lesser} = {less} is above egress.{greater} = {great}")]
    Contradiction { lesser: &'static str, less: u64, greater: &'static str, great: u64 },
}

impl SettingsError {
    pub fn tag(&self) -> &'static str {
        match self {
            Self::Unusable { .. } => "setting_unusable",
            Self::Contradiction { .. } => "settings_contradict",
        }
    }
}

impl Settings {
    /// Validates the values, naming both settings of a contradiction.
    pub fn validate(&self) -> Result<(), SettingsError> {
        for (name, value) in [
            ("connect_timeout_ms", self.connect_timeout_ms),
            ("total_timeout_ms", self.total_timeout_ms),
            ("lookups", self.lookups as u64),
            ("score_response_bytes", self.score_response_bytes),
        ] {
            if value == 0 {
                return Err(SettingsError::Unusable {
                    name,
                    value: value.to_string(),
                    reason: "must be at least 1",
                });
            }
        }
        if self.lookups > 10_000 {
            return Err(SettingsError::Unusable {
                name: "lookups",
                value: self.lookups.to_string(),
                reason: "must be at most 10000, each may hold a thread",
            });
        }
        for (lesser, less, greater, great) in [
            ("connect_timeout_ms", self.connect_timeout_ms, "total_timeout_ms", self.total_timeout_ms),
            (
                "response_kept_bytes",
                self.response_kept_bytes as u64,
                "response_read_bytes",
                self.response_read_bytes,
            ),
        ] {
            if less > great {
                return Err(SettingsError::Contradiction { lesser, less, greater, great });
            }
        }
        if self.user_agent.is_empty() || HeaderValue::from_str(&self.user_agent).is_err() {
            return Err(SettingsError::Unusable {
                name: "user_agent",
                value: format!("{:?}", self.user_agent),
                reason: "must be printable text that fits a header",
            });
        }
        self.media.validate()?;
        self.partial_items.validate()
    }

    /// Validates the files that the settings name.
    pub fn check_files(&self) -> Result<(), TlsError> {
        tls::client_config(self.ca_file.as_deref()).map(drop)
    }

    pub(crate) fn connect_timeout(&self) -> Duration {
        Duration::from_millis(self.connect_timeout_ms)
    }

    pub(crate) fn total_timeout(&self) -> Duration {
        Duration::from_millis(self.total_timeout_ms)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn defaults_are_valid_and_open_no_range() {
        let settings = Settings::default();
        settings.validate().unwrap();
        assert_eq!(settings.allow_cidrs, []);
        assert_eq!(serde_json::from_str::<Settings>("{}").unwrap(), settings);
    }

    #[test]
    fn contradiction_names_both_values() {
        let settings = Settings { connect_timeout_ms: 20_000, ..Settings::default() };
        assert_eq!(
            settings.validate().unwrap_err().to_string(),
            "egress.connect_timeout_ms = 20000 is above egress.total_timeout_ms = 15000"
        );
        let settings = Settings { response_kept_bytes: 20_000, ..Settings::default() };
        let text = settings.validate().unwrap_err().to_string();
        assert!(
            text.contains("response_kept_bytes = 20000") && text.contains("response_read_bytes = 16384"),
            "{text}"
        );
    }

    #[test]
    fn invalid_value_is_named() {
        for (settings, name) in [
            (Settings { total_timeout_ms: 0, ..Settings::default() }, "total_timeout_ms"),
            (Settings { connect_timeout_ms: 0, ..Settings::default() }, "connect_timeout_ms"),
            (Settings { lookups: 0, ..Settings::default() }, "lookups"),
            (Settings { lookups: 1_000_000, ..Settings::default() }, "lookups"),
            (Settings { user_agent: "a\nb".to_owned(), ..Settings::default() }, "user_agent"),
            (Settings { user_agent: String::new(), ..Settings::default() }, "user_agent"),
        ] {
            let error = settings.validate().unwrap_err();
            assert!(error.to_string().contains(name), "{error}");
            assert_eq!(error.tag(), "setting_unusable");
        }
    }

    #[test]
    fn unknown_or_malformed_setting_is_refused() {
        for (text, named) in [
            (r#"{"allow_cidr": []}"#, "allow_cidr"),
            (r#"{"allow_cidrs": ["10.0.0.0/40"]}"#, "10.0.0.0/40"),
            (r#"{"allow_cidrs": ["inside"]}"#, "inside"),
        ] {
            let error = serde_json::from_str::<Settings>(text).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
    }
}
