//! Counts answers and new participants over time, in buckets of one hour or more.

use std::collections::BTreeMap;

use crate::timestamp::Timestamp;

const HOUR_MILLIS: i64 = 3_600_000;
/// Widths of a bucket in hours: hour, day, week and longer ones for spans of centuries.
const WIDTHS: [i64; 6] = [1, 24, 7 * 24, 28 * 24, 280 * 24, 2_800 * 24];
/// Maximum number of buckets in memory while the bundle is read.
const MAX_BUCKETS: usize = 100_000;
/// Maximum number of buckets in the chart.
const MAX_CHART_BUCKETS: i64 = 180;
/// A Monday; weeks start with it.
const FIRST_MONDAY_HOURS: i64 = 4 * 24;

/// Answers over time.
#[derive(Debug, Default)]
pub(super) struct Participation {
    /// Index of the bucket width in [`WIDTHS`].
    width: usize,
    answers: BTreeMap<i64, u64>,
    /// Sum of the counts of answers without a time.
    pub(super) undated: u64,
    /// Number of new participants, by the hour of their first answer.
    first_answers: BTreeMap<i64, u64>,
    /// True if a time is finer than a day.
    has_hours: bool,
}

/// Bucket of the chart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bucket {
    /// Start in seconds since 1970.
    pub(super) start_seconds: i64,
    pub(super) answers: u64,
    /// Participants with an answer up to the end of the bucket.
    pub(super) participants: u64,
}

/// Buckets of the chart without gaps.
#[derive(Clone, Debug, Default)]
pub(super) struct Series {
    pub(super) buckets: Vec<Bucket>,
    /// Width of a bucket in words, such as `day`.
    pub(super) unit: String,
    pub(super) width_seconds: i64,
}

impl Participation {
    pub(super) fn add_answers(&mut self, time: Option<Timestamp>, count: u64) {
        let Some(time) = time else {
            self.undated = self.undated.saturating_add(count);
            return;
        };
        self.has_hours |= time.millis.rem_euclid(24 * HOUR_MILLIS) != 0;
        let bucket = bucket_of(time.millis, WIDTHS[self.width]);
        let sum = self.answers.entry(bucket).or_default();
        *sum = sum.saturating_add(count);
        if self.answers.len() > MAX_BUCKETS && self.width + 1 < WIDTHS.len() {
            self.width += 1;
            self.answers = rebucket(&self.answers, WIDTHS[self.width]);
        }
    }

    /// Sets the times of the participants' first answers.
    pub(super) fn set_first_answers(&mut self, times: impl Iterator<Item = i64>) {
        for millis in times {
            *self.first_answers.entry(bucket_of(millis, WIDTHS[self.width])).or_default() += 1;
        }
    }

    /// Buckets for the chart: the narrowest width that gives a readable number of them.
    pub(super) fn series(&self) -> Series {
        let (Some((first, _)), Some((last, _))) =
            (self.answers.first_key_value(), self.answers.last_key_value())
        else {
            return Series::default();
        };
        let least_width = if self.has_hours { self.width } else { self.width.max(1) };
        let span_hours = last - first;
        let width = (least_width..WIDTHS.len() - 1)
            .find(|width| span_hours / WIDTHS[*width] < MAX_CHART_BUCKETS)
            .unwrap_or(WIDTHS.len() - 1);
        let hours = WIDTHS[width];
        let answers = rebucket(&self.answers, hours);
        let first_answers = rebucket(&self.first_answers, hours);
        let mut buckets = Vec::new();
        let mut participants = 0;
        let (Some((start, _)), Some((end, _))) = (answers.first_key_value(), answers.last_key_value()) else {
            return Series::default();
        };
        let mut bucket = *start;
        while bucket <= *end {
            participants += first_answers.get(&bucket).copied().unwrap_or_default();
            buckets.push(Bucket {
                start_seconds: bucket * 3_600,
                answers: answers.get(&bucket).copied().unwrap_or_default(),
                participants,
            });
            bucket += hours;
        }
        let unit = match hours {
            1 => "hour".to_owned(),
            24 => "day".to_owned(),
            168 => "week".to_owned(),
            other => format!("{} days", other / 24),
        };
        Series { buckets, unit, width_seconds: hours * 3_600 }
    }
}

/// First hour of the bucket, in hours since 1970.
fn bucket_of(millis: i64, width_hours: i64) -> i64 {
    start_of_bucket(millis.div_euclid(HOUR_MILLIS), width_hours)
}

fn start_of_bucket(hours: i64, width_hours: i64) -> i64 {
    // Buckets of a week and more start on a Monday.
    let offset = if width_hours > 24 { FIRST_MONDAY_HOURS } else { 0 };
    (hours - offset).div_euclid(width_hours) * width_hours + offset
}

fn rebucket(counts: &BTreeMap<i64, u64>, width_hours: i64) -> BTreeMap<i64, u64> {
    let mut buckets = BTreeMap::new();
    for (hours, count) in counts {
        let sum: &mut u64 = buckets.entry(start_of_bucket(*hours, width_hours)).or_default();
        *sum = sum.saturating_add(*count);
    }
    buckets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn participation(times: &[&str]) -> Participation {
        let mut participation = Participation::default();
        for time in times {
            participation.add_answers(Timestamp::parse(time), 1);
        }
        participation
    }

    #[test]
    fn span_decides_the_width_of_buckets() {
        for (last, unit, count) in [
            ("2024-05-06T09:00:00Z", "hour", 3),
            ("2024-05-26T09:00:00Z", "day", 21),
            ("2024-12-30T09:00:00Z", "week", 35),
            ("2030-05-06T07:08:09Z", "28 days", 80),
        ] {
            let series = participation(&["2024-05-06T07:08:09Z", last]).series();
            assert_eq!((series.unit.as_str(), series.buckets.len()), (unit, count), "{last}");
            let answers: Vec<_> = series.buckets.iter().map(|bucket| bucket.answers).collect();
            assert_eq!((answers[0], answers[count - 1], answers.iter().sum()), (1, 1, 2), "{last}");
        }
    }

    #[test]
    fn days_are_not_divided_into_hours() {
        let series = participation(&["2024-05-06T00:00:00Z", "2024-05-07T00:00:00Z"]).series();
        assert_eq!((series.unit.as_str(), series.buckets.len()), ("day", 2));
    }

    #[test]
    fn memory_is_bounded_for_any_span() {
        let mut participation = Participation::default();
        for hour in 0..=MAX_BUCKETS as i64 {
            participation.add_answers(Timestamp::from_seconds(hour * 3_600), 1);
        }
        assert!(participation.answers.len() < 5_000, "{}", participation.answers.len());
        assert_eq!(participation.answers.values().sum::<u64>(), MAX_BUCKETS as u64 + 1);
    }
}
