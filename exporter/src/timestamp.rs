//! A point in time as sources give it: whole seconds stay whole seconds.
//!
//! It reads no clock.

#![allow(clippy::cast_possible_truncation, reason = "digits")]

use std::fmt;

/// Milliseconds since 1970, and whether the source knew more than the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    pub millis: i64,
    pub fine: bool,
}

/// Characters of a time with its fraction.
pub(crate) const FINE: usize = 24;
/// Of them, those before the fraction.
const SECONDS: usize = 19;
const DAY: i64 = 86_400_000;
/// The years 0000 to 9999, which is what the form of a date-time can hold.
pub(crate) const FIRST: i64 = -62_167_219_200_000;
pub(crate) const LAST: i64 = 253_402_300_799_999;
/// Epoch seconds stay below this until the year 5138; milliseconds have been above it since 1973.
const SECONDS_BELOW: i64 = 100_000_000_000;

impl Moment {
    /// From a count since 1970, in seconds or milliseconds as its size tells.
    pub(crate) fn from_epoch(count: i64) -> Option<Self> {
        let (millis, fine) =
            if count.abs() < SECONDS_BELOW { (count.checked_mul(1000)?, false) } else { (count, true) };
        (FIRST..=LAST).contains(&millis).then_some(Self { millis, fine })
    }

    pub fn from_seconds(seconds: i64) -> Option<Self> {
        let millis = seconds.checked_mul(1000)?;
        (FIRST..=LAST).contains(&millis).then_some(Self { millis, fine: false })
    }

    /// From a text such as `2010-10-29 13:38:33 UTC` or `2010-10-29T13:38:33.123Z`.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let fine = text.contains('.');
        let text = text.strip_suffix(" UTC").map_or_else(|| text.to_owned(), |bare| format!("{bare}Z"));
        let millis = match text.parse::<jiff::Timestamp>() {
            Ok(timestamp) => timestamp.as_millisecond(),
            Err(_) => last_days(&text)?,
        };
        (FIRST..=LAST).contains(&millis).then_some(Self { millis, fine })
    }

    /// The beginning of its day.
    pub(crate) fn day(self) -> Self {
        Self { millis: self.millis.div_euclid(DAY) * DAY, fine: false }
    }

    /// `2010-10-29T13:38:33.123Z`, or without the fraction.
    #[inline]
    pub(crate) fn write(self, into: &mut Vec<u8>, days: &mut Days) {
        let mut text = self.text(days);
        if self.fine {
            into.extend_from_slice(&text);
        } else {
            text[SECONDS] = b'Z';
            into.extend_from_slice(&text[..=SECONDS]);
        }
    }

    /// With the fraction.
    #[inline]
    pub(crate) fn text(self, days: &mut Days) -> [u8; FINE] {
        let mut text = *days.of(self.millis.div_euclid(DAY));
        let rest = u32::try_from(self.millis.rem_euclid(DAY)).unwrap_or_default();
        let (seconds, millis) = (rest / 1000, rest % 1000);
        let (minutes, hours) = (seconds / 60, seconds / 3_600);
        text[11..13].copy_from_slice(&pair(hours));
        text[14..16].copy_from_slice(&pair(minutes % 60));
        text[17..19].copy_from_slice(&pair(seconds % 60));
        text[20..22].copy_from_slice(&pair(millis / 10));
        text[22] = b'0' + (millis % 10) as u8;
        text
    }
}

/// The last days of the year 9999, part of which lies beyond what the parser of moments takes, in whatever zone.
fn last_days(text: &str) -> Option<i64> {
    let (date, rest) = text.split_at_checked("9999-12-31".len())?;
    // A zone may be a day away at most.
    let before = ["9999-12-31", "9999-12-30", "9999-12-29"].iter().position(|day| *day == date)?;
    let begins = LAST + 1 - DAY * (i64::try_from(before).ok()? + 1);
    let rest = rest.strip_prefix(['T', 't', ' '])?;
    let (time, ahead) = match rest.strip_suffix(['Z', 'z']) {
        Some(time) => (time, 0),
        None => {
            let at = rest.rfind(['+', '-'])?;
            let (time, zone) = rest.split_at(at);
            let (sign, zone) = zone.split_at(1);
            let minutes = since_midnight(zone)? / 60_000;
            (time, if sign == "-" { -minutes } else { minutes })
        }
    };
    begins.checked_add(since_midnight(time)?)?.checked_sub(ahead * 60_000)
}

