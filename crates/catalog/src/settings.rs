//! Settings of configurations and keys, with their defaults.
//!
//! It does not hold the master key; see `secrets::Security`.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_rules::Limits;

/// The section `catalog` of the service's settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Interval in milliseconds at which a process asks whether any configuration or bank changed, at most 500: a
    /// change shall be seen within a second. Default 250.
    pub poll_ms: u64,
    /// Interval in milliseconds at which every organisation's configuration is read anyway. Default 30,000.
    pub heads_every_ms: u64,
    /// Interval in milliseconds at which the process tells the others that it lives; its row expires after 30 seconds.
    /// Default 5,000.
    pub member_every_ms: u64,
    /// Name of the process in the list of members. Default its process id.
    pub member_label: String,
    /// Time in milliseconds without an answer from the store after which the process is not ready. Default 10,000.
    pub stale_after_ms: u64,
    /// Number of configurations that are compiled at once; 0 means as many as there are processors. Default 0.
    pub compilers: usize,
    /// Number of configurations that are read, checked and written out at once for requests, one of each organisation;
    /// 0 means half as many as there are processors, and at least 2. Default 0.
    pub computations: usize,
    /// Milliseconds for which such a request waits for its turn. Default 20,000.
    pub computation_wait_ms: u64,
    /// Bytes of current configurations that are cached for such requests. One that takes more than a quarter of them is
    /// not cached. Default 64 MiB.
    pub cached_configuration_bytes: usize,
    /// Header values of endpoints may name environment variables that begin so, as `${CALLBACK_TOKEN}`. Any other
    /// variable stays out of reach: whoever configures an endpoint receives what its headers hold. Default `CALLBACK_`.
    pub header_variable_prefix: String,
    /// Seconds for which a signing secret is cached, and for which a changed one may go unnoticed. Default 30.
    pub secret_cache_seconds: u64,
    /// The second part of new API keys, to tell those of several installations apart. Default `live`.
    pub key_env: String,
    /// Seconds for which a valid API key is cached, and for which a revoked one still works. Default 30.
    pub key_cache_seconds: u64,
    /// Seconds for which an unknown API key is remembered as unknown. Default 5.
    pub unknown_key_cache_seconds: u64,
    /// Number of keys, known and unknown, and of secrets that are cached. Default 10,000.
    pub cache_entries: usize,
    /// Number of superseded forms of an item type that are kept, to check items of earlier versions; an item of a version
    /// before them is checked against the oldest one that is kept. Default 100.
    pub item_type_versions: usize,
    /// Bounds of rules.
    pub rules: Limits,
    /// Comparison of media with banks of hashes.
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

/// A value that cannot be used, alone or beside another.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    #[error("catalog.{name} = {value}: {why}")]
    Unusable { name: &'static str, value: String, why: &'static str },
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

/// Half of the second that is promised; the other half is for reading what changed.
const LONGEST_POLL_MS: u64 = 500;

/// A member's row lives for 30 seconds: two renewals may be missed.
const LONGEST_MEMBER_MS: u64 = 10_000;

impl Settings {
    /// Refuses values that cannot work, naming both where two contradict each other.
    pub fn validate(&self) -> Result<(), SettingsError> {
        let unusable = |name, value: String, why| Err(SettingsError::Unusable { name, value, why });
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
        if self.poll_ms > LONGEST_POLL_MS {
            let why = "must be at most 500: a new entry of a bank shall be seen within a second";
            return unusable("poll_ms", self.poll_ms.to_string(), why);
        }
        if self.member_every_ms > LONGEST_MEMBER_MS {
            let why = "must be at most 10000: the row of a member expires after 30 seconds";
            return unusable("member_every_ms", self.member_every_ms.to_string(), why);
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
            let why = "must not be empty: every variable of the process could be sent to an endpoint";
            return unusable("header_variable_prefix", String::new(), why);
        }
        if !is_env(&self.key_env) {
            return unusable("key_env", format!("{:?}", self.key_env), "must be 1 to 16 letters and digits");
        }
        self.rules.validate().map_err(|found| SettingsError::Rules(found.to_string()))
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

    /// Two of few processors, so that an org never waits for a single other one: the system shares them out.
    pub(crate) fn computations(&self) -> usize {
        match self.computations {
            0 => std::thread::available_parallelism().map_or(2, |all| (all.get() / 2).max(2)),
            some => some,
        }
    }

    pub(crate) fn computation_wait(&self) -> Duration {
        Duration::from_millis(self.computation_wait_ms)
    }

    pub(crate) fn stale_after(&self) -> Duration {
        Duration::from_millis(self.stale_after_ms)
    }
}

/// True if the text can be the environment in a key: letters and digits, so that the parts of a key stay apart.
pub(crate) fn is_env(env: &str) -> bool {
    (1..=16).contains(&env.len()) && env.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_defaults_hold_together_and_an_unknown_setting_is_refused() {
        Settings::default().validate().unwrap();
        assert_eq!(serde_json::from_str::<Settings>("{}").unwrap(), Settings::default());
        assert!(serde_json::from_str::<Settings>(r#"{"pol_ms":1}"#).is_err());
    }

    #[test]
    fn a_value_that_cannot_work_is_named() {
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
