//! Metrics of scheduled exports.

use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};
use tidegate_schemas::ids::Millis;

use super::settings::ScheduleSettings;

const LAST_SUCCESS: &str = "tidegate_export_last_success_timestamp_seconds";
const BEHIND_DAYS: &str = "tidegate_export_behind_days";
const ROWS: &str = "tidegate_export_rows_total";
const FAILURES: &str = "tidegate_export_failures_total";

/// Describes every metric of this crate to the recorder.
pub fn describe() {
    describe_gauge!(
        LAST_SUCCESS,
        Unit::Seconds,
        "Time at which a schedule last exported a day, since 1970; 0 before the first one."
    );
    describe_gauge!(BEHIND_DAYS, "Whole days that have ended and that a schedule has not exported yet.");
    describe_counter!(ROWS, "Rows in exported days, by schedule.");
    describe_counter!(FAILURES, "Failed attempts of schedules to export or delete a day.");
}

#[allow(clippy::cast_precision_loss, reason = "times and numbers of days are far below 2^53")]
pub(super) fn record_progress(schedule: &ScheduleSettings, last_success: Option<Millis>, behind_days: i64) {
    let (org, name) = (schedule.org.as_str().to_owned(), schedule.name.clone());
    let last_success = last_success.map_or(0, |at| at.0.div_euclid(1_000));
    gauge!(LAST_SUCCESS, "org" => org.clone(), "schedule" => name.clone()).set(last_success as f64);
    gauge!(BEHIND_DAYS, "org" => org, "schedule" => name).set(behind_days.max(0) as f64);
}

pub(super) fn count_rows(schedule: &ScheduleSettings, rows: u64) {
    counter!(ROWS, "org" => schedule.org.as_str().to_owned(), "schedule" => schedule.name.clone())
        .increment(rows);
}

pub(super) fn count_failure(schedule: &ScheduleSettings) {
    counter!(FAILURES, "org" => schedule.org.as_str().to_owned(), "schedule" => schedule.name.clone())
        .increment(1);
}
