//! Periods in documents, such as `90d`.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::duration::{DurationError, format_duration, parse_duration};

/// Duration of a whole number of seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Period(u64);

const UNITS: [&str; 4] = ["d", "h", "m", "s"];

/// Maximum period: ten thousand days. No row is kept for longer, and sums with instants cannot overflow.
const MAX_SECONDS: u64 = 10_000 * 86_400;

impl Period {
    pub const fn of_seconds(seconds: u64) -> Self {
        Self(seconds)
    }

    pub const fn seconds(self) -> u64 {
        self.0
    }

    pub const fn duration(self) -> Duration {
        Duration::from_secs(self.0)
    }
}

impl FromStr for Period {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const TOO_LONG: &str = "a period may be at most 10000 days long";
        const FORM: &str = "a period is a whole number and one of `d`, `h`, `m`, `s`, such as `90d`";
        let duration = parse_duration(text, &UNITS).map_err(|error| match error {
            DurationError::Form => FORM,
            DurationError::TooLong => TOO_LONG,
        })?;
        // Exact, because the accepted units are whole seconds.
        let seconds = duration.as_secs();
        if seconds <= MAX_SECONDS { Ok(Self(seconds)) } else { Err(TOO_LONG) }
    }
}

/// Formats the period in the largest unit without a remainder.
impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format_duration(self.duration(), &UNITS))
    }
}

impl Serialize for Period {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_written_in_its_largest_whole_unit() {
        for (text, seconds) in [("90d", 7_776_000), ("36h", 129_600), ("90m", 5_400), ("61s", 61), ("0s", 0)]
        {
            assert_eq!(text.parse(), Ok(Period(seconds)));
            assert_eq!(Period(seconds).to_string(), text);
        }
        assert_eq!("24h".parse::<Period>().map(|period| period.to_string()), Ok("1d".to_owned()));
        for wrong in ["", "d", "90", "1w", "-1d", "+1d", "1.5h", "99999999999999999999d", "10001d", "é"] {
            assert!(wrong.parse::<Period>().is_err(), "{wrong}");
        }
    }
}
