//! Settings of record processing: the section `processors`, its defaults and its checks.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_stream::settings::Budget;

/// The section `processors` of the service's settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Threads that evaluate rules of one organisation; 0 means one for each processor. As many again are left to the others.
    /// Default 0.
    pub threads: usize,
    /// Records that each consumer may hold uncommitted. Default 50,000.
    pub budget_records: usize,
    /// Bytes that each consumer may hold uncommitted. Default 64 MiB.
    pub budget_bytes: usize,
    /// Parts of records, such as items, that each consumer may hold unfinished. Default 100,000.
    pub room_works: usize,
    /// Parts of records of one organisation, or batches of them, that each consumer works on at once, reads and writes
    /// included. All organisations together have twice as many. Default 256.
    pub concurrency: usize,
    /// First pause before work is retried while the log or the store is unavailable, in milliseconds. Default 100.
    pub retry_min_ms: u64,
    /// Longest such pause, in milliseconds. Default 5,000.
    pub retry_max_ms: u64,
    /// Time for which work is retried that fails on an unreadable row of ours, in milliseconds; then it goes to the dead
    /// letters. A newer process may have written the row during an upgrade. Default 60,000.
    pub defect_patience_ms: u64,
    /// Interval between two searches for decisions whose time to undo is over, in milliseconds. Default 250.
    pub decision_poll_ms: u64,
    /// Interval between two complete reads of the last ten minutes of due decisions, in milliseconds. Default 5,000.
    pub decision_sweep_ms: u64,
    /// Interval between two searches for requests for items that wait for their turn, in milliseconds. Default 250.
    pub partial_items_poll_ms: u64,
    /// Interval between two complete reads of the last ten minutes of such requests, in milliseconds. Default 5,000.
    pub partial_items_sweep_ms: u64,
    /// Interval between two searches for jobs that are older than `auto_close_after` of their queue, in milliseconds; at
    /// least 1,000. Default 300,000.
    pub auto_close_every_ms: u64,
    /// Time after which a decision that was released and not appended, since its process died in between, is appended
    /// again, in milliseconds. Should be above the duration of an append; a decision that is appended twice has its
    /// effects once. Default 30,000.
    pub decision_lease_ms: u64,
    /// Time for which work may go on after a stop before it is abandoned, in milliseconds. Should be above
    /// `stream.consume.drain_timeout_ms`. Default 30,000.
    pub drain_ms: u64,
    /// Rules that have a counter of their own in the metrics; those beyond are counted together. Default 1,000.
    pub rule_metrics: usize,
    /// Share of an organisation's items, in percent, from which on a rule is reported as one that matches most; 0 turns this
    /// off. Default 90.
    pub frequent_rule_percent: u64,
    /// Rows that may be read for what windows have counted, for one item in all; conditions that need more are errored.
    /// Default 20,000.
    pub window_rows: usize,
    /// Threads that read what windows have counted. Default 1.
    pub counting_threads: usize,
    /// Number of windows that are read at once for one organisation. Default 32.
    pub window_lookups_per_org: usize,
    /// Interval between two writes of the counts for `tidegate rules stats`, in milliseconds; a crash loses as much of
    /// the counts. Default 5,000.
    pub rule_counts_ms: u64,
    /// Factor by which a live rule may match more often in an hour than a recorded backtest found in its busiest hour
    /// before it stops acting, unless its document sets `alarm_per_hour`; 0 turns this off. Default 5.
    pub alarm_times: u32,
    /// Number of matches in an hour below which no such alarm is raised. Default 50.
    pub alarm_least: u32,
    pub media: MediaSettings,
    pub poison: PoisonSettings,
    pub missing: MissingSettings,
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
            missing: MissingSettings::default(),
        }
    }
}

