//! Settings of the section `processors`: defaults and checks.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_stream::settings::Budget;

/// The section `processors` of the service's settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Threads that evaluate rules of one organisation; 0: one per processor. The pool has twice as many, so the other
    /// organisations have the same number. Default 0.
    pub threads: usize,
    /// Records that each consumer may hold uncommitted. Default 50,000.
    pub budget_records: usize,
    /// Bytes that each consumer may hold uncommitted. Default 64 MiB.
    pub budget_bytes: usize,
    /// Unfinished parts of records, such as items, that each consumer may hold. Default 100,000.
    pub room_works: usize,
    /// Parts or batches of one organisation that each consumer processes concurrently, including reads and writes. All
    /// organisations together have twice as many. Default 256.
    pub concurrency: usize,
    /// First pause in milliseconds between retries while the log or the store is unavailable. Default 100.
    pub retry_min_ms: u64,
    /// Longest pause between retries, in milliseconds. Default 5,000.
    pub retry_max_ms: u64,
    /// Time in milliseconds for retries of work that fails on an unreadable stored row; then it is sent to the dead
    /// letters. A newer version may have written the row during an upgrade. Default 60,000.
    pub defect_patience_ms: u64,
    /// Interval between two searches for decisions at the end of their undo period, in milliseconds. Default 250.
    pub decision_poll_ms: u64,
    /// Interval between two complete reads of the last ten minutes of due decisions, in milliseconds. Default 5,000.
    pub decision_sweep_ms: u64,
    /// Interval between two searches for due requests for items, in milliseconds. Default 250.
    pub partial_items_poll_ms: u64,
    /// Interval between two complete reads of the last ten minutes of due requests for items, in milliseconds. Default
    /// 5,000.
    pub partial_items_sweep_ms: u64,
    /// Interval between two searches for jobs that are older than `auto_close_after` of their queue, in milliseconds; at
    /// least 1,000. Default 300,000.
    pub auto_close_every_ms: u64,
    /// Time in milliseconds after which a decision is appended again if its process died between release and append. Should
    /// be above the duration of an append; a decision that is appended twice has its effects once. Default 30,000.
    pub decision_lease_ms: u64,
    /// Time in milliseconds for running work after a stop, before it is abandoned. Should be above
    /// `stream.consume.drain_timeout_ms`. Default 30,000.
    pub drain_ms: u64,
    /// Rules with their own labels in the metrics; further rules are counted together. Default 1,000.
    pub rule_metrics: usize,
    /// Percentage of an organisation's items above which a matching rule is reported as too frequent; 0 turns the report
    /// off. Default 90.
    pub frequent_rule_percent: u64,
    /// Window rows that one item may read for all its conditions; conditions that need more are errored. Default 20,000.
    pub window_rows: usize,
    /// Threads that read window rows. Default 1.
    pub counting_threads: usize,
    /// Concurrent reads of windows for one organisation. Default 32.
    pub window_lookups_per_org: usize,
    /// Interval in milliseconds between two writes of the counts for `tidegate rules stats`. A crash loses the counts
    /// of one interval. Default 5,000.
    pub rule_counts_ms: u64,
    /// Alarm threshold of a live rule, as a multiple of the busiest hour of its recorded backtest. A rule with more
    /// matches in an hour stops acting. `alarm_per_hour` in the rule's document takes precedence; 0 turns the alarm
    /// off. Default 5.
    pub alarm_times: u32,
    /// Smallest alarm threshold that `alarm_times` can give, in matches per hour. Default 50.
    pub alarm_least: u32,
    pub media: MediaSettings,
    pub poison: PoisonSettings,
    pub missing: MissingConfigSettings,
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
            partial_items_poll_ms: 250,
            partial_items_sweep_ms: 5_000,
            auto_close_every_ms: 300_000,
            decision_lease_ms: 30_000,
            drain_ms: 30_000,
            rule_metrics: 1_000,
            frequent_rule_percent: 90,
            window_rows: 20_000,
            counting_threads: 1,
            window_lookups_per_org: 32,
            rule_counts_ms: 5_000,
            alarm_times: 5,
            alarm_least: 50,
            media: MediaSettings::default(),
            poison: PoisonSettings::default(),
            missing: MissingConfigSettings::default(),
        }
    }
}

