//! Settings of callbacks: the section `callbacks`, its defaults and its checks.
//!
//! Limits of one call are in the section `egress`, consumption of the topic is in `processors`.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use tidegate_schemas::duration::{DurationError, format_duration, parse_duration};

use super::{delivery_state::RetrySchedule, endpoint_queues::Bounds};
use crate::settings::{SettingsError, require_positive};

/// The section `callbacks` of the service's settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Pause before each attempt; there are as many attempts as pauses. Default `0s, 5s, 30s, 2m, 10m, 30m, 2h, 5h, 10h,
    /// 14h, 20h, 24h`: twelve attempts over 76 hours.
    pub schedule: Vec<Pause>,
    /// Percentage by which a pause may be shorter or longer, so that deliveries which failed together are not retried
    /// together. Default 20.
    pub jitter_percent: u32,
    /// Number of attempts that may meet an address which may not be called before a delivery is exhausted. Default 3.
    pub blocked_attempts: u32,
    /// Number of answers with status 410 in a row that hold a delivery until it is resent. Default 2.
    pub gone_attempts: u32,
    /// Calls that run at once to one endpoint of an org, from all processes together: each process makes as large a part
    /// of them as it owns of the topic's partitions, at least one. Default 8.
    pub in_flight_per_endpoint: usize,
    /// Calls of this process that run at once. Default 1,024.
    pub in_flight: usize,
    /// Deliveries that wait in memory for one endpoint; further ones wait in the store. Default 10,000.
    pub backlog_per_endpoint: usize,
    /// Deliveries that wait in memory in all; an endpoint with few waiting may add more in spite of it. Default 100,000.
    pub backlog: usize,
    /// Longest time for which a delivery that found no room in memory stays in the store before it is offered again, in
    /// milliseconds. It is also how late it is noticed that a slow endpoint became fast. Default 300,000.
    pub longest_deferral_ms: u64,
    /// Interval between two checks of a held delivery whose endpoint, secret or header variable is missing, in
    /// milliseconds. Default 180,000.
    pub hold_recheck_ms: u64,
    /// Time beyond the longest duration of a call (`egress.total_timeout_ms`) before another process may assume that the
    /// call was cut off by a crash, in milliseconds. Default 15,000.
    pub lease_margin_ms: u64,
    /// Largest body, in bytes; a callback with a larger one is listed as `too_large`. Default 256 KiB.
    pub max_body_bytes: usize,
    /// Interval between two searches for due deliveries, in milliseconds. Default 500.
    pub poll_ms: u64,
    /// Interval between two complete reads of the last ten minutes of due rows, in milliseconds. Default 60,000.
    pub sweep_ms: u64,
    /// Time that running calls may take after a stop, in milliseconds; with at least `egress.total_timeout_ms`, none is cut
    /// off and made again. Default 20,000.
    pub drain_ms: u64,
}

impl Default for Settings {
    fn default() -> Self {
        const MINUTE: u64 = 60;
        const HOUR: u64 = 60 * MINUTE;
        let seconds = [
            0,
            5,
            30,
            2 * MINUTE,
            10 * MINUTE,
            30 * MINUTE,
            2 * HOUR,
            5 * HOUR,
            10 * HOUR,
            14 * HOUR,
            20 * HOUR,
            24 * HOUR,
        ];
        Self {
            schedule: seconds.map(|seconds| Pause(Duration::from_secs(seconds))).to_vec(),
            jitter_percent: 20,
            blocked_attempts: 3,
            gone_attempts: 2,
            in_flight_per_endpoint: 8,
            in_flight: 1_024,
            backlog_per_endpoint: 10_000,
            backlog: 100_000,
            longest_deferral_ms: 300_000,
            hold_recheck_ms: 180_000,
            lease_margin_ms: 15_000,
            max_body_bytes: 256 << 10,
            poll_ms: 500,
            sweep_ms: 60_000,
            drain_ms: 20_000,
        }
    }
}

/// Bound on a pause: a delivery lives for 30 days after its last change and a due row for 35, so due rows outlive it.
const LONGEST_PAUSE: Duration = Duration::from_secs(4 * 86_400);

impl Settings {
    /// Rejects values that cannot work, and names both where two contradict each other.
    pub fn validate(&self) -> Result<(), SettingsError> {
        let refuse = |text: String| Err(SettingsError::new(text));
        if self.schedule.is_empty() {
            return refuse("callbacks.schedule must have at least one pause".to_owned());
        }
        if let Some(pause) = self.schedule.iter().find(|pause| pause.0 > LONGEST_PAUSE) {
            return refuse(format!(
                "callbacks.schedule has a pause of {pause}, above the 4d that due rows outlive"
            ));
        }
        if self.jitter_percent > 50 {
            return refuse(format!("callbacks.jitter_percent = {} must be at most 50", self.jitter_percent));
        }
        require_positive(
            "callbacks",
            &[
                ("blocked_attempts", self.blocked_attempts.into()),
                ("gone_attempts", self.gone_attempts.into()),
                ("in_flight_per_endpoint", self.in_flight_per_endpoint as u64),
                ("backlog_per_endpoint", self.backlog_per_endpoint as u64),
                ("longest_deferral_ms", self.longest_deferral_ms),
                ("hold_recheck_ms", self.hold_recheck_ms),
                ("lease_margin_ms", self.lease_margin_ms),
                ("max_body_bytes", self.max_body_bytes as u64),
                ("poll_ms", self.poll_ms),
                ("drain_ms", self.drain_ms),
            ],
        )?;
        for (lesser, less, greater, great) in [
            (
                "in_flight_per_endpoint",
                self.in_flight_per_endpoint as u64,
                "in_flight",
                self.in_flight as u64,
            ),
            ("backlog_per_endpoint", self.backlog_per_endpoint as u64, "backlog", self.backlog as u64),
            ("poll_ms", self.poll_ms, "sweep_ms", self.sweep_ms),
            // Well within the ten minutes that a sweep reads again.
            (
                "sweep_ms",
                self.sweep_ms,
                "the five minutes in which a late due row must be found, in ms",
                300_000,
            ),
        ] {
            if less > great {
                return refuse(format!("callbacks.{lesser} = {less} must not be above {greater} = {great}"));
            }
        }
        Ok(())
    }

