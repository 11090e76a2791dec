//! Time before which the history is complete, from the progress of the processors on every partition of the log.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use thiserror::Error;
use tidegate_schemas::ids::Millis;
use tidegate_store::{
    RowRange, Store,
    tables::history::handled_times::{self, HandledTime, TOPICS},
};

/// Delay of a partition that needs no remark: replication, commits and intervals of the processors add up to about a minute.
const NORMAL_DELAY: Duration = Duration::from_secs(5 * 60);
/// Age of a row at which its partition counts as not processed. A processor renews its rows every two seconds.
const MAX_ROW_AGE: Duration = Duration::from_secs(60);

/// Progress of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionProgress {
    pub topic: String,
    pub partition: i64,
    /// Every record with an earlier append time is completed.
    pub until: Millis,
    /// Time of the last report by a processor.
    pub seen_at: Millis,
}

/// Snapshot of the history: events with `at` below `time` are complete and change no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotTime {
    pub time: Millis,
    /// Partition that `time` comes from.
    pub slowest: PartitionProgress,
}

/// Error of [`load_snapshot_time`].
#[derive(Debug, Error)]
pub enum SnapshotError {
    #[error(transparent)]
    Store(#[from] tidegate_store::Error),
    #[error(
        "the history has no snapshot time, because the processors have not reported {}: start the role `process`, and wait \
         until it owns every partition",
        missing.join(", ")
    )]
    NotProcessed {
        /// Descriptions of the topics and partitions without a row.
        missing: Vec<String>,
    },
}

impl SnapshotTime {
    /// Describes why the snapshot is old. `None` if it is as recent as usual.
    pub fn describe_delay(&self, now: Millis) -> Option<String> {
        let PartitionProgress { topic, partition, until, seen_at } = &self.slowest;
        if *until >= now.minus(NORMAL_DELAY) {
            return None;
        }
        if *seen_at < now.minus(MAX_ROW_AGE) {
            let absence = format_duration(now.0.saturating_sub(seen_at.0));
            return Some(format!(
                "no process has reported topic {topic} partition {partition} for {absence}: start the role `process`"
            ));
        }
        let delay = format_duration(now.0.saturating_sub(until.0));
        Some(format!("processing of topic {topic} partition {partition} is behind: {delay}"))
    }
}

/// Loads the lowest time of all partitions of all topics with events.
pub async fn load_snapshot_time(store: &Store) -> Result<SnapshotTime, SnapshotError> {
    let partition = HandledTime::partition(handled_times::ALL);
    let rows = store.scan::<HandledTime>(&partition, RowRange::all()).all().await?;
    find_snapshot_time(rows)
}

fn find_snapshot_time(rows: Vec<HandledTime>) -> Result<SnapshotTime, SnapshotError> {
    // All topics have the same number of partitions. Rows written before it grew have the lower one.
    let partition_count = rows.iter().map(|row| row.partition_count).max().unwrap_or(0);
    let mut indexes_by_topic: BTreeMap<&str, BTreeSet<i64>> = BTreeMap::new();
    for row in &rows {
        indexes_by_topic.entry(&row.topic).or_default().insert(row.partition_index);
    }
    let missing_partitions: Vec<String> = TOPICS
        .iter()
        .filter_map(|topic| describe_missing(topic, indexes_by_topic.get(topic), partition_count))
        .collect();
    let slowest =
        rows.into_iter().filter(|row| TOPICS.contains(&row.topic.as_str())).min_by_key(|row| row.until);
    match slowest {
        Some(row) if missing_partitions.is_empty() => Ok(SnapshotTime {
            time: row.until,
            slowest: PartitionProgress {
                topic: row.topic,
                partition: row.partition_index,
                until: row.until,
                seen_at: row.seen_at,
            },
        }),
        _ => Err(SnapshotError::NotProcessed { missing: missing_partitions }),
    }
}