/// Milliseconds of the time of a day.
fn since_midnight(time: &str) -> Option<i64> {
    let since = time.parse::<jiff::civil::Time>().ok()?.duration_since(jiff::civil::Time::midnight());
    i64::try_from(since.as_millis()).ok()
}

/// The day that was written last: rows that follow each other mostly share theirs.
#[derive(Clone, Debug)]
pub(crate) struct Days {
    day: i64,
    text: [u8; FINE],
}

impl Default for Days {
    fn default() -> Self {
        Self { day: 0, text: *b"1970-01-01T00:00:00.000Z" }
    }
}

impl Days {
    #[inline]
    fn of(&mut self, day: i64) -> &[u8; FINE] {
        if self.day != day {
            self.turn_to(day);
        }
        &self.text
    }

    #[cold]
    fn turn_to(&mut self, day: i64) {
        self.day = day;
        let (year, month, date) = civil(day);
        put(&mut self.text[0..4], year);
        put(&mut self.text[5..7], month);
        put(&mut self.text[8..10], date);
    }
}

#[inline]
fn pair(value: u32) -> [u8; 2] {
    [b'0' + (value / 10) as u8, b'0' + (value % 10) as u8]
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::with_capacity(24);
        self.write(&mut text, &mut Days::default());
        f.write_str(&String::from_utf8_lossy(&text))
    }
}

fn put(into: &mut [u8], mut value: i64) {
    for digit in into.iter_mut().rev() {
        *digit = b'0' + u8::try_from(value % 10).unwrap_or_default();
        value /= 10;
    }
}

/// Year, month and day of a day since 1970, in the proleptic Gregorian calendar: eras of 400 years that begin in March.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn seconds_stay_seconds_and_milliseconds_stay_milliseconds() {
        assert_eq!(Moment::from_epoch(1_658_933_760).unwrap().to_string(), "2022-07-27T14:56:00Z");
        assert_eq!(Moment::from_epoch(1_658_933_760_180).unwrap().to_string(), "2022-07-27T14:56:00.180Z");
        assert_eq!(Moment::parse("2010-10-29 13:38:33 UTC").unwrap().to_string(), "2010-10-29T13:38:33Z");
        assert_eq!(Moment::from_epoch(i64::MAX), None);
        for last in ["9999-12-30T23:59:59Z", "9999-12-31T00:00:00Z", "9999-12-31T23:59:59.999Z"] {
            assert_eq!(Moment::parse(last).unwrap().to_string(), last);
        }
        for (zoned, same) in [
            ("9999-12-31T00:30:00+01:00", "9999-12-30T23:30:00Z"),
            ("9999-12-31T23:59:59+01:00", "9999-12-31T22:59:59Z"),
            ("9999-12-29T23:59:59.5-23:59", "9999-12-30T23:58:59.500Z"),
        ] {
            assert_eq!(Moment::parse(zoned).unwrap().to_string(), same, "{zoned}");
        }
        assert_eq!(Moment::parse("9999-12-31T23:59:59-00:01"), None);
        for none in ["9999-12-32T00:00:00Z", "9999-12-31T24:00:00Z", "9999-12-31T23:59:59", "9999-12-31Tx"] {
            assert_eq!(Moment::parse(none), None, "{none}");
        }
    }

    #[test]
    fn every_day_is_the_one_that_another_calendar_says() {
        for days in (-700_000..2_900_000).step_by(97) {
            let moment = Moment { millis: days * DAY + 12_345_678, fine: true };
            let expected = jiff::Timestamp::from_millisecond(moment.millis).unwrap();
            assert_eq!(moment.to_string(), format!("{expected:.3}"));
        }
    }
}
