//! A point in time as sources give it: whole seconds stay whole seconds.

#![allow(clippy::cast_possible_truncation, reason = "digits")]

use std::{
    fmt,
    time::{SystemTime, UNIX_EPOCH},
};

use jiff::{
    SignedDuration,
    civil::{self, Date},
    fmt::temporal::{Pieces, PiecesOffset},
};

/// Milliseconds since 1970, and whether the source knew more than the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamp {
    pub millis: i64,
    pub fine: bool,
}

/// Characters of a time with its fraction.
pub(crate) const FULL_LENGTH: usize = 24;
/// Characters before the fraction.
const SECONDS: usize = 19;
const DAY: i64 = 86_400_000;
const EPOCH: Date = civil::date(1970, 1, 1);
/// The years 0000 to 9999, which is what the form of a date-time can hold.
pub(crate) const FIRST: i64 = -62_167_219_200_000;
pub(crate) const LAST: i64 = 253_402_300_799_999;
/// Epoch seconds stay below this until the year 5138; milliseconds have been above it since 1973.
const SECONDS_BELOW: i64 = 100_000_000_000;

impl Timestamp {
    /// Converts a count since 1970, in seconds or milliseconds by its size.
    pub(crate) fn from_epoch(count: i64) -> Option<Self> {
        let (millis, fine) =
            if count.abs() < SECONDS_BELOW { (count.checked_mul(1000)?, false) } else { (count, true) };
        (FIRST..=LAST).contains(&millis).then_some(Self { millis, fine })
    }

    pub fn from_seconds(seconds: i64) -> Option<Self> {
        let millis = seconds.checked_mul(1000)?;
        (FIRST..=LAST).contains(&millis).then_some(Self { millis, fine: false })
    }

    /// Parses a text such as `2010-10-29 13:38:33 UTC` or `2010-10-29T13:38:33.123Z`.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let fine = text.contains('.');
        let text = text.strip_suffix(" UTC").map_or_else(|| text.to_owned(), |bare| format!("{bare}Z"));
        let millis = millis_of(&text)?;
        (FIRST..=LAST).contains(&millis).then_some(Self { millis, fine })
    }

    pub(crate) fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { millis: i64::try_from(since.as_millis()).unwrap_or(i64::MAX), fine: true }
    }

    /// The beginning of its day.
    pub(crate) fn day(self) -> Self {
        Self { millis: self.millis.div_euclid(DAY) * DAY, fine: false }
    }

    /// `2010-10-29T13:38:33.123Z`, or without the fraction.
    #[inline]
    pub(crate) fn write(self, into: &mut Vec<u8>, days: &mut DayCache) {
        let mut text = self.text(days);
        if self.fine {
            into.extend_from_slice(&text);
        } else {
            text[SECONDS] = b'Z';
            into.extend_from_slice(&text[..=SECONDS]);
        }
    }

    /// Writes the time with its fraction.
    #[inline]
    pub(crate) fn text(self, days: &mut DayCache) -> [u8; FULL_LENGTH] {
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

/// The day that was written last: rows that follow each other mostly share theirs.
#[derive(Clone, Debug)]
pub(crate) struct DayCache {
    day: i64,
    text: [u8; FULL_LENGTH],
}

impl Default for DayCache {
    fn default() -> Self {
        Self { day: 0, text: *b"1970-01-01T00:00:00.000Z" }
    }
}

impl DayCache {
    #[inline]
    fn of(&mut self, day: i64) -> &[u8; FULL_LENGTH] {
        if self.day != day {
            self.turn_to(day);
        }
        &self.text
    }

    #[cold]
    fn turn_to(&mut self, day: i64) {
        self.day = day;
        // A moment lies within the years 0 to 9999, all days of which a date can be.
        let date = EPOCH.saturating_add(SignedDuration::from_hours(24 * day));
        put(&mut self.text[0..4], date.year().into());
        put(&mut self.text[5..7], date.month().into());
        put(&mut self.text[8..10], date.day().into());
    }
}

#[inline]
fn pair(value: u32) -> [u8; 2] {
    [b'0' + (value / 10) as u8, b'0' + (value % 10) as u8]
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::with_capacity(24);
        self.write(&mut text, &mut DayCache::default());
        f.write_str(&String::from_utf8_lossy(&text))
    }
}

fn put(into: &mut [u8], mut value: i64) {
    for digit in into.iter_mut().rev() {
        *digit = b'0' + u8::try_from(value % 10).unwrap_or_default();
        value /= 10;
    }
}

/// Milliseconds since 1970 of a date and time with an offset.
fn millis_of(text: &str) -> Option<i64> {
    // Not `jiff::Timestamp`: part of the last day of the year 9999 is beyond what it holds.
    let pieces = Pieces::parse(text).ok()?;
    let since = pieces.date().to_datetime(pieces.time()?).duration_since(EPOCH.at(0, 0, 0, 0));
    let ahead = match pieces.offset()? {
        PiecesOffset::Zulu => 0,
        PiecesOffset::Numeric(offset) => offset.offset().seconds().into(),
        _ => return None,
    };
    i64::try_from(since.checked_sub(SignedDuration::from_secs(ahead))?.as_millis()).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn seconds_stay_seconds_and_milliseconds_stay_milliseconds() {
        assert_eq!(Timestamp::from_epoch(1_658_933_760).unwrap().to_string(), "2022-07-27T14:56:00Z");
        assert_eq!(Timestamp::from_epoch(1_658_933_760_180).unwrap().to_string(), "2022-07-27T14:56:00.180Z");
        assert_eq!(Timestamp::parse("2010-10-29 13:38:33 UTC").unwrap().to_string(), "2010-10-29T13:38:33Z");
        assert_eq!(Timestamp::from_epoch(i64::MAX), None);
        for last in ["9999-12-30T23:59:59Z", "9999-12-31T00:00:00Z", "9999-12-31T23:59:59.999Z"] {
            assert_eq!(Timestamp::parse(last).unwrap().to_string(), last);
        }
        for (zoned, same) in [
            ("9999-12-31T00:30:00+01:00", "9999-12-30T23:30:00Z"),
            ("9999-12-31T23:59:59+01:00", "9999-12-31T22:59:59Z"),
            ("9999-12-29T23:59:59.5-23:59", "9999-12-30T23:58:59.500Z"),
        ] {
            assert_eq!(Timestamp::parse(zoned).unwrap().to_string(), same, "{zoned}");
        }
        assert_eq!(Timestamp::parse("9999-12-31T23:59:59-00:01"), None);
        for none in ["9999-12-32T00:00:00Z", "9999-12-31T24:00:00Z", "9999-12-31T23:59:59", "9999-12-31Tx"] {
            assert_eq!(Timestamp::parse(none), None, "{none}");
        }
    }

    #[test]
    fn every_day_is_the_one_that_another_calendar_says() {
        for days in (-700_000..2_900_000).step_by(97) {
            let moment = Timestamp { millis: days * DAY + 12_345_678, fine: true };
            let expected = jiff::Timestamp::from_millisecond(moment.millis).unwrap();
            assert_eq!(moment.to_string(), format!("{expected:.3}"));
        }
    }
}