/// The section `processors.media`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MediaSettings {
    /// Time that an item waits for its media before it is handed over to the topic `items-slow`, in milliseconds.
    /// Default 2,000.
    pub wait_ms: u64,
    /// Items that wait like this at once; further ones are handed over at once. An organisation has no more of them than
    /// it leaves to the others. Default 4,096.
    pub waiting: usize,
    /// The same for one organisation. Default 512.
    pub waiting_per_org: usize,
    /// Time that an item of `items-slow` waits once its fetches have started; media that are missing then are
    /// `fetch_failed` with the reason `deadline`, in milliseconds. Default 60,000.
    pub slow_wait_ms: u64,
    /// The same from its arrival, its time in the queue included. Default 600,000.
    pub slow_total_ms: u64,
    /// Items of one organisation whose media are fetched at once. Default 64.
    pub slow_per_org: usize,
    /// Those of them that wait for one host, as items name it. Each host leaves part of them to the others, and hosts
    /// that rest, or never delivered anything, have half of them together. Default 16.
    pub slow_per_host: usize,
    /// Further items of one organisation that are queued; beyond, media are `fetch_failed` with the reason `over_share`.
    /// Default 5,000.
    pub slow_line_per_org: usize,
    /// Bytes of one organisation's items. A third is for items whose media are fetched, divided as their number is; the
    /// others are queued. The rest is for the queue; beyond, the same as above. Should be a part of
    /// `processors.budget_bytes`. Default 24 MiB.
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
    /// Length of the window in which poison is counted, in milliseconds. Default 60,000.
    pub window_ms: u64,
    /// Parts of an org that must be poison in the window before its ratio counts. Default 50.
    pub least: u32,
    /// Percentage of poison from which on all of an org's content is diverted to the dead letters. Default 50.
    pub percent: u32,
    /// Time for which an org stays diverted, in milliseconds. Default 300,000.
    pub divert_ms: u64,
    /// Number of orgs above the ratio in one window that stops the consumer, since then the fault is ours. Default 3.
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
pub struct MissingSettings {
    /// Time that a consumer may be full and finish nothing while content of an org waits for its configuration, in
    /// milliseconds; then that content goes to the dead letters with the reason `config_missing`. Default 5,000.
    pub grace_ms: u64,
    /// Number of orgs without their configuration at once that is the catalog's fault and not theirs, if they are also
    /// `percent` of all: nothing is diverted, and the consumer waits until their configurations are there. Default 3.
    pub orgs: u32,
    /// See `orgs`. Default 10.
    pub percent: u32,
}

impl Default for MissingSettings {
    fn default() -> Self {
        Self { grace_ms: 5_000, orgs: 3, percent: 10 }
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

/// Shortest lease. A shorter one would repeat appends that are only slow.
const SHORTEST_LEASE_MS: u64 = 1_000;
/// Shortest interval between two searches for old jobs. Each reads the days of every queue that closes its jobs.
const SHORTEST_AUTO_CLOSE_MS: u64 = 1_000;
/// Longest lease. A decision waits as long as the lease after a crash.
const LONGEST_LEASE_MS: u64 = 3_600_000;

impl Settings {
    /// Rejects values that cannot work, and names both where two contradict each other.
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
        if !(SHORTEST_LEASE_MS..=LONGEST_LEASE_MS).contains(&self.decision_lease_ms) {
            return Err(SettingsError(format!(
                "processors.decision_lease_ms = {} must be between {SHORTEST_LEASE_MS} and {LONGEST_LEASE_MS}",
                self.decision_lease_ms
            )));
        }
        if self.auto_close_every_ms < SHORTEST_AUTO_CLOSE_MS {
            return Err(SettingsError(format!(
                "processors.auto_close_every_ms = {} must be at least {SHORTEST_AUTO_CLOSE_MS}",
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

    pub(crate) const fn budget(&self) -> Budget {
        Budget { records: self.budget_records, bytes: self.budget_bytes }
    }

    pub(crate) const fn rule_counts_every(&self) -> Duration {
        Duration::from_millis(self.rule_counts_ms)
    }

    pub(crate) const fn defect_patience(&self) -> Duration {
        Duration::from_millis(self.defect_patience_ms)
    }

    /// Time after which an org whose configuration was missing is forgotten. Its parts are retried at least every
    /// `retry_max_ms`, so an org that still waits is not forgotten.
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

impl MissingSettings {
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

/// Rejects a first value that is above the second one.
fn require_order(section: &str, pairs: &[(&str, u64, &str, u64)]) -> Result<(), SettingsError> {
    match pairs.iter().find(|(_, lesser, _, greater)| lesser > greater) {
        Some((lesser_name, lesser, greater_name, greater)) => Err(SettingsError(format!(
            "{section}.{lesser_name} = {lesser} must not be above {section}.{greater_name} = {greater}"
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
        for (settings, named) in [
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
                    missing: MissingSettings { orgs: 0, ..Default::default() },
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
            assert!(error.contains(named), "{error}");
        }
    }
}
