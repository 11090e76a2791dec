//! Parses instants in ISO 8601: the exact form of the API, and further accepted forms.

use crate::ids::Millis;

/// Parses the exact form of the API, `2024-05-06T07:08:09.123Z`.
pub fn exact(text: &str) -> Option<Millis> {
    let bytes = text.as_bytes();
    let has_exact_form = bytes.len() == 24 && bytes[10] == b'T' && bytes[19] == b'.' && bytes[23] == b'Z';
    if has_exact_form { parse(text) } else { None }
}

/// Parses a date with a time. Seconds, their fraction and the offset are optional; a time without an offset is UTC.
/// Digits after the milliseconds are cut off.
pub fn parse(text: &str) -> Option<Millis> {
    let mut text = Cursor(text.as_bytes());
    let year = text.number(4)?;
    text.expect(b'-')?;
    let month = text.number(2)?;
    text.expect(b'-')?;
    let day = text.number(2)?;
    // RFC 3339 allows a lower-case `t` and a space.
    text.expect(b'T').or_else(|| text.expect(b't')).or_else(|| text.expect(b' '))?;
    let hour = text.number(2)?;
    text.expect(b':')?;
    let minute = text.number(2)?;
    let (mut second, mut milli) = (0, 0);
    if text.expect(b':').is_some() {
        second = text.number(2)?;
        if text.expect(b'.').or_else(|| text.expect(b',')).is_some() {
            // ISO 8601 allows a comma as the decimal sign.
            milli = text.fraction()?;
        }
    }
    let offset = text.offset()?;
    let is_valid = text.0.is_empty()
        && (1..=12).contains(&month)
        && (1..=days_in_month(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        // Leap seconds are refused: milliseconds since 1970 cannot represent them.
        && second < 60;
    is_valid.then(|| {
        let minutes = (days_since_1970(year, month, day) * 24 + hour) * 60 + minute - offset;
        Millis((minutes * 60 + second) * 1000 + milli)
    })
}

/// Parses a date without a time as its first instant in UTC.
pub fn midnight(date: &str) -> Option<Millis> {
    if date.len() == 10 { parse(&format!("{date}T00:00Z")) } else { None }
}

/// True if [`parse`] would cut off digits other than 0: the instant lies between two milliseconds.
pub fn is_finer(text: &str) -> bool {
    let fraction = text.find(['.', ',']).map_or("", |at| &text[at + 1..]);
    fraction.bytes().take_while(u8::is_ascii_digit).skip(3).any(|digit| digit != b'0')
}

struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    fn expect(&mut self, expected: u8) -> Option<()> {
        let (first, rest) = self.0.split_first()?;
        (*first == expected).then(|| self.0 = rest)
    }

    fn number(&mut self, digits: usize) -> Option<i64> {
        let (number, rest) = self.0.split_at_checked(digits)?;
        let value = number.iter().try_fold(0, |value, digit| {
            digit.is_ascii_digit().then(|| value * 10 + i64::from(digit - b'0'))
        })?;
        self.0 = rest;
        Some(value)
    }

    fn fraction(&mut self) -> Option<i64> {
        let digits = self.0.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (fraction, rest) = self.0.split_at(digits);
        let place = |at: usize| fraction.get(at).map_or(0, |digit| i64::from(digit - b'0'));
        self.0 = rest;
        // Up to twelve digits (picoseconds) are accepted; those after the third are cut off.
        (1..=12).contains(&digits).then(|| place(0) * 100 + place(1) * 10 + place(2))
    }

    /// Reads the UTC offset, in minutes.
    fn offset(&mut self) -> Option<i64> {
        let Some((first, rest)) = self.0.split_first() else { return Some(0) };
        self.0 = rest;
        let sign = match first {
            b'Z' | b'z' => return Some(0),
            b'+' => 1,
            b'-' => -1,
            _ => return None,
        };
        let hours = self.number(2)?;
        let colon = self.expect(b':').is_some();
        // An offset can be `+02`, `+0200` or `+02:00`.
        let minutes = if !colon && self.0.is_empty() { 0 } else { self.number(2)? };
        (hours < 24 && minutes < 60).then_some(sign * (hours * 60 + minutes))
    }
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Counts days in years that start in March, so that the leap day is the last day of a year.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_exact_form_is_the_one_tidegate_writes() {
        for millis in [0, -1, 1_700_000_000_007, 253_402_200_000_999, -62_167_000_000_000] {
            assert_eq!(exact(&Millis(millis).iso()), Some(Millis(millis)));
        }
        for other in ["2024-05-06T07:08:09Z", "2024-05-06T07:08:09.123+00:00", "2024-05-06 07:08:09.123Z"] {
            assert_eq!(exact(other), None);
            assert!(parse(other).is_some());
        }
    }

    #[test]
    fn hours_and_minutes_are_required() {
        let same = parse("2024-05-06T07:08:00.000Z");
        assert!(same.is_some());
        for text in [
            "2024-05-06T07:08Z",
            "2024-05-06T07:08",
            "2024-05-06 07:08:00",
            "2024-05-06t07:08:00.0z",
            "2024-05-06T09:08:00+02:00",
            "2024-05-06T09:08:00+0200",
            "2024-05-06T09:08:00+02",
            "2024-05-05T23:38:00,000999-07:30",
        ] {
            assert_eq!(parse(text), same, "{text}");
        }
        for wrong in [
            "",
            "2024-05-06",
            "2024-05-06T",
            "2024-05-06T07",
            "2024-13-06T07:08:00Z",
            "2024-02-30T07:08:00Z",
            "2023-02-29T07:08:00Z",
            "2024-05-06T24:00:00Z",
            "2024-05-06T07:60:00Z",
            "2024-05-06T07:08:60Z",
            "2024-05-06T07:08:00.Z",
            "2024-05-06T07:08:00+25:00",
            "2024-05-06T07:08:00ZZ",
            "Mon, 06 May 2024 07:08:00 GMT",
            "1715000000000",
            "2024-05-06T07:08:00.000\u{660}Z",
            "+002024-05-06T07:08:00Z",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn date_without_time_begins_at_midnight_utc() {
        assert_eq!(midnight("2024-01-15"), parse("2024-01-15T00:00:00.000Z"));
        assert!(midnight("2024-01-15").is_some());
        for wrong in ["", "2024-1-15", "2024-02-30", "2024-01-15T", "2024-01-15Z", "20240115", "15.01.2024"] {
            assert_eq!(midnight(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn digits_after_milliseconds_are_detected() {
        for (text, finer) in [
            ("2024-05-06T07:08:09.123Z", false),
            ("2024-05-06T07:08:09.123000Z", false),
            ("2024-05-06T07:08:09.1230001Z", true),
            ("2024-05-06T07:08:09,0009+02:00", true),
            ("2024-05-06T07:08:09Z", false),
        ] {
            assert_eq!((parse(text).is_some(), is_finer(text)), (true, finer), "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_instant_is_read_back(millis in -62_167_000_000_000_i64..=253_402_200_000_999) {
            prop_assert_eq!(exact(&Millis(millis).iso()), Some(Millis(millis)));
        }

        #[test]
        fn jiff_reads_the_same_instant(
            year in 0_i16..=9998, month in 1_i8..=12, day in 1_i8..=31, hour in 0_i8..24, minute in 0_i8..60,
            second in 0_i8..60, offset in -23_i8..=23,
        ) {
            let text = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{offset:+03}:00");
            let theirs = text.parse::<jiff::Timestamp>().ok().map(|instant| Millis(instant.as_millisecond()));
            // jiff's range ends within a day of the years 0 and 9999.
            prop_assume!(year > 0);
            prop_assert_eq!(parse(&text), theirs);
        }
    }
}
