//! Timestamp of a source, which keeps its precision: whole seconds are written without a fraction.

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
use tidegate_schemas::ids::Millis;

/// Milliseconds since 1970, and whether the source gave a fraction of a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamp {
    pub millis: i64,
    pub has_millis: bool,
}

/// Length of a formatted time with milliseconds.
pub(crate) const FULL_LENGTH: usize = 24;
/// Length of the part before the fraction.
const SECONDS_LENGTH: usize = 19;
const DAY_MILLIS: i64 = 86_400_000;
const EPOCH: Date = civil::date(1970, 1, 1);
/// First and last millisecond of the years 0000 to 9999, the range of an RFC 3339 time.
pub(crate) const MIN_MILLIS: i64 = -62_167_219_200_000;
pub(crate) const MAX_MILLIS: i64 = 253_402_300_799_999;
/// Counts below this are seconds, larger ones milliseconds. As seconds it is the year 5138, as milliseconds 1973.
const MAX_EPOCH_SECONDS: i64 = 100_000_000_000;

impl Timestamp {
    /// Converts a count since 1970. Its size tells seconds from milliseconds.
    pub(crate) fn from_epoch(count: i64) -> Option<Self> {
        let (millis, fine) =
            if count.abs() < MAX_EPOCH_SECONDS { (count.checked_mul(1000)?, false) } else { (count, true) };
        (MIN_MILLIS..=MAX_MILLIS).contains(&millis).then_some(Self { millis, has_millis: fine })
    }

    pub fn from_millis(at: Millis) -> Option<Self> {
        (MIN_MILLIS..=MAX_MILLIS).contains(&at.0).then_some(Self { millis: at.0, has_millis: true })
    }

    pub fn from_seconds(seconds: i64) -> Option<Self> {
        let millis = seconds.checked_mul(1000)?;
        (MIN_MILLIS..=MAX_MILLIS).contains(&millis).then_some(Self { millis, has_millis: false })
    }

    /// Parses text such as `2010-10-29 13:38:33 UTC` or `2010-10-29T13:38:33.123Z`.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let fine = text.contains('.');
        // The parser expects an offset instead of the zone name.
        let text = text.strip_suffix(" UTC").map_or_else(|| text.to_owned(), |bare| format!("{bare}Z"));
        let millis = millis_of(&text)?;
        (MIN_MILLIS..=MAX_MILLIS).contains(&millis).then_some(Self { millis, has_millis: fine })
    }

    pub(crate) fn now() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { millis: i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX), has_millis: true }
    }

    /// Start of the same day (UTC).
    pub(crate) fn day(self) -> Self {
        Self { millis: self.millis.div_euclid(DAY_MILLIS) * DAY_MILLIS, has_millis: false }
    }

    /// Appends `2010-10-29T13:38:33.123Z`, without the fraction if the source gave none.
    #[inline]
    pub(crate) fn write(self, into: &mut Vec<u8>, days: &mut DayCache) {
        let mut text = self.text(days);
        if self.has_millis {
            into.extend_from_slice(&text);
        } else {
            // Replaces the dot before the fraction.
            text[SECONDS_LENGTH] = b'Z';
            into.extend_from_slice(&text[..=SECONDS_LENGTH]);
        }
    }

    /// Formats the time with its fraction.
    #[inline]
    pub(crate) fn text(self, days: &mut DayCache) -> [u8; FULL_LENGTH] {
        let mut text = *days.text_of(self.millis.div_euclid(DAY_MILLIS));
        let millis_of_day = u32::try_from(self.millis.rem_euclid(DAY_MILLIS)).unwrap_or_default();
        let (seconds, millis) = (millis_of_day / 1000, millis_of_day % 1000);
        let (minutes, hours) = (seconds / 60, seconds / 3_600);
        text[11..13].copy_from_slice(&pair(hours));
        text[14..16].copy_from_slice(&pair(minutes % 60));
        text[17..19].copy_from_slice(&pair(seconds % 60));
        text[20..22].copy_from_slice(&pair(millis / 10));
        text[22] = b'0' + (millis % 10) as u8;
        text
    }
}

/// Formatted date of the last written row; consecutive rows mostly share their day.
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
    fn text_of(&mut self, day: i64) -> &[u8; FULL_LENGTH] {
        if self.day != day {
            self.set_day(day);
        }
        &self.text
    }

    #[cold]
    fn set_day(&mut self, day: i64) {
        self.day = day;
        // Cannot saturate: a timestamp lies within the years 0 to 9999, which `Date` covers.
        let date = EPOCH.saturating_add(SignedDuration::from_hours(24 * day));
        write_digits(&mut self.text[0..4], date.year().into());
        write_digits(&mut self.text[5..7], date.month().into());
        write_digits(&mut self.text[8..10], date.day().into());
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

fn write_digits(into: &mut [u8], mut value: i64) {
    for digit in into.iter_mut().rev() {
        *digit = b'0' + u8::try_from(value % 10).unwrap_or_default();
        value /= 10;
    }
}

/// Milliseconds since 1970 of an RFC 3339 text with an offset.
fn millis_of(text: &str) -> Option<i64> {
    // `jiff::Timestamp` ends within the last day of the year 9999; the arithmetic on dates covers the whole day.
    let pieces = Pieces::parse(text).ok()?;
    let since_epoch = pieces.date().to_datetime(pieces.time()?).duration_since(EPOCH.at(0, 0, 0, 0));
    let offset_seconds = match pieces.offset()? {
        PiecesOffset::Zulu => 0,
        PiecesOffset::Numeric(offset) => offset.offset().seconds().into(),
        _ => return None,
    };
    i64::try_from(since_epoch.checked_sub(SignedDuration::from_secs(offset_seconds))?.as_millis()).ok()
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
        for last_valid in ["9999-12-30T23:59:59Z", "9999-12-31T00:00:00Z", "9999-12-31T23:59:59.999Z"] {
            assert_eq!(Timestamp::parse(last_valid).unwrap().to_string(), last_valid);
        }
        for (zoned, utc) in [
            ("9999-12-31T00:30:00+01:00", "9999-12-30T23:30:00Z"),
            ("9999-12-31T23:59:59+01:00", "9999-12-31T22:59:59Z"),
            ("9999-12-29T23:59:59.5-23:59", "9999-12-30T23:58:59.500Z"),
        ] {
            assert_eq!(Timestamp::parse(zoned).unwrap().to_string(), utc, "{zoned}");
        }
        assert_eq!(Timestamp::parse("9999-12-31T23:59:59-00:01"), None);
        for invalid in ["9999-12-32T00:00:00Z", "9999-12-31T24:00:00Z", "9999-12-31T23:59:59", "9999-12-31Tx"]
        {
            assert_eq!(Timestamp::parse(invalid), None, "{invalid}");
        }
    }

    #[test]
    fn dates_match_another_calendar_implementation() {
        for days in (-700_000..2_900_000).step_by(97) {
            let moment = Timestamp { millis: days * DAY_MILLIS + 12_345_678, has_millis: true };
            let reference = jiff::Timestamp::from_millisecond(moment.millis).unwrap();
            assert_eq!(moment.to_string(), format!("{reference:.3}"));
        }
    }
}
