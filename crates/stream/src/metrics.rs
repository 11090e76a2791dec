//! Metrics of the log. Labels are bounded: topics, partitions, roles and tags; never a key, an org or an item.

use std::time::Duration;

use metrics::{
    Counter, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};

use crate::{
    error::{AppendError, StoppedPartition},
    topics::{Group, NextOffset, Partition, Topic},
};

pub const CONSUMER_LAG: &str = "tidegate_consumer_lag_records";
pub const UNCOMMITTED_RECORDS: &str = "tidegate_uncommitted_records";
pub const UNCOMMITTED_BYTES: &str = "tidegate_uncommitted_bytes";
pub const COMMIT_FRONTIER: &str = "tidegate_commit_frontier_offset";
pub const COMMIT_ERRORS: &str = "tidegate_commit_errors_total";
pub const REBALANCES: &str = "tidegate_rebalances_total";
pub const DRAIN_SECONDS: &str = "tidegate_drain_seconds";
pub const PARTITION_STOPPED: &str = "tidegate_partition_stopped";
pub const CONSUMER_PAUSED: &str = "tidegate_consumer_paused";
pub const APPENDS: &str = "tidegate_appended_records_total";
pub const APPEND_ERRORS: &str = "tidegate_append_errors_total";
pub const APPEND_SECONDS: &str = "tidegate_append_seconds";
pub const DEAD_LETTERS: &str = "tidegate_dead_letters_total";
pub const EMBEDDED_HEADROOM: &str = "tidegate_embedded_headroom_bytes";
pub const EMBEDDED_KEPT: &str = "tidegate_embedded_kept_bytes";
pub const KAFKA_DELIVERY_ERRORS: &str = "tidegate_kafka_delivery_errors_total";
pub const KAFKA_BROKER_RTT: &str = "tidegate_kafka_broker_rtt_seconds";
pub const KAFKA_QUEUE_MESSAGES: &str = "tidegate_kafka_producer_queue_messages";
pub const KAFKA_QUEUE_MESSAGES_LIMIT: &str = "tidegate_kafka_producer_queue_messages_limit";
pub const KAFKA_QUEUE_BYTES: &str = "tidegate_kafka_producer_queue_bytes";
pub const KAFKA_QUEUE_BYTES_LIMIT: &str = "tidegate_kafka_producer_queue_bytes_limit";

/// Registers unit and help of every metric of this crate with the recorder.
pub fn describe() {
    describe_gauge!(CONSUMER_LAG, "Records of a partition that the group has not completed yet.");
    describe_gauge!(UNCOMMITTED_RECORDS, "Records that a consumer holds and no commit has passed.");
    describe_gauge!(
        UNCOMMITTED_BYTES,
        Unit::Bytes,
        "Bytes of records that a consumer holds and no commit has passed."
    );
    describe_gauge!(COMMIT_FRONTIER, "Offset at which the completed prefix of a partition ends.");
    describe_counter!(COMMIT_ERRORS, "Commits that were refused or lost, and are retried.");
    describe_counter!(REBALANCES, "Partitions that a consumer was assigned, that were revoked or lost.");
    describe_histogram!(DRAIN_SECONDS, Unit::Seconds, "Duration of a release of partitions.");
    describe_gauge!(
        PARTITION_STOPPED,
        "1 while an owned partition is not read, by reason. An alarm belongs on it."
    );
    describe_gauge!(CONSUMER_PAUSED, "1 while a consumer is paused because its budget is used up.");
    describe_counter!(APPENDS, "Records appended and durable.");
    describe_counter!(APPEND_ERRORS, "Appends that failed, by the tag of the error.");
    describe_histogram!(
        APPEND_SECONDS,
        Unit::Seconds,
        "Time from the call of an append to its acknowledgement."
    );
    describe_counter!(DEAD_LETTERS, "Dead letters written, by topic, stage and reason.");
    describe_gauge!(
        EMBEDDED_HEADROOM,
        Unit::Bytes,
        "Bytes that requests may still append to the embedded log."
    );
    describe_gauge!(
        EMBEDDED_KEPT,
        Unit::Bytes,
        "Bytes of the disk that requests must leave free: the setting, or the space for pending writes and compactions."
    );
    describe_counter!(KAFKA_DELIVERY_ERRORS, "Records that Kafka refused, by librdkafka's error code.");
    describe_gauge!(KAFKA_BROKER_RTT, Unit::Seconds, "Round trip to a broker, by client and quantile.");
    describe_gauge!(KAFKA_QUEUE_MESSAGES, "Records in the producer's queue.");
    describe_gauge!(KAFKA_QUEUE_MESSAGES_LIMIT, "Records that the producer's queue may hold.");
    describe_gauge!(KAFKA_QUEUE_BYTES, Unit::Bytes, "Bytes in the producer's queue.");
    describe_gauge!(KAFKA_QUEUE_BYTES_LIMIT, Unit::Bytes, "Bytes that the producer's queue may hold.");
}

