//! Settings of the section `callbacks`: defaults and checks.
//!
//! Limits of one call are in the section `egress`, limits of the topic's consumer in `processors`.

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
    /// Percentage by which a pause may be shorter or longer. Spreads the retries of deliveries that failed together.
    /// Default 20.
    pub jitter_percent: u32,
    /// Number of attempts at blocked addresses after which a delivery is exhausted. Default 3.
    pub blocked_attempts: u32,
    /// Number of consecutive answers with status 410 that hold a delivery until it is resent. Default 2.
    pub gone_attempts: u32,
    /// Concurrent calls to one endpoint of an org, from all processes together. Each process makes the share that it
    /// owns of the topic's partitions, at least one. Default 8.
    pub in_flight_per_endpoint: usize,
    /// Concurrent calls of this process. Default 1,024.
    pub in_flight: usize,
    /// Deliveries that wait in memory for one endpoint; further ones wait in the store. Default 10,000.
    pub backlog_per_endpoint: usize,
    /// Deliveries that wait in memory for all endpoints; an endpoint with few waiting may add more. Default 100,000.
    pub backlog: usize,
    /// Longest time in milliseconds before a delivery without room in memory is offered again. Also the longest time to
    /// notice that a slow endpoint became fast. Default 300,000.
    pub longest_deferral_ms: u64,
    /// Interval in milliseconds between two checks of a delivery that is held for a missing endpoint, secret or header
    /// variable. Default 180,000.
    pub hold_recheck_ms: u64,
    /// Time in milliseconds beyond the longest duration of a call (`egress.total_timeout_ms`), after which another process
    /// may assume that a crash cut off the call. Default 15,000.
    pub lease_margin_ms: u64,
    /// Largest body in bytes. A callback with a larger body is listed as `too_large`. Default 256 KiB.
    pub max_body_bytes: usize,
    /// Interval between two searches for due deliveries, in milliseconds. Default 500.
    pub poll_ms: u64,
    /// Interval between two complete reads of the last ten minutes of due rows, in milliseconds. Default 60,000.
    pub sweep_ms: u64,
    /// Time in milliseconds for running calls after a stop. With at least `egress.total_timeout_ms`, no call is cut off and
    /// repeated. Default 20,000.
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

/// Longest pause. A delivery expires 30 days after its last change and a due row after 35, so with a longer pause a
/// delivery could outlive its due row.
const MAX_PAUSE: Duration = Duration::from_secs(4 * 86_400);

impl Settings {
    /// Rejects unusable values. The error names both settings if two contradict each other.
    pub fn validate(&self) -> Result<(), SettingsError> {
        let reject = |message: String| Err(SettingsError::new(message));
        if self.schedule.is_empty() {
            return reject("callbacks.schedule must have at least one pause".to_owned());
        }
        if let Some(pause) = self.schedule.iter().find(|pause| pause.0 > MAX_PAUSE) {
            return reject(format!("callbacks.schedule has a pause of {pause}, above the maximum of 4d"));
        }
        if self.jitter_percent > 50 {
            return reject(format!("callbacks.jitter_percent = {} must be at most 50", self.jitter_percent));
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
        for (lower_name, lower, upper_name, upper) in [
            (
                "in_flight_per_endpoint",
                self.in_flight_per_endpoint as u64,
                "in_flight",
                self.in_flight as u64,
            ),
            ("backlog_per_endpoint", self.backlog_per_endpoint as u64, "backlog", self.backlog as u64),
            ("poll_ms", self.poll_ms, "sweep_ms", self.sweep_ms),
            // A sweep reads the last ten minutes again; five minutes leave room for a late sweep.
            ("sweep_ms", self.sweep_ms, "the limit for finding late due rows, in ms", 300_000),
        ] {
            if lower > upper {
                return reject(format!(
                    "callbacks.{lower_name} = {lower} must not be above {upper_name} = {upper}"
                ));
            }
        }
        Ok(())
    }

    pub(crate) fn retry_schedule(&self) -> RetrySchedule {
        RetrySchedule {
            pauses: self.schedule.iter().map(|pause| pause.0).collect(),
            jitter: f64::from(self.jitter_percent) / 100.0,
            max_blocked_attempts: i64::from(self.blocked_attempts),
            max_gone_answers: i64::from(self.gone_attempts),
        }
    }

    pub(crate) const fn bounds(&self) -> Bounds {
        Bounds {
            calls_per_queue: self.in_flight_per_endpoint,
            calls: self.in_flight,
            backlog_per_queue: self.backlog_per_endpoint,
            total_backlog: self.backlog,
            longest_deferral: Duration::from_millis(self.longest_deferral_ms),
        }
    }

    /// Returns this process's share of the concurrent calls to one endpoint. The events of an endpoint are spread
    /// evenly over the partitions, so the share of calls is the share of partitions.
    pub(crate) fn calls_per_endpoint(&self, owned_partitions: usize, partition_count: usize) -> usize {
        // At least one: the owner of few partitions must be able to call the endpoint too.
        let share =
            self.in_flight_per_endpoint.saturating_mul(owned_partitions).div_ceil(partition_count.max(1));
        share.clamp(1, self.in_flight_per_endpoint)
    }

    pub(crate) const fn drain_timeout(&self) -> Duration {
        Duration::from_millis(self.drain_ms)
    }

    pub(crate) const fn recheck_interval(&self) -> Duration {
        Duration::from_millis(self.hold_recheck_ms)
    }
}

/// Duration in the notation of settings: `250ms`, `5s`, `2m`, `10h`, `1d`.
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
        // Zero is written as `0s`, as in the documented default schedule.
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
        for (settings, expected_message) in [
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
            assert!(error.contains(expected_message), "{error}");
        }
    }

    #[test]
    fn calls_to_an_endpoint_are_divided_like_the_partitions() {
        let settings = Settings::default();
        assert_eq!(settings.calls_per_endpoint(64, 64), 8, "alone");
        assert_eq!([22, 21, 21].map(|owned| settings.calls_per_endpoint(owned, 64)), [3, 3, 3]);
        assert_eq!(settings.calls_per_endpoint(1, 64), 1, "every owner makes calls");
        assert_eq!(settings.calls_per_endpoint(0, 64), 1);
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

    /// A delivery that outlived its due row or list row could not be found after a long outage.
    #[test]
    fn due_rows_and_lists_outlive_their_deliveries() {
        let ttl = |table: &tidegate_store::Table| table.ttl.unwrap();
        assert!(ttl(Due::TABLE) >= ttl(Delivery::TABLE) + MAX_PAUSE);
        assert!(ttl(DeliveryByDay::TABLE) > ttl(Delivery::TABLE) + RELIST_AFTER);
    }
}
