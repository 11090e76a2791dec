//! Metrics of the store, with one function for each recording. Labels are tables and modes, never an org or a key.

use std::time::Duration;

use metrics::{Unit, counter, describe_counter, describe_histogram, histogram};

const UNKNOWN_OUTCOMES: &str = "tidegate_store_unknown_outcomes_total";
const BATCH_BYTES: &str = "tidegate_store_batch_bytes";
const SWEPT_ROWS: &str = "tidegate_store_swept_rows_total";
const COMMIT_SECONDS: &str = "tidegate_store_commit_seconds";
const STALE_WRITES: &str = "tidegate_store_stale_writes_total";

/// Registers unit and help of every metric of this crate.
pub fn describe() {
    describe_counter!(
        UNKNOWN_OUTCOMES,
        "Conditional writes with an unknown outcome that was read back, by table."
    );
    describe_histogram!(BATCH_BYTES, Unit::Bytes, "Size of a batch sent to CQL.");
    describe_counter!(SWEPT_ROWS, "Expired rows that the embedded engine removed, by table.");
    describe_histogram!(
        COMMIT_SECONDS,
        Unit::Seconds,
        "Time of a commit of the embedded engine, by kind of sync."
    );
    describe_counter!(STALE_WRITES, "Writes of the embedded engine that were older than the stored row.");
}

pub(crate) fn unknown_outcome(table: &'static str) {
    counter!(UNKNOWN_OUTCOMES, "table" => table).increment(1);
}

pub(crate) fn batch_sent(bytes: usize) {
    histogram!(BATCH_BYTES).record(bytes as f64);
}

pub(crate) fn rows_swept(table: &'static str, rows: u64) {
    counter!(SWEPT_ROWS, "table" => table).increment(rows);
}

pub(crate) fn committed(sync: &'static str, duration: Duration) {
    histogram!(COMMIT_SECONDS, "sync" => sync).record(duration.as_secs_f64());
}

pub(crate) fn stale_writes(number: u64) {
    counter!(STALE_WRITES).increment(number);
}