/// The section `processors.media`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MediaSettings {
    /// Time in milliseconds that an item waits for its media before it is handed over to the topic `items-slow`. Default
    /// 2,000.
    pub wait_ms: u64,
    /// Items that may wait for their media concurrently; further items are handed over at once. An organisation holds
    /// at most as many places as it leaves free. Default 4,096.
    pub waiting: usize,
    /// Items of one organisation that may wait for their media concurrently. Default 512.
    pub waiting_per_org: usize,
    /// Time in milliseconds that an item of `items-slow` waits after the start of its fetches. Media that are still missing
    /// are `fetch_failed` with the reason `deadline`. Default 60,000.
    pub slow_wait_ms: u64,
    /// Time in milliseconds that an item of `items-slow` waits in total, including its time in the queue. Default 600,000.
    pub slow_total_ms: u64,
    /// Items of one organisation with concurrent media fetches. Default 64.
    pub slow_per_org: usize,
    /// Items of one organisation that may wait for the same host. Each host leaves a part of them to the other hosts. Hosts
    /// that are paused or never delivered a file share half of them. Default 16.
    pub slow_per_host: usize,
    /// Queued items of one organisation. Media of further items are `fetch_failed` with the reason `over_share`. Default
    /// 5,000.
    pub slow_line_per_org: usize,
    /// Bytes of one organisation's items in `items-slow`. One third is for items with running fetches, divided among hosts
    /// like their number; two thirds are for queued items. Media of items beyond are `fetch_failed` with the reason
    /// `over_share`. Should be a part of `processors.budget_bytes`. Default 24 MiB.
    pub slow_bytes_per_org: u64,
}

impl Default for MediaSettings {
    fn default() -> Self {
        Self {
            wait_ms: 2_000,
            waiting: 4_096,
            waiting_per_org: 512,
            slow_wait_ms: 60_000,
            slow_total_ms: 600_000,
            slow_per_org: 64,
            slow_per_host: 16,
            slow_line_per_org: 5_000,
            slow_bytes_per_org: 24 << 20,
        }
    }
}

/// The section `processors.poison`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PoisonSettings {
    /// Length of the window that counts unprocessable parts ("poison"), in milliseconds. Default 60,000.
    pub window_ms: u64,
    /// Poison parts of an org in the window below which its percentage is ignored. Default 50.
    pub least: u32,
    /// Percentage of poison at which all content of an org is diverted to the dead letters. Default 50.
    pub percent: u32,
    /// Time for which an org stays diverted, in milliseconds. Default 300,000.
    pub divert_ms: u64,
    /// Number of orgs above the percentage in one window that stops the consumer, because the defect is then in the
    /// service. Default 3.
    pub orgs: u32,
    /// Number of undecodable records in one window that stops the consumer. Default 10.
    pub unreadable: u32,
}

impl Default for PoisonSettings {
    fn default() -> Self {
        Self { window_ms: 60_000, least: 50, percent: 50, divert_ms: 300_000, orgs: 3, unreadable: 10 }
    }
}

/// The section `processors.missing`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MissingConfigSettings {
    /// Time in milliseconds that a consumer may be full without finishing a part while content waits for its org's
    /// configuration. After it, that content is sent to the dead letters with the reason `config_missing`. Default 5,000.
    pub grace_ms: u64,
    /// Number of orgs with a missing configuration at which the catalog counts as faulty, if they are also `percent` of all
    /// orgs. The consumer then diverts no content and waits for the configurations. Default 3.
    pub orgs: u32,
    /// Percentage of orgs for `orgs`. Default 10.
    pub percent: u32,
}

impl Default for MissingConfigSettings {
    fn default() -> Self {
        Self { grace_ms: 5_000, orgs: 3, percent: 10 }
    }
}

/// Unusable value, or combination of values, in the settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SettingsError(String);

impl SettingsError {
    pub(crate) const fn new(message: String) -> Self {
        Self(message)
    }

    pub const fn tag(&self) -> &'static str {
        "setting_unusable"
    }
}

/// Shortest lease. A shorter lease would repeat slow appends.
const MIN_LEASE_MS: u64 = 1_000;
/// Shortest interval between two searches for old jobs. Each search reads all days of every queue that closes old jobs.
const MIN_AUTO_CLOSE_INTERVAL_MS: u64 = 1_000;
/// Longest lease. After a crash, a decision waits for the full lease.
const MAX_LEASE_MS: u64 = 3_600_000;

