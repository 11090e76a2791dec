//! What an operator may set about processing, with the defaults.
//!
//! It does not read files or the environment: the binary hands the section over.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_stream::settings::Budget;

use crate::{
    consumer::key_queues::Room, consumer::missing_config as missing, consumer::poison_monitor as poison,
    items::alarm_thresholds::Measure, items::media_wait as looking,
};

/// The section `processors` of the service's settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Threads that evaluate rules; 0 is one for each processor. Default 0.
    pub threads: usize,
    /// Records that each consumer may hold before a commit has passed them. Default 50,000.
    pub budget_records: usize,
    /// Bytes that each consumer may hold before a commit has passed them. Default 64 MiB.
    pub budget_bytes: usize,
    /// Parts of records, as items, that each consumer may hold unfinished. Default 100,000.
    pub room_works: usize,
    /// Parts of records that each consumer works on at once, reads and writes included. Default 256.
    pub concurrency: usize,
    /// The first pause before work is tried again while the log or the store is away, in milliseconds. Default 100.
    pub retry_min_ms: u64,
    /// The longest such pause, in milliseconds. Default 5,000.
    pub retry_max_ms: u64,
    /// How long work is tried again that fails on a row of ours that cannot be read, in milliseconds; then it goes to
    /// the dead letters. A newer process may have written the row in an upgrade. Default 60,000.
    pub defect_patience_ms: u64,
    /// How often decisions are looked for whose time to undo is over, in milliseconds. Default 250.
    pub decision_poll_ms: u64,
    /// How often the last ten minutes of due decisions are read again, in milliseconds. Default 5,000.
    pub decision_sweep_ms: u64,
    /// A process may die between releasing a decision and appending it: after so long, in milliseconds, it is appended
    /// again. It should be above what an append takes; a decision that is appended twice has its effects once. Default
    /// 30,000.
    pub decision_lease_ms: u64,
    /// How long work may go on after a stop before it is left, in milliseconds. It should be above
    /// `stream.consume.drain_timeout_ms`. Default 30,000.
    pub drain_ms: u64,
    /// Rules that have a counter of their own in the metrics; those beyond are counted together. Default 1,000.
    pub rule_metrics: usize,
    /// Rows that may be read for what a window has counted; a condition that needs more is errored. Default 10,000.
    pub window_rows: usize,
    /// How often what rules came to is written for `tidegate rules stats`, in milliseconds; a crash loses so much of the
    /// counts. Default 5,000.
    pub rule_counts_ms: u64,
    /// A live rule that matches in an hour more often than so many times what a recorded backtest found in its busiest
    /// hour acts no more, unless its document says `alarm_per_hour`; 0: no rule does. Default 5.
    pub alarm_times: u32,
    /// But not before it matched so often in the hour. Default 50.
    pub alarm_least: u32,
    pub media: looking::Settings,
    pub poison: poison::Settings,
    pub missing: missing::Settings,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            threads: 0,
            budget_records: 50_000,
            budget_bytes: 64 << 20,
            room_works: 100_000,
            concurrency: 256,
            retry_min_ms: 100,
            retry_max_ms: 5_000,
            defect_patience_ms: 60_000,
            decision_poll_ms: 250,
            decision_sweep_ms: 5_000,
            decision_lease_ms: 30_000,
            drain_ms: 30_000,
            rule_metrics: 1_000,
            window_rows: 10_000,
            rule_counts_ms: 5_000,
            alarm_times: 5,
            alarm_least: 50,
            media: looking::Settings::default(),
            poison: poison::Settings::default(),
            missing: missing::Settings::default(),
        }
    }
}

/// A value that cannot be used, alone or beside another.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SettingsError(String);

impl SettingsError {
    pub(crate) const fn new(text: String) -> Self {
        Self(text)
    }

    pub const fn tag(&self) -> &'static str {
        "setting_unusable"
    }
}

/// A shorter one appends again what is only slow.
const SHORTEST_LEASE_MS: u64 = 1_000;
/// A decision waits so long after a crash.
const LONGEST_LEASE_MS: u64 = 3_600_000;