#[allow(clippy::cast_precision_loss, reason = "a gauge is a float")]
const fn float(value: usize) -> f64 {
    value as f64
}

#[allow(clippy::cast_precision_loss, reason = "a gauge is a float")]
const fn float_of(value: i64) -> f64 {
    value as f64
}

const fn flag(is_set: bool) -> f64 {
    if is_set { 1.0 } else { 0.0 }
}

/// Change of a consumer's partitions.
#[derive(Clone, Copy)]
pub(crate) enum Rebalance {
    Assigned,
    Revoked,
    Lost,
}

impl Rebalance {
    const fn label(self) -> &'static str {
        match self {
            Self::Assigned => "assigned",
            Self::Revoked => "revoked",
            Self::Lost => "lost",
        }
    }
}

/// Counter of the appended records of a topic.
pub(crate) fn appended(topic: Topic) -> Counter {
    counter!(APPENDS, "topic" => topic.label())
}

pub(crate) fn append_answered(result: &Result<(), AppendError>, duration: Duration) {
    match result {
        Ok(()) => histogram!(APPEND_SECONDS).record(duration.as_secs_f64()),
        Err(error) => counter!(APPEND_ERRORS, "tag" => error.tag()).increment(1),
    }
}

pub(crate) fn dead_letter(topic: Topic, stage: &'static str, reason: &'static str) {
    counter!(DEAD_LETTERS, "topic" => topic.label(), "stage" => stage, "reason" => reason).increment(1);
}

pub(crate) fn uncommitted(group: Group, records: usize, bytes: usize, is_paused: bool) {
    gauge!(UNCOMMITTED_RECORDS, "group" => group.0).set(float(records));
    gauge!(UNCOMMITTED_BYTES, "group" => group.0).set(float(bytes));
    gauge!(CONSUMER_PAUSED, "group" => group.0).set(flag(is_paused));
}

pub(crate) fn frontier(group: Group, partition: Partition, frontier: NextOffset, end: Option<NextOffset>) {
    let (topic, index) = (partition.topic.label(), partition.index.to_string());
    gauge!(COMMIT_FRONTIER, "group" => group.0, "topic" => topic, "partition" => index.clone())
        .set(float_of(frontier.0));
    if let Some(end) = end {
        gauge!(CONSUMER_LAG, "group" => group.0, "topic" => topic, "partition" => index)
            .set(float_of(end.0.saturating_sub(frontier.0).max(0)));
    }
}

pub(crate) fn commit_failed(group: Group, tag: &'static str) {
    counter!(COMMIT_ERRORS, "group" => group.0, "tag" => tag).increment(1);
}

pub(crate) fn rebalanced(group: Group, kind: Rebalance, partitions: usize) {
    counter!(REBALANCES, "group" => group.0, "kind" => kind.label())
        .increment(u64::try_from(partitions).unwrap_or(u64::MAX));
}

pub(crate) fn drained(group: Group, cause: &'static str, duration: Duration) {
    histogram!(DRAIN_SECONDS, "group" => group.0, "cause" => cause).record(duration.as_secs_f64());
}

pub(crate) fn stopped(group: Group, stop: &StoppedPartition, is_stopped: bool) {
    let partition = stop.partition();
    gauge!(
        PARTITION_STOPPED,
        "group" => group.0,
        "topic" => partition.topic.label(),
        "partition" => partition.index.to_string(),
        "reason" => stop.tag(),
    )
    .set(flag(is_stopped));
}

pub(crate) fn embedded_headroom(bytes: i64, kept: u64) {
    gauge!(EMBEDDED_HEADROOM).set(float_of(bytes));
    gauge!(EMBEDDED_KEPT).set(float_of(i64::try_from(kept).unwrap_or(i64::MAX)));
}

pub(crate) fn kafka_delivery_failed(code: String) {
    counter!(KAFKA_DELIVERY_ERRORS, "code" => code).increment(1);
}

pub(crate) fn kafka_broker_rtt(client: &'static str, broker: i32, quantile: &'static str, micros: i64) {
    gauge!(KAFKA_BROKER_RTT, "client" => client, "broker" => broker.to_string(), "quantile" => quantile)
        .set(float_of(micros.max(0)) / 1e6);
}

pub(crate) fn kafka_producer_queue(statistics: &rdkafka::Statistics) {
    #[allow(clippy::cast_precision_loss, reason = "a queue is far below 2^52")]
    for (name, value) in [
        (KAFKA_QUEUE_MESSAGES, statistics.msg_cnt),
        (KAFKA_QUEUE_MESSAGES_LIMIT, statistics.msg_max),
        (KAFKA_QUEUE_BYTES, statistics.msg_size),
        (KAFKA_QUEUE_BYTES_LIMIT, statistics.msg_size_max),
    ] {
        gauge!(name).set(value as f64);
    }
}