impl Settings {
    /// Rejects unusable values. The error names both settings if two contradict each other.
    pub fn validate(&self) -> Result<(), SettingsError> {
        const SECTION: &str = "processors";
        require_positive(
            SECTION,
            &[
                ("budget_records", self.budget_records as u64),
                ("budget_bytes", self.budget_bytes as u64),
                ("room_works", self.room_works as u64),
                ("concurrency", self.concurrency as u64),
                ("retry_min_ms", self.retry_min_ms),
                ("decision_poll_ms", self.decision_poll_ms),
                ("decision_sweep_ms", self.decision_sweep_ms),
                ("partial_items_poll_ms", self.partial_items_poll_ms),
                ("partial_items_sweep_ms", self.partial_items_sweep_ms),
                ("drain_ms", self.drain_ms),
                ("window_rows", self.window_rows as u64),
                ("counting_threads", self.counting_threads as u64),
                ("window_lookups_per_org", self.window_lookups_per_org as u64),
                ("rule_counts_ms", self.rule_counts_ms),
            ],
        )?;
        require_order(
            SECTION,
            &[
                ("retry_min_ms", self.retry_min_ms, "retry_max_ms", self.retry_max_ms),
                ("decision_poll_ms", self.decision_poll_ms, "decision_sweep_ms", self.decision_sweep_ms),
                ("concurrency", self.concurrency as u64, "room_works", self.room_works as u64),
            ],
        )?;
        if !(MIN_LEASE_MS..=MAX_LEASE_MS).contains(&self.decision_lease_ms) {
            return Err(SettingsError(format!(
                "processors.decision_lease_ms = {} must be between {MIN_LEASE_MS} and {MAX_LEASE_MS}",
                self.decision_lease_ms
            )));
        }
        if self.auto_close_every_ms < MIN_AUTO_CLOSE_INTERVAL_MS {
            return Err(SettingsError(format!(
                "processors.auto_close_every_ms = {} must be at least {MIN_AUTO_CLOSE_INTERVAL_MS}",
                self.auto_close_every_ms
            )));
        }
        if self.frequent_rule_percent > 100 {
            return Err(SettingsError(format!(
                "processors.frequent_rule_percent = {} must be between 0 and 100",
                self.frequent_rule_percent
            )));
        }
        self.media.validate()?;
        if self.media.slow_bytes_per_org > self.budget_bytes as u64 {
            return Err(SettingsError(format!(
                "processors.media.slow_bytes_per_org = {} must not be above processors.budget_bytes = {}",
                self.media.slow_bytes_per_org, self.budget_bytes
            )));
        }
        self.missing.validate()?;
        self.poison.validate()
    }

    pub(crate) const fn inbox_budget(&self) -> Budget {
        Budget { records: self.budget_records, bytes: self.budget_bytes }
    }

    pub(crate) const fn rule_counts_interval(&self) -> Duration {
        Duration::from_millis(self.rule_counts_ms)
    }

    pub(crate) const fn defect_patience(&self) -> Duration {
        Duration::from_millis(self.defect_patience_ms)
    }

    /// Time after which an org without parts in retry is removed from the missing configurations. Waiting parts are retried
    /// at least every `retry_max_ms`, so a waiting org is not removed.
    pub(crate) fn missing_config_retention(&self) -> Duration {
        Duration::from_millis(self.retry_max_ms.saturating_mul(4)).max(Duration::from_secs(60))
    }

    pub(crate) const fn decision_lease(&self) -> Duration {
        Duration::from_millis(self.decision_lease_ms)
    }

    pub(crate) const fn drain_timeout(&self) -> Duration {
        Duration::from_millis(self.drain_ms)
    }
}

impl MediaSettings {
    fn validate(&self) -> Result<(), SettingsError> {
        const SECTION: &str = "processors.media";
        require_positive(
            SECTION,
            &[
                ("slow_wait_ms", self.slow_wait_ms),
                ("slow_per_org", self.slow_per_org as u64),
                ("slow_per_host", self.slow_per_host as u64),
                ("slow_bytes_per_org", self.slow_bytes_per_org),
            ],
        )?;
        require_order(
            SECTION,
            &[
                ("wait_ms", self.wait_ms, "slow_wait_ms", self.slow_wait_ms),
                ("slow_wait_ms", self.slow_wait_ms, "slow_total_ms", self.slow_total_ms),
                ("waiting_per_org", self.waiting_per_org as u64, "waiting", self.waiting as u64),
                ("slow_per_host", self.slow_per_host as u64, "slow_per_org", self.slow_per_org as u64),
            ],
        )
    }
}