    pub(crate) fn retry_schedule(&self) -> RetrySchedule {
        RetrySchedule {
            pauses: self.schedule.iter().map(|pause| pause.0).collect(),
            jitter: f64::from(self.jitter_percent) / 100.0,
            blocked: i64::from(self.blocked_attempts),
            gone: i64::from(self.gone_attempts),
        }
    }

    pub(crate) const fn bounds(&self) -> Bounds {
        Bounds {
            queue: self.in_flight_per_endpoint,
            all: self.in_flight,
            backlog: self.backlog_per_endpoint,
            backlog_of_all: self.backlog,
            longest_deferral: Duration::from_millis(self.longest_deferral_ms),
        }
    }

    /// Returns the number of calls to one endpoint that this process may run while it owns `owned` of the partitions. The
    /// events of an endpoint are spread evenly over the partitions, so the owner of a part gets that part of the calls.
    pub(crate) fn share(&self, owned: usize, partitions: usize) -> usize {
        let share = self.in_flight_per_endpoint.saturating_mul(owned).div_ceil(partitions.max(1));
        share.clamp(1, self.in_flight_per_endpoint)
    }

    pub(crate) const fn drain(&self) -> Duration {
        Duration::from_millis(self.drain_ms)
    }

    pub(crate) const fn recheck(&self) -> Duration {
        Duration::from_millis(self.hold_recheck_ms)
    }
}

/// Duration as settings write it: `250ms`, `5s`, `2m`, `10h`, `1d`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pause(pub Duration);

const UNITS: [&str; 5] = ["ms", "s", "m", "h", "d"];

impl FromStr for Pause {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_duration(text, &UNITS).map(Self).map_err(|error| match error {
            DurationError::Form => {
                "a pause is a whole number and one of `ms`, `s`, `m`, `h`, `d`, such as `30s`"
            }
            DurationError::TooLong => "the pause is too long",
        })
    }
}

impl fmt::Display for Pause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Zero is written in seconds, as the default schedule has it.
        let units = if self.0.is_zero() { &UNITS[1..] } else { &UNITS[..] };
        f.write_str(&format_duration(self.0, units))
    }
}

impl Serialize for Pause {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Pause {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use tidegate_store::{
        Row as _,
        tables::callbacks::{
            deliveries::{Delivery, DeliveryByDay, RELIST_AFTER},
            due::Due,
        },
    };

    use super::*;

    #[test]
    fn empty_section_is_the_documented_default() {
        let settings: Settings = serde_json::from_str("{}").unwrap();
        assert_eq!(settings, Settings::default());
        settings.validate().unwrap();
        let schedule = r#"["0s","5s","30s","2m","10m","30m","2h","5h","10h","14h","20h","1d"]"#;
        assert_eq!(serde_json::to_string(&settings.schedule).unwrap(), schedule);
        assert_eq!(serde_json::from_str::<Vec<Pause>>(schedule).unwrap(), settings.schedule);
        assert!(serde_json::from_str::<Settings>(r#"{"queue":1}"#).is_err());
    }

    #[test]
    fn unusable_values_are_rejected_with_both_settings_named() {
        for (settings, named) in [
            (Settings { schedule: Vec::new(), ..Settings::default() }, "callbacks.schedule"),
            (Settings { schedule: vec!["5d".parse().unwrap()], ..Settings::default() }, "a pause of 5d"),
            (
                Settings { in_flight: 4, ..Settings::default() },
                "in_flight_per_endpoint = 8 must not be above in_flight = 4",
            ),
            (Settings { poll_ms: 0, ..Settings::default() }, "callbacks.poll_ms"),
            (Settings { sweep_ms: 100, ..Settings::default() }, "sweep_ms = 100"),
            (Settings { jitter_percent: 90, ..Settings::default() }, "jitter_percent = 90"),
        ] {
            let error = settings.validate().unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
    }

    #[test]
    fn calls_to_an_endpoint_are_divided_like_the_partitions() {
        let settings = Settings::default();
        assert_eq!(settings.share(64, 64), 8, "alone");
        assert_eq!([22, 21, 21].map(|owned| settings.share(owned, 64)), [3, 3, 3]);
        assert_eq!(settings.share(1, 64), 1, "every owner makes calls");
        assert_eq!(settings.share(0, 64), 1);
    }

    #[test]
    fn pauses_are_written_with_their_unit() {
        for text in ["0s", "250ms", "90s", "2m", "36h", "3d"] {
            assert_eq!(text.parse::<Pause>().unwrap().to_string(), text);
        }
        for text in ["", "5", "s", "-5s", "1.5h", "5 s", "99999999999999999999s", "400000000000d"] {
            assert!(text.parse::<Pause>().is_err(), "{text}");
        }
    }

    /// Otherwise a long outage would leave deliveries that no due row or list row points to.
    #[test]
    fn due_rows_and_lists_outlive_their_deliveries() {
        let ttl = |table: &tidegate_store::Table| table.ttl.unwrap();
        assert!(ttl(Due::TABLE) >= ttl(Delivery::TABLE) + LONGEST_PAUSE);
        assert!(ttl(DeliveryByDay::TABLE) > ttl(Delivery::TABLE) + RELIST_AFTER);
    }
}
