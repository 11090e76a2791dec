//! A length of time as documents write it, such as `90d`.
//!
//! It does not know calendars: a day has 24 hours.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A whole number of seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Period(u64);

const UNITS: [(char, u64); 4] = [('d', 86_400), ('h', 3_600), ('m', 60), ('s', 1)];

/// Ten thousand days: beyond it no row lives, and sums with instants stay far from overflow.
const LONGEST: u64 = 10_000 * 86_400;

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
        const FORM: &str = "a period is a whole number and one of `d`, `h`, `m`, `s`, such as `90d`";
        let mut letters = text.chars();
        let unit = letters.next_back().ok_or(FORM)?;
        let (_, seconds) = UNITS.into_iter().find(|(letter, _)| *letter == unit).ok_or(FORM)?;
        let digits = letters.as_str();
        if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(FORM);
        }
        let count: u64 = digits.parse().map_err(|_| FORM)?;
        let total = count.checked_mul(seconds).filter(|total| *total <= LONGEST);
        total.map(Self).ok_or("a period is at most 10000 days long")
    }
}

/// Shows the period in the largest unit without a remainder.
impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = |&&(_, seconds): &&(char, u64)| self.0.is_multiple_of(seconds) && self.0 > 0;
        let (letter, seconds) = UNITS.iter().find(whole).unwrap_or(&UNITS[3]);
        write!(f, "{}{letter}", self.0 / seconds)
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
