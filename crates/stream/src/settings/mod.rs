//! Settings of the log: the section `stream`, its defaults, and checks of its values.
//!
//! The binary reads files and environment, and passes the section.

pub mod embedded;
pub mod kafka;
mod kafka_tls;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::{embedded::EmbeddedSettings, kafka::KafkaSettings};
use crate::{error::OpenError, schema_registry::RegistrySettings};

/// Engine of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineKind {
    /// The log runs in this process, in the data folder shared with the store.
    #[default]
    Embedded,
    Kafka,
}

/// The section `stream` of the service's settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// `embedded` or `kafka`. Default `embedded`.
    pub engine: EngineKind,
    /// Prefix of topic and group names. Default `tidegate`.
    pub prefix: String,
    /// Partitions of every topic. It determines the partition of a key, so a number other than the log's is refused.
    /// Default 64 on Kafka, 16 embedded.
    pub partitions: Option<u32>,
    pub consume: ConsumeSettings,
    pub embedded: EmbeddedSettings,
    pub kafka: KafkaSettings,
    /// Schema registry as the source of schema ids, on Kafka. Default none: the checked-in ids are used.
    pub schema_registry: Option<RegistrySettings>,
}

/// Limit of the records and bytes that one consumer may hold, whichever is reached first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    pub records: usize,
    pub bytes: usize,
}

/// Settings of consumers, on either engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConsumeSettings {
    /// Records that one consumer may hold before a commit has passed them. Default 50,000.
    pub budget_records: usize,
    /// Bytes that one consumer may hold before a commit has passed them. Default 64 MiB.
    pub budget_bytes: usize,
    /// Interval between commits of completed records, in milliseconds. Default 1,000.
    pub commit_interval_ms: u64,
    /// Time for which work in flight may continue after a revocation or a stop, in milliseconds. Default 20,000.
    pub drain_timeout_ms: u64,
    /// Time that a commit may take during a release of partitions, in milliseconds. Default 5,000.
    pub commit_timeout_ms: u64,
    /// Interval between retries of a partition that waits for a schema, in milliseconds. Default 1,000.
    pub schema_retry_ms: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            engine: EngineKind::default(),
            prefix: "tidegate".to_owned(),
            partitions: None,
            consume: ConsumeSettings::default(),
            embedded: EmbeddedSettings::default(),
            kafka: KafkaSettings::default(),
            schema_registry: None,
        }
    }
}

impl Default for ConsumeSettings {
    fn default() -> Self {
        Self {
            budget_records: 50_000,
            budget_bytes: 64 << 20,
            commit_interval_ms: 1_000,
            drain_timeout_ms: 20_000,
            commit_timeout_ms: 5_000,
            schema_retry_ms: 1_000,
        }
    }
}

impl ConsumeSettings {
    pub const fn budget(&self) -> Budget {
        Budget { records: self.budget_records, bytes: self.budget_bytes }
    }

    pub(crate) const fn commit_interval(&self) -> Duration {
        Duration::from_millis(self.commit_interval_ms)
    }

    pub(crate) const fn drain_timeout(&self) -> Duration {
        Duration::from_millis(self.drain_timeout_ms)
    }

    pub(crate) const fn commit_timeout(&self) -> Duration {
        Duration::from_millis(self.commit_timeout_ms)
    }

    pub(crate) const fn schema_retry(&self) -> Duration {
        Duration::from_millis(self.schema_retry_ms)
    }
}

impl Settings {
    /// Number of partitions of every topic, by which keys are placed.
    pub fn partition_count(&self) -> u32 {
        self.partitions.unwrap_or(match self.engine {
            EngineKind::Embedded => 16,
            EngineKind::Kafka => 64,
        })
    }

    /// Refuses invalid values. The error names both settings of a contradiction.
    pub fn validate(&self) -> Result<(), OpenError> {
        let refuse = |text: String| Err(OpenError::Settings(text));
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if self.prefix.is_empty() || self.prefix.len() > 128 || !self.prefix.chars().all(is_allowed) {
            return refuse(format!(
                "stream.prefix must be 1 to 128 of a-z, A-Z, 0-9, `.`, `_`, `-`, but is {:?}",
                self.prefix
            ));
        }
        if !(1..=10_000).contains(&self.partition_count()) {
            return refuse(format!(
                "stream.partitions must be between 1 and 10,000, but is {}",
                self.partition_count()
            ));
        }
        let consume = &self.consume;
        for (name, value) in [
            ("budget_records", consume.budget_records),
            ("budget_bytes", consume.budget_bytes),
            ("commit_interval_ms", usize::try_from(consume.commit_interval_ms).unwrap_or(usize::MAX)),
            ("schema_retry_ms", usize::try_from(consume.schema_retry_ms).unwrap_or(usize::MAX)),
        ] {
            if value == 0 {
                return refuse(format!("stream.consume.{name} must be above 0"));
            }
        }
        match self.engine {
            EngineKind::Embedded => self.embedded.validate(),
            EngineKind::Kafka => self
                .kafka
                .validate(consume.drain_timeout_ms, consume.commit_timeout_ms)
                .and_then(|()| self.schema_registry.as_ref().map_or(Ok(()), RegistrySettings::validate))
                .map_err(OpenError::Settings),
        }
    }

    /// Reads the configured files, as a start would, and returns the first error.
    pub fn check_files(&self) -> Result<(), OpenError> {
        match self.engine {
            EngineKind::Embedded => Ok(()),
            EngineKind::Kafka => self
                .kafka
                .check_files()
                .and_then(|()| self.schema_registry.as_ref().map_or(Ok(()), RegistrySettings::check_files))
                .map_err(OpenError::Settings),
        }
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
        assert_eq!(settings.partition_count(), 16);
        settings.validate().unwrap();
    }

    #[test]
    fn invalid_values_are_refused_with_the_setting_named() {
        for (text, named) in [
            (r#"{"prefix":""}"#, "stream.prefix"),
            (r#"{"prefix":"a/b"}"#, "stream.prefix"),
            (r#"{"partitions":0}"#, "stream.partitions"),
            (r#"{"consume":{"budget_records":0}}"#, "stream.consume.budget_records"),
        ] {
            let settings: Settings = serde_json::from_str(text).unwrap();
            let error = settings.validate().unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
        assert!(serde_json::from_str::<Settings>(r#"{"prefx":"a"}"#).is_err());
    }
}
