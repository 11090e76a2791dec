//! A point in time as sources give it: whole seconds stay whole seconds.
//!
//! It reads no clock.

use std::fmt;

/// Milliseconds since 1970, and whether the source knew more than the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    pub millis: i64,
    pub fine: bool,
}

const DAY: i64 = 86_400_000;
/// The years 0000 to 9999, which is what the form of a date-time can hold.
const FIRST: i64 = -62_167_219_200_000;
const LAST: i64 = 253_402_300_799_999;
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
        let timestamp: jiff::Timestamp = text.parse().ok()?;
        let millis = timestamp.as_millisecond();
        (FIRST..=LAST).contains(&millis).then_some(Self { millis, fine })
    }

    /// The beginning of its day.
    pub(crate) fn day(self) -> Self {
        Self { millis: self.millis.div_euclid(DAY) * DAY, fine: false }
    }

    /// `2010-10-29T13:38:33.123Z`, or without the fraction.
    pub(crate) fn write(self, into: &mut Vec<u8>) {
        let (year, month, day) = civil(self.millis.div_euclid(DAY));
        let rest = self.millis.rem_euclid(DAY);
        let mut text = *b"0000-00-00T00:00:00.000Z";
        put(&mut text[0..4], year);
        put(&mut text[5..7], month);
        put(&mut text[8..10], day);
        put(&mut text[11..13], rest / 3_600_000);
        put(&mut text[14..16], rest / 60_000 % 60);
        put(&mut text[17..19], rest / 1000 % 60);
        put(&mut text[20..23], rest % 1000);
        if self.fine {
            into.extend_from_slice(&text);
        } else {
            text[19] = b'Z';
            into.extend_from_slice(&text[..20]);
        }
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::with_capacity(24);
        self.write(&mut text);
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
