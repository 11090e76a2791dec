//! Settings of configurations and keys, with their defaults. `secrets::Security` has the master key.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_rules::Limits;

/// Section `catalog` of the service's settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Interval in milliseconds at which a process polls for changed configurations and banks, at most 500: a
    /// change takes effect within a second. Default 250.
    pub poll_ms: u64,
    /// Interval in milliseconds at which all configuration heads are read even without a sign of change.
    /// Default 30,000.
    pub heads_every_ms: u64,
    /// Interval in milliseconds of the process's heartbeat; its row expires after 30 seconds. Default 5,000.
    pub member_every_ms: u64,
    /// Name of the process in the list of members. Default its process id.
    pub member_label: String,
    /// Time in milliseconds without an answer from the store after which the process reports not ready.
    /// Default 10,000.
    pub stale_after_ms: u64,
    /// Number of configurations compiled concurrently; 0 means the number of processors. Default 0.
    pub compilers: usize,
    /// Number of configurations read, checked and written concurrently for requests, at most one of each
    /// organisation; 0 means half the number of processors, and at least 2. Default 0.
    pub computations: usize,
    /// Milliseconds for which such a request waits for its permit. Default 20,000.
    pub computation_wait_ms: u64,
    /// Bytes of current configurations cached for such requests. A configuration above a quarter of them is
    /// not cached. Default 64 MiB.
    pub cached_configuration_bytes: usize,
    /// Prefix of the environment variables that header values may name, as in `${CALLBACK_TOKEN}`. Other
    /// variables are refused: the author of an endpoint receives the values of its headers. Default
    /// `CALLBACK_`.
    pub header_variable_prefix: String,
    /// Seconds for which a signing secret is cached, and so the longest delay of a changed one. Default 30.
    pub secret_cache_seconds: u64,
    /// Second part of new API keys, which distinguishes the keys of several installations. Default `live`.
    pub key_env: String,
    /// Seconds for which a valid API key is cached, and so the longest time for which a revoked one works.
    /// Default 30.
    pub key_cache_seconds: u64,
    /// Seconds for which an unknown API key is cached as unknown. Default 5.
    pub unknown_key_cache_seconds: u64,
    /// Greatest number of cached keys, known and unknown, and of cached secrets. Default 10,000.
    pub cache_entries: usize,
    /// Number of superseded versions kept of an item type, to check items of earlier versions. An item of a
    /// version that is no longer kept is checked against the oldest kept one. Default 100.
    pub item_type_versions: usize,
    /// Limits of rules.
    pub rules: Limits,
    /// Comparison of media with hash banks.
    pub hash_banks: tidegate_media::banks::Settings,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            poll_ms: 250,
            heads_every_ms: 30_000,
            member_every_ms: 5_000,
            member_label: format!("process {}", std::process::id()),
            stale_after_ms: 10_000,
            compilers: 0,
            computations: 0,
            computation_wait_ms: 20_000,
            cached_configuration_bytes: 64 << 20,
            header_variable_prefix: "CALLBACK_".to_owned(),
            secret_cache_seconds: 30,
            key_env: "live".to_owned(),
            key_cache_seconds: 30,
            unknown_key_cache_seconds: 5,
            cache_entries: 10_000,
            item_type_versions: 100,
            rules: Limits::default(),
            hash_banks: tidegate_media::banks::Settings::default(),
        }
    }
}

/// Invalid value, by itself or in combination with another.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    #[error("catalog.{name} = {value}: {reason}")]
    Unusable { name: &'static str, value: String, reason: &'static str },
    #[error("catalog.{lesser} = {less} must be below catalog.{greater} = {great}")]
    Contradiction { lesser: &'static str, less: u64, greater: &'static str, great: u64 },
    #[error("catalog.rules.{0}")]
    Rules(String),
}

impl SettingsError {
    pub fn tag(&self) -> &'static str {
        match self {
            Self::Unusable { .. } => "setting_unusable",
            Self::Contradiction { .. } => "settings_contradict",
            Self::Rules(_) => "limit_out_of_range",
        }
    }
}

/// Half of the promised second; the other half is for reading the change.
const MAX_POLL_MS: u64 = 500;

/// A third of the 30 seconds for which a member's row lives, so that two renewals may fail.
const MAX_MEMBER_INTERVAL_MS: u64 = 10_000;