impl Settings {
    /// Refuses values that cannot work, naming both where two contradict each other.
    pub fn validate(&self) -> Result<(), SettingsError> {
        for (name, value) in [
            ("budget_records", self.budget_records as u64),
            ("budget_bytes", self.budget_bytes as u64),
            ("room_works", self.room_works as u64),
            ("concurrency", self.concurrency as u64),
            ("retry_min_ms", self.retry_min_ms),
            ("decision_poll_ms", self.decision_poll_ms),
            ("decision_sweep_ms", self.decision_sweep_ms),
            ("drain_ms", self.drain_ms),
            ("window_rows", self.window_rows as u64),
            ("rule_counts_ms", self.rule_counts_ms),
        ] {
            if value == 0 {
                return Err(SettingsError(format!("processors.{name} must be above 0")));
            }
        }
        for (lesser, less, greater, great) in [
            ("retry_min_ms", self.retry_min_ms, "retry_max_ms", self.retry_max_ms),
            ("decision_poll_ms", self.decision_poll_ms, "decision_sweep_ms", self.decision_sweep_ms),
            ("concurrency", self.concurrency as u64, "room_works", self.room_works as u64),
        ] {
            if less > great {
                return Err(SettingsError(format!(
                    "processors.{lesser} = {less} must not be above processors.{greater} = {great}"
                )));
            }
        }
        if !(SHORTEST_LEASE_MS..=LONGEST_LEASE_MS).contains(&self.decision_lease_ms) {
            return Err(SettingsError(format!(
                "processors.decision_lease_ms = {} must be between {SHORTEST_LEASE_MS} and {LONGEST_LEASE_MS}",
                self.decision_lease_ms
            )));
        }
        self.media.validate().map_err(SettingsError)?;
        if self.media.slow_bytes_per_org > self.budget_bytes as u64 {
            return Err(SettingsError(format!(
                "processors.media.slow_bytes_per_org = {} must not be above processors.budget_bytes = {}",
                self.media.slow_bytes_per_org, self.budget_bytes
            )));
        }
        self.missing.validate().map_err(SettingsError)?;
        self.poison.validate().map_err(SettingsError)
    }

    pub(crate) const fn budget(&self) -> Budget {
        Budget { records: self.budget_records, bytes: self.budget_bytes }
    }

    pub(crate) const fn room(&self) -> Room {
        Room { works: self.room_works, bytes: self.budget_bytes }
    }

    pub(crate) const fn rule_counts_every(&self) -> Duration {
        Duration::from_millis(self.rule_counts_ms)
    }

    pub(crate) const fn measure(&self) -> Measure {
        Measure { times: self.alarm_times, least: self.alarm_least }
    }

    pub(crate) const fn defect_patience(&self) -> Duration {
        Duration::from_millis(self.defect_patience_ms)
    }

    /// Parts look again at the latest after the longest pause.
    pub(crate) fn forget_missing(&self) -> Duration {
        Duration::from_millis(self.retry_max_ms.saturating_mul(4)).max(Duration::from_secs(60))
    }

    pub(crate) const fn decision_lease(&self) -> Duration {
        Duration::from_millis(self.decision_lease_ms)
    }

    pub(crate) const fn drain(&self) -> Duration {
        Duration::from_millis(self.drain_ms)
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
        assert!(serde_json::from_str::<Settings>(r#"{"thread":1}"#).is_err());
    }

    #[test]
    fn what_cannot_work_is_refused_with_both_settings_named() {
        for (settings, named) in [
            (Settings { concurrency: 0, ..Settings::default() }, "processors.concurrency"),
            (Settings { retry_min_ms: 9_000, ..Settings::default() }, "processors.retry_max_ms = 5000"),
            (Settings { budget_bytes: 1_000, ..Settings::default() }, "processors.budget_bytes = 1000"),
            (Settings { room_works: 10, ..Settings::default() }, "processors.room_works = 10"),
            (Settings { decision_lease_ms: 0, ..Settings::default() }, "processors.decision_lease_ms = 0"),
            (
                Settings { decision_lease_ms: u64::MAX, ..Settings::default() },
                "must be between 1000 and 3600000",
            ),
            (
                Settings {
                    poison: poison::Settings { percent: 0, ..Default::default() },
                    ..Settings::default()
                },
                "processors.poison.percent",
            ),
        ] {
            let fault = settings.validate().unwrap_err().to_string();
            assert!(fault.contains(named), "{fault}");
        }
    }
}
