//! What an operator may set about callbacks, with the defaults.
//!
//! It does not hold what one request may cost (`egress`) nor how the topic is consumed (`processors`).

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{delivery_state::Schedule, endpoint_queues::Bounds};
use crate::settings::SettingsError;

/// The section `callbacks` of the service's settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The pause before each attempt; as many attempts are made as there are pauses. Default `0s, 5s, 30s, 2m, 10m,
    /// 30m, 2h, 5h, 10h, 14h, 20h, 24h`: twelve attempts over 76 hours.
    pub schedule: Vec<Pause>,
    /// How far a pause may be off, in percent, so that what failed together does not come back together. Default 20.
    pub jitter_percent: u32,
    /// So many attempts of a delivery may meet an address that may not be called, then it is exhausted. Default 3.
    pub blocked_attempts: u32,
    /// So many answers of status 410 in a row hold a delivery until it is resent. Default 2.
    pub gone_attempts: u32,
    /// How many calls one endpoint of an org has under way at once, from all processes together: each makes as many of
    /// them as it owns of the topic's partitions, at least one. Default 8.
    pub in_flight_per_endpoint: usize,
    /// How many calls this process has under way at once. Default 1,024.
    pub in_flight: usize,
    /// How many deliveries wait in memory for one endpoint; further ones wait in the store. Default 10,000.
    pub backlog_per_endpoint: usize,
    /// How many deliveries wait in memory in all; an endpoint with few waiting takes more in spite of it. Default
    /// 100,000.
    pub backlog: usize,
    /// How long a delivery that found no room in memory stays in the store before it is offered again, at most, in
    /// milliseconds. It is also how late a slow endpoint that became fast is noticed. Default 300,000.
    pub longest_deferral_ms: u64,
    /// How long a delivery whose endpoint, secret or header variable is missing is held before that is looked for
    /// again, in milliseconds. Default 180,000.
    pub hold_recheck_ms: u64,
    /// Added to the time that a call may take (`egress.total_timeout_ms`) before somebody else may believe that it was
    /// cut off by a crash, in milliseconds. Default 15,000.
    pub lease_margin_ms: u64,
    /// The largest body, in bytes; a callback with a larger one is listed as `too_large`. Default 256 KiB.
    pub max_body_bytes: usize,
    /// How often due deliveries are looked for, in milliseconds. Default 500.
    pub poll_ms: u64,
    /// How often the last ten minutes of due rows are read again, in milliseconds. Default 60,000.
    pub sweep_ms: u64,
    /// How long calls under way are waited for after a stop, in milliseconds; at least `egress.total_timeout_ms` makes
    /// sure that none is cut off and made again. Default 20,000.
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

/// Deliveries live for 30 days after their last change, their due rows for 35.
const LONGEST_PAUSE: Duration = Duration::from_secs(4 * 86_400);