impl Settings {
    /// Validates the values, naming both settings of a contradiction.
    pub fn validate(&self) -> Result<(), SettingsError> {
        let unusable = |name, value: String, reason| Err(SettingsError::Unusable { name, value, reason });
        for (name, value) in [
            ("poll_ms", self.poll_ms),
            ("heads_every_ms", self.heads_every_ms),
            ("member_every_ms", self.member_every_ms),
            ("cache_entries", self.cache_entries as u64),
        ] {
            if value == 0 {
                return unusable(name, "0".to_owned(), "must be at least 1");
            }
        }
        if self.poll_ms > MAX_POLL_MS {
            let reason = "must be at most 500: a new entry of a bank shall be seen within a second";
            return unusable("poll_ms", self.poll_ms.to_string(), reason);
        }
        if self.member_every_ms > MAX_MEMBER_INTERVAL_MS {
            let reason = "must be at most 10000: the row of a member expires after 30 seconds";
            return unusable("member_every_ms", self.member_every_ms.to_string(), reason);
        }
        for (greater, great) in
            [("heads_every_ms", self.heads_every_ms), ("stale_after_ms", self.stale_after_ms)]
        {
            if self.poll_ms >= great {
                let (lesser, less) = ("poll_ms", self.poll_ms);
                return Err(SettingsError::Contradiction { lesser, less, greater, great });
            }
        }
        if self.header_variable_prefix.is_empty() {
            let reason = "must not be empty: every variable of the process could be sent to an endpoint";
            return unusable("header_variable_prefix", String::new(), reason);
        }
        if !is_env(&self.key_env) {
            return unusable("key_env", format!("{:?}", self.key_env), "must be 1 to 16 letters and digits");
        }
        self.rules.validate().map_err(|error| SettingsError::Rules(error.to_string()))
    }

    pub(crate) fn poll(&self) -> Duration {
        Duration::from_millis(self.poll_ms)
    }

    pub(crate) fn heads_every(&self) -> Duration {
        Duration::from_millis(self.heads_every_ms)
    }

    pub(crate) fn member_every(&self) -> Duration {
        Duration::from_millis(self.member_every_ms)
    }

    /// At least 2, so that an org never waits for a single other one. The operating system shares the
    /// processors.
    pub(crate) fn computations(&self) -> usize {
        match self.computations {
            0 => std::thread::available_parallelism().map_or(2, |all| (all.get() / 2).max(2)),
            configured => configured,
        }
    }

    pub(crate) fn computation_wait(&self) -> Duration {
        Duration::from_millis(self.computation_wait_ms)
    }

    pub(crate) fn stale_after(&self) -> Duration {
        Duration::from_millis(self.stale_after_ms)
    }
}

/// True if the text can be the environment in a key: letters and digits, so that the parts of a key remain
/// separable.
pub(crate) fn is_env(env: &str) -> bool {
    (1..=16).contains(&env.len()) && env.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn defaults_are_valid_and_unknown_settings_are_refused() {
        Settings::default().validate().unwrap();
        assert_eq!(serde_json::from_str::<Settings>("{}").unwrap(), Settings::default());
        assert!(serde_json::from_str::<Settings>(r#"{"pol_ms":1}"#).is_err());
    }

    #[test]
    fn invalid_setting_is_named() {
        for (settings, name) in [
            (Settings { poll_ms: 0, ..Settings::default() }, "poll_ms = 0"),
            (Settings { poll_ms: 501, ..Settings::default() }, "poll_ms = 501: must be at most 500"),
            (Settings { heads_every_ms: 250, ..Settings::default() }, "heads_every_ms = 250"),
            (Settings { member_every_ms: 20_000, ..Settings::default() }, "member_every_ms = 20000"),
            (Settings { key_env: "a_b".to_owned(), ..Settings::default() }, "key_env"),
            (Settings { header_variable_prefix: String::new(), ..Settings::default() }, "header_variable"),
            (
                Settings { rules: Limits { depth: 99, ..Limits::default() }, ..Settings::default() },
                "depth = 99",
            ),
        ] {
            let fault = settings.validate().unwrap_err().to_string();
            assert!(fault.contains(name), "{fault}");
        }
    }
}
