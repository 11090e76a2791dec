//! Parses and formats durations such as `90d` or `250ms`: a whole number and a unit. A day has 24 hours. Callers choose
//! the accepted units, the bounds and the error messages.

use std::time::Duration;

/// Units from largest to smallest, each with its milliseconds.
const UNITS: [(&str, u64); 6] =
    [("w", 604_800_000), ("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DurationError {
    /// The text is not a whole number followed by an accepted unit.
    Form,
    /// The milliseconds exceed 64 bits.
    TooLong,
}

/// Parses a whole number and one of `units`.
pub fn parse_duration(text: &str, units: &[&str]) -> Result<Duration, DurationError> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let millis = units.contains(&unit).then(|| UNITS.iter().find(|(name, _)| *name == unit)).flatten();
    // A unit alone, such as `d`, is no duration.
    let (Some((_, millis)), true) = (millis, digits > 0) else { return Err(DurationError::Form) };
    // `number` has only digits, so a parse error means that the number is too large.
    let count: u64 = number.parse().map_err(|_| DurationError::TooLong)?;
    count.checked_mul(*millis).map(Duration::from_millis).ok_or(DurationError::TooLong)
}

/// Formats a duration in the largest of `units` that leaves no remainder. Zero is written in the smallest unit.
pub fn format_duration(duration: Duration, units: &[&str]) -> String {
    let total = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let accepted_units = || UNITS.iter().filter(|(name, _)| units.contains(name));
    let exact_unit = accepted_units().find(|(_, millis)| total > 0 && total.is_multiple_of(*millis));
    match exact_unit.or_else(|| accepted_units().next_back()) {
        Some((name, millis)) => format!("{}{name}", total / millis),
        None => format!("{total}ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [&str; 6] = ["ms", "s", "m", "h", "d", "w"];

    #[test]
    fn duration_is_a_whole_number_and_an_accepted_unit() {
        for (text, millis) in
            [("0s", 0), ("250ms", 250), ("90s", 90_000), ("2m", 120_000), ("1w", 604_800_000)]
        {
            assert_eq!(parse_duration(text, &ALL), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "5", "s", "ms", "-5s", "+5s", "1.5h", "5 s", "5S", "5é", "é"] {
            assert_eq!(parse_duration(text, &ALL), Err(DurationError::Form), "{text}");
        }
        for text in ["99999999999999999999s", "400000000000w"] {
            assert_eq!(parse_duration(text, &ALL), Err(DurationError::TooLong), "{text}");
        }
        assert_eq!(parse_duration("1w", &["d", "h"]), Err(DurationError::Form));
    }

    #[test]
    fn duration_is_written_in_its_largest_whole_unit() {
        let units = ["ms", "s", "m", "h", "d"];
        for text in ["250ms", "61s", "90m", "36h", "3d"] {
            assert_eq!(
                parse_duration(text, &units).map(|it| format_duration(it, &units)),
                Ok(text.to_owned())
            );
        }
        assert_eq!(format_duration(Duration::from_secs(86_400), &units), "1d");
        assert_eq!(format_duration(Duration::ZERO, &["s", "d"]), "0s");
    }
}