impl PoisonSettings {
    fn validate(&self) -> Result<(), SettingsError> {
        const SECTION: &str = "processors.poison";
        require_positive(
            SECTION,
            &[
                ("window_ms", self.window_ms),
                ("least", self.least.into()),
                ("orgs", self.orgs.into()),
                ("unreadable", self.unreadable.into()),
            ],
        )?;
        require_percentage(SECTION, self.percent)
    }
}

impl MissingConfigSettings {
    fn validate(&self) -> Result<(), SettingsError> {
        const SECTION: &str = "processors.missing";
        require_positive(SECTION, &[("orgs", self.orgs.into())])?;
        require_percentage(SECTION, self.percent)
    }
}

pub(crate) fn require_positive(section: &str, values: &[(&str, u64)]) -> Result<(), SettingsError> {
    match values.iter().find(|(_, value)| *value == 0) {
        Some((name, _)) => Err(SettingsError(format!("{section}.{name} must be above 0"))),
        None => Ok(()),
    }
}

/// Rejects a first value above the second one.
fn require_order(section: &str, pairs: &[(&str, u64, &str, u64)]) -> Result<(), SettingsError> {
    match pairs.iter().find(|(_, lower, _, upper)| lower > upper) {
        Some((lower_name, lower, upper_name, upper)) => Err(SettingsError(format!(
            "{section}.{lower_name} = {lower} must not be above {section}.{upper_name} = {upper}"
        ))),
        None => Ok(()),
    }
}

fn require_percentage(section: &str, percent: u32) -> Result<(), SettingsError> {
    if (1..=100).contains(&percent) {
        return Ok(());
    }
    Err(SettingsError(format!("{section}.percent must be between 1 and 100, but is {percent}")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn empty_section_is_the_documented_default() {
        let settings: Settings = serde_json::from_str("{}").unwrap();
        assert_eq!(settings, Settings::default());
        settings.validate().unwrap();
        assert!(serde_json::from_str::<Settings>(r#"{"thread":1}"#).is_err());
    }

    #[test]
    fn unusable_values_are_rejected_with_both_settings_named() {
        let media = |media| Settings { media, ..Settings::default() };
        for (settings, expected_message) in [
            (Settings { concurrency: 0, ..Settings::default() }, "processors.concurrency"),
            (Settings { retry_min_ms: 9_000, ..Settings::default() }, "processors.retry_max_ms = 5000"),
            (Settings { budget_bytes: 1_000, ..Settings::default() }, "processors.budget_bytes = 1000"),
            (Settings { room_works: 10, ..Settings::default() }, "processors.room_works = 10"),
            (Settings { decision_lease_ms: 0, ..Settings::default() }, "processors.decision_lease_ms = 0"),
            (
                Settings { frequent_rule_percent: 101, ..Settings::default() },
                "processors.frequent_rule_percent = 101",
            ),
            (
                Settings { decision_lease_ms: u64::MAX, ..Settings::default() },
                "must be between 1000 and 3600000",
            ),
            (
                Settings {
                    poison: PoisonSettings { percent: 0, ..Default::default() },
                    ..Settings::default()
                },
                "processors.poison.percent",
            ),
            (
                Settings {
                    missing: MissingConfigSettings { orgs: 0, ..Default::default() },
                    ..Settings::default()
                },
                "processors.missing.orgs",
            ),
            (media(MediaSettings { slow_per_org: 0, ..Default::default() }), "processors.media.slow_per_org"),
            (
                media(MediaSettings { wait_ms: 90_000, ..Default::default() }),
                "processors.media.slow_wait_ms = 60000",
            ),
            (
                media(MediaSettings { slow_total_ms: 1, ..Default::default() }),
                "processors.media.slow_total_ms = 1",
            ),
            (media(MediaSettings { waiting: 1, ..Default::default() }), "processors.media.waiting = 1"),
            (
                media(MediaSettings { slow_per_host: 65, ..Default::default() }),
                "processors.media.slow_per_org = 64",
            ),
            (
                media(MediaSettings { slow_bytes_per_org: 0, ..Default::default() }),
                "processors.media.slow_bytes_per_org",
            ),
        ] {
            let error = settings.validate().unwrap_err().to_string();
            assert!(error.contains(expected_message), "{error}");
        }
    }
}
