//! Append times up to which the processors have completed each partition of the log. An export reads only events before the
//! lowest one.

use tidegate_schemas::ids::Millis;

use crate::table;

table! {
    /// Every record of the partition with an append time below `until` is completed, and none is appended any more.
    /// `partition_count` is the configured number of partitions of a topic. The owner of the partition renews the row.
    Fact HandledTime in "handled_times" ttl None;
    partition { name: String }
    cluster { topic: String [Asc], partition_index: i64 [Asc] }
    values { until: Millis, partition_count: i64, seen_at: Millis }
}

/// The only partition of [`HandledTime`].
pub const ALL: &str = "handled_times";

/// Labels of the topics with events as effects of their records.
pub const TOPICS: [&str; 6] = ["items", "items-slow", "reports", "appeals", "decisions", "strikes"];