/// Describes the partitions of a topic without a row. `None` if every partition has one.
fn describe_missing(topic: &str, indexes: Option<&BTreeSet<i64>>, partition_count: i64) -> Option<String> {
    let Some(indexes) = indexes else { return Some(format!("topic {topic}")) };
    let missing_indexes: Vec<String> = (0..partition_count)
        .filter(|index| !indexes.contains(index))
        .map(|index| index.to_string())
        .collect();
    let plural = if missing_indexes.len() > 1 { "s" } else { "" };
    (!missing_indexes.is_empty())
        .then(|| format!("topic {topic} partition{plural} {}", missing_indexes.join(" ")))
}

/// Formats milliseconds in the two largest units.
fn format_duration(millis: i64) -> String {
    let minutes = millis / 60_000;
    let (days, hours) = (minutes / 1_440, minutes / 60 % 24);
    match (days, hours) {
        (0, 0) => format!("{minutes} min"),
        (0, _) => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use tidegate_store::WriteTime;

    use super::*;

    const MINUTE: i64 = 60_000;

    fn row(topic: &str, partition_index: i64, until: i64) -> HandledTime {
        HandledTime {
            name: handled_times::ALL.to_owned(),
            topic: topic.to_owned(),
            partition_index,
            until: Millis(until),
            partition_count: 2,
            seen_at: Millis(1_000 * MINUTE),
        }
    }

    fn rows() -> Vec<HandledTime> {
        TOPICS.iter().flat_map(|topic| [row(topic, 0, 900 * MINUTE), row(topic, 1, 999 * MINUTE)]).collect()
    }

    #[test]
    fn snapshot_ends_at_the_slowest_partition() {
        let mut rows = rows();
        rows.push(row("callbacks", 0, 1));
        rows[5].until = Millis(870 * MINUTE);
        let snapshot = find_snapshot_time(rows).unwrap();
        assert_eq!(snapshot.time, Millis(870 * MINUTE));
        assert_eq!((snapshot.slowest.topic.as_str(), snapshot.slowest.partition), ("reports", 1));
        assert_eq!(
            snapshot.describe_delay(Millis(1_000 * MINUTE)).unwrap(),
            "processing of topic reports partition 1 is behind: 2 h 10 min"
        );
        assert_eq!(snapshot.describe_delay(Millis(871 * MINUTE)), None);
        assert_eq!(
            snapshot.describe_delay(Millis(5_000 * MINUTE)).unwrap(),
            "no process has reported topic reports partition 1 for 2 d 18 h: start the role `process`"
        );
    }

    #[test]
    fn missing_topics_and_partitions_are_named() {
        let mut rows = rows();
        rows.retain(|row| row.topic != "strikes" && (row.topic != "items" || row.partition_index == 0));
        let error = find_snapshot_time(rows).unwrap_err().to_string();
        assert!(error.contains("topic items partition 1, topic strikes:"), "{error}");
        let error = find_snapshot_time(Vec::new()).unwrap_err().to_string();
        assert!(error.contains("topic items, topic items-slow, topic reports"), "{error}");
    }

    #[tokio::test]
    async fn snapshot_time_is_read_from_the_store() {
        let folder = tempfile::tempdir().unwrap();
        let db = fjall::Database::builder(folder.path()).open().unwrap();
        let store = Store::open_embedded(&db, tidegate_store::embedded::Settings::default()).unwrap();
        let error = load_snapshot_time(&store).await.unwrap_err();
        assert!(matches!(error, SnapshotError::NotProcessed { missing } if missing.len() == TOPICS.len()));
        store.put_rows(WriteTime(1), &rows()).await.unwrap();
        assert_eq!(load_snapshot_time(&store).await.unwrap().time, Millis(900 * MINUTE));
    }

    #[test]
    fn grown_topics_have_a_snapshot_once_every_partition_is_reported() {
        let mut rows = rows();
        rows[0].partition_count = 3;
        let error = find_snapshot_time(rows).unwrap_err().to_string();
        assert!(error.contains("topic reports partition 2"), "{error}");
    }
}
