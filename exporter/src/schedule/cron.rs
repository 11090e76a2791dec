//! Cron expression of a schedule, in UTC, and the days that it exports.

use std::{fmt, str::FromStr};

use chrono::{DateTime, Utc};
use croner::{Cron, parser::CronParser};
use tidegate_schemas::ids::Millis;

const DAY_MS: i64 = 86_400_000;

/// Times at which a schedule runs. At each of them, every day is due that has ended by then.
#[derive(Clone, Debug)]
pub struct RunTimes(Cron);

/// Reason why a cron expression cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CronProblem(String);

impl fmt::Display for CronProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for RunTimes {
    type Err = CronProblem;

    fn from_str(text: &str) -> Result<Self, CronProblem> {
        let problem = |reason: String| {
            CronProblem(format!(
                "{reason}: write minute, hour, day of the month, month and day of the week (UTC), such as `30 2 * * *` for 02:30 \
                 every day"
            ))
        };
        if text.split_whitespace().count() != 5 {
            return Err(problem("has not five fields".to_owned()));
        }
        let cron = CronParser::new().parse(text).map_err(|error| problem(error.to_string()))?;
        let run_times = Self(cron);
        // An expression such as `0 0 30 2 *` has no time at all.
        match run_times.first_at(Millis::now()) {
            Some(_) => Ok(run_times),
            None => Err(problem("names no time that exists".to_owned())),
        }
    }
}

impl RunTimes {
    /// First time at or after `instant`.
    fn first_at(&self, instant: Millis) -> Option<Millis> {
        let instant: DateTime<Utc> = DateTime::from_timestamp_millis(instant.0)?;
        let next = self.0.find_next_occurrence(&instant, true).ok()?;
        Some(Millis(next.timestamp_millis()))
    }

    /// Time at which a day is exported: the first one after its end. A time far in the future if there is none.
    pub(crate) fn due_at(&self, day: i64) -> Millis {
        self.first_at(day_start(day.saturating_add(1))).unwrap_or(Millis::LAST)
    }
}

/// First millisecond of a day since 1970.
pub(crate) const fn day_start(day: i64) -> Millis {
    Millis(day.saturating_mul(DAY_MS))
}

/// Formats a day since 1970 as `2026-11-28`.
pub fn format_day(day: i64) -> String {
    let text = day_start(day).iso();
    text.split('T').next().unwrap_or_default().to_owned()
}

/// Parses a day such as `2026-11-28`.
pub fn parse_day(text: &str) -> Option<i64> {
    let date: jiff::civil::Date = text.parse().ok()?;
    let day = date.since(jiff::civil::date(1970, 1, 1)).ok()?.get_days();
    // The parser also accepts longer forms, such as a time of day.
    (format_day(day.into()) == text).then_some(day.into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn times(text: &str) -> RunTimes {
        text.parse().unwrap()
    }

    fn day(text: &str) -> i64 {
        parse_day(text).unwrap()
    }

    #[test]
    fn day_is_due_at_the_first_time_after_its_end() {
        for (cron, exported_day, due) in [
            ("30 2 * * *", "2026-11-28", "2026-11-29T02:30:00.000Z"),
            ("0 0 * * *", "2026-11-28", "2026-11-29T00:00:00.000Z"),
            ("0 * * * *", "2026-11-28", "2026-11-29T00:00:00.000Z"),
            // 30 November 2026 is a Monday, day 1 of the week.
            ("0 4 * * 1", "2026-11-28", "2026-11-30T04:00:00.000Z"),
            ("0 4 * * MON", "2026-11-29", "2026-11-30T04:00:00.000Z"),
            ("0 4 * * 1", "2026-11-30", "2026-12-07T04:00:00.000Z"),
            ("0 5 1 * *", "2026-11-28", "2026-12-01T05:00:00.000Z"),
        ] {
            assert_eq!(times(cron).due_at(day(exported_day)).iso(), due, "{cron}");
        }
    }

    #[test]
    fn unusable_expression_is_refused_with_an_example() {
        for text in ["", "* * * *", "0 0 * * * *", "61 2 * * *", "x 2 * * *", "0 0 30 2 *", "@daily"] {
            let error = RunTimes::from_str(text).unwrap_err().to_string();
            assert!(error.contains("`30 2 * * *`"), "{text}: {error}");
        }
    }

    #[test]
    fn days_are_read_as_they_are_written() {
        for text in ["1970-01-01", "2024-02-29", "2026-11-28"] {
            assert_eq!(format_day(day(text)), text);
        }
        assert_eq!(day("1970-01-02"), 1);
        for text in ["", "2026-11-31", "2026-11-28T00:00", "28.11.2026", "20261128", "yesterday"] {
            assert_eq!(parse_day(text), None, "{text}");
        }
    }
}
