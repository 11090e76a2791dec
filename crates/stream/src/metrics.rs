//! The names of what the log counts, and the counting that both engines share.
//!
//! Labels are bounded: topics, partitions, roles and tags; never a key, an org or an item.

use std::time::Duration;

use crate::{
    drain::Cause,
    error::{AppendError, Stopped},
    topics::{Group, NextOffset, Partition, Topic},
};

/// Records after the group's frontier. Labels: group, topic, partition.
pub const CONSUMER_LAG: &str = "tidegate_consumer_lag_records";
/// Records a consumer holds that no commit has passed. Label: group.
pub const UNCOMMITTED_RECORDS: &str = "tidegate_uncommitted_records";
/// The same in bytes.
pub const UNCOMMITTED_BYTES: &str = "tidegate_uncommitted_bytes";
/// The end of the completed prefix. Labels: group, topic, partition.
pub const COMMIT_FRONTIER: &str = "tidegate_commit_frontier_offset";
/// Commits that were refused or lost, to be tried again. Labels: group, tag.
pub const COMMIT_ERRORS: &str = "tidegate_commit_errors_total";
/// Partitions gained, revoked or lost. Labels: group, kind.
pub const REBALANCES: &str = "tidegate_rebalances_total";
/// How long letting partitions go took. Labels: group, cause.
pub const DRAIN_SECONDS: &str = "tidegate_drain_seconds";
/// 1 while an owned partition is not read. Labels: group, topic, partition, reason. Alarm on it.
pub const PARTITION_STOPPED: &str = "tidegate_partition_stopped";
/// 1 while a consumer is paused at its budget. Label: group.
pub const CONSUMER_PAUSED: &str = "tidegate_consumer_paused";
/// Records appended and durable. Label: topic.
pub const APPENDS: &str = "tidegate_appended_records_total";
/// Appends that failed. Label: tag.
pub const APPEND_ERRORS: &str = "tidegate_append_errors_total";
/// From the call to the acknowledgement.
pub const APPEND_SECONDS: &str = "tidegate_append_seconds";
/// Dead letters written. Labels: topic, stage, reason.
pub const DEAD_LETTERS: &str = "tidegate_dead_letters_total";
/// Bytes that may still be appended by requests, on the embedded engine.
pub const EMBEDDED_HEADROOM: &str = "tidegate_embedded_headroom_bytes";

#[allow(clippy::cast_precision_loss, reason = "a gauge is a float")]
const fn float(value: usize) -> f64 {
    value as f64
}

#[allow(clippy::cast_precision_loss, reason = "a gauge is a float")]
pub(crate) const fn float_of(value: i64) -> f64 {
    value as f64
}

/// Records of a topic that were appended.
pub(crate) fn appended(topic: Topic) -> metrics::Counter {
    metrics::counter!(APPENDS, "topic" => topic.label())
}

pub(crate) fn append_answered(result: &Result<(), AppendError>, took: Duration) {
    match result {
        Ok(()) => metrics::histogram!(APPEND_SECONDS).record(took.as_secs_f64()),
        Err(error) => metrics::counter!(APPEND_ERRORS, "tag" => error.tag()).increment(1),
    }
}

pub(crate) fn dead_letter(topic: Topic, stage: &'static str, reason: &'static str) {
    metrics::counter!(DEAD_LETTERS, "topic" => topic.label(), "stage" => stage, "reason" => reason)
        .increment(1);
}

pub(crate) fn held(group: Group, records: usize, bytes: usize, paused: bool) {
    metrics::gauge!(UNCOMMITTED_RECORDS, "group" => group.0).set(float(records));
    metrics::gauge!(UNCOMMITTED_BYTES, "group" => group.0).set(float(bytes));
    metrics::gauge!(CONSUMER_PAUSED, "group" => group.0).set(if paused { 1.0 } else { 0.0 });
}

pub(crate) fn frontier(group: Group, partition: Partition, frontier: NextOffset, end: Option<NextOffset>) {
    let index = partition.index.to_string();
    metrics::gauge!(COMMIT_FRONTIER, "group" => group.0, "topic" => partition.topic.label(), "partition" => index.clone())
        .set(float_of(frontier.0));
    if let Some(end) = end {
        metrics::gauge!(CONSUMER_LAG, "group" => group.0, "topic" => partition.topic.label(), "partition" => index)
            .set(float_of(end.0.saturating_sub(frontier.0).max(0)));
    }
}

pub(crate) fn commit_failed(group: Group, tag: &'static str) {
    metrics::counter!(COMMIT_ERRORS, "group" => group.0, "tag" => tag).increment(1);
}

pub(crate) fn rebalanced(group: Group, kind: &'static str, partitions: usize) {
    metrics::counter!(REBALANCES, "group" => group.0, "kind" => kind)
        .increment(u64::try_from(partitions).unwrap_or(u64::MAX));
}

pub(crate) fn drained(group: Group, cause: Cause, took: Duration) {
    metrics::histogram!(DRAIN_SECONDS, "group" => group.0, "cause" => cause.label())
        .record(took.as_secs_f64());
}

pub(crate) fn stopped(group: Group, stopped: &Stopped, yes: bool) {
    let partition = stopped.partition();
    metrics::gauge!(
        PARTITION_STOPPED,
        "group" => group.0,
        "topic" => partition.topic.label(),
        "partition" => partition.index.to_string(),
        "reason" => stopped.tag(),
    )
    .set(if yes { 1.0 } else { 0.0 });
}