impl Settings {
    /// Refuses values that cannot work, naming both where two contradict each other.
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
        for (name, value) in [
            ("blocked_attempts", u64::from(self.blocked_attempts)),
            ("gone_attempts", u64::from(self.gone_attempts)),
            ("in_flight_per_endpoint", self.in_flight_per_endpoint as u64),
            ("backlog_per_endpoint", self.backlog_per_endpoint as u64),
            ("longest_deferral_ms", self.longest_deferral_ms),
            ("hold_recheck_ms", self.hold_recheck_ms),
            ("lease_margin_ms", self.lease_margin_ms),
            ("max_body_bytes", self.max_body_bytes as u64),
            ("poll_ms", self.poll_ms),
            ("drain_ms", self.drain_ms),
        ] {
            if value == 0 {
                return refuse(format!("callbacks.{name} must be above 0"));
            }
        }
        for (lesser, less, greater, great) in [
            (
                "in_flight_per_endpoint",
                self.in_flight_per_endpoint as u64,
                "in_flight",
                self.in_flight as u64,
            ),
            ("backlog_per_endpoint", self.backlog_per_endpoint as u64, "backlog", self.backlog as u64),
            ("poll_ms", self.poll_ms, "sweep_ms", self.sweep_ms),
            // Sweeps must come well within the minutes that they read again.
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

    pub(crate) fn rules(&self) -> Schedule {
        Schedule {
            pauses: self.schedule.iter().map(|pause| pause.0).collect(),
            jitter: f64::from(self.jitter_percent) / 100.0,
            blocked: i64::from(self.blocked_attempts),
            gone: i64::from(self.gone_attempts),
        }
    }

    pub(crate) const fn bounds(&self) -> Bounds {
        Bounds {
            lane: self.in_flight_per_endpoint,
            all: self.in_flight,
            backlog: self.backlog_per_endpoint,
            backlog_of_all: self.backlog,
            longest_deferral: Duration::from_millis(self.longest_deferral_ms),
        }
    }

    /// What this process may have under way to one endpoint while it owns so many of the partitions. The events of an
    /// endpoint lie evenly in all partitions, so whoever owns a part of them gets that part of the calls.
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

/// A length of time as settings write it: `250ms`, `5s`, `2m`, `10h`, `1d`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pause(pub Duration);

/// The largest first; `ms` stands before the units that it ends or begins with.
const UNITS: [(&str, u64); 5] = [("ms", 1), ("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)];

impl FromStr for Pause {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const FORM: &str = "a pause is a whole number and one of `ms`, `s`, `m`, `h`, `d`, such as `30s`";
        let unit = UNITS.iter().find_map(|(unit, millis)| Some((text.strip_suffix(unit)?, millis)));
        let (digits, millis) = unit.ok_or(FORM)?;
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(FORM);
        }
        let total = digits.parse().ok().and_then(|count: u64| count.checked_mul(*millis));
        total.map(|total| Self(Duration::from_millis(total))).ok_or("the pause is too long")
    }
}

/// In the largest unit that leaves no rest.
impl fmt::Display for Pause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX);
        let whole = |&&(_, millis): &&(&str, u64)| total > 0 && total.is_multiple_of(millis);
        let (unit, millis) =
            UNITS[1..].iter().find(whole).unwrap_or(if total == 0 { &UNITS[4] } else { &UNITS[0] });
        write!(f, "{}{unit}", total / millis)
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
    fn an_empty_section_is_the_documented_default() {
        let settings: Settings = serde_json::from_str("{}").unwrap();
        assert_eq!(settings, Settings::default());
        settings.validate().unwrap();
        let schedule = r#"["0s","5s","30s","2m","10m","30m","2h","5h","10h","14h","20h","1d"]"#;
        assert_eq!(serde_json::to_string(&settings.schedule).unwrap(), schedule);
        assert_eq!(serde_json::from_str::<Vec<Pause>>(schedule).unwrap(), settings.schedule);
        assert!(serde_json::from_str::<Settings>(r#"{"lane":1}"#).is_err());
    }

    #[test]
    fn what_cannot_work_is_refused_with_both_settings_named() {
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
            let fault = settings.validate().unwrap_err().to_string();
            assert!(fault.contains(named), "{fault}");
        }
    }

    #[test]
    fn the_calls_to_an_endpoint_are_divided_as_the_partitions_are() {
        let settings = Settings::default();
        assert_eq!(settings.share(64, 64), 8, "alone");
        assert_eq!([22, 21, 21].map(|owned| settings.share(owned, 64)), [3, 3, 3]);
        assert_eq!(settings.share(1, 64), 1, "nobody stands still");
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

    /// So no outage, however long, leaves a delivery that nothing points to, and no rebuilding is needed.
    #[test]
    fn due_rows_and_lists_outlive_the_deliveries_that_they_point_to() {
        let ttl = |table: &tidegate_store::Table| table.ttl.unwrap();
        assert!(ttl(Due::TABLE) >= ttl(Delivery::TABLE) + LONGEST_PAUSE);
        assert!(ttl(DeliveryByDay::TABLE) > ttl(Delivery::TABLE) + RELIST_AFTER);
    }
}
