//! Reads the state that the last process left, when the log is opened.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::OnceLock,
};

use fjall::{Database, Keyspace, PersistMode};

use super::{
    format::{self, MetaKey},
    segments::{Segment, Segments},
    stored_partition::{StoredPartition, open_keyspace},
};
use crate::{
    error::OpenError,
    topics::{NextOffset, Partition, Topic},
};

/// Position of each group in each partition.
pub(super) type GroupPositions = BTreeMap<String, BTreeMap<Partition, NextOffset>>;

pub(super) fn storage(error: &fjall::Error) -> OpenError {
    OpenError::Unavailable { detail: format!("the data folder: {error}") }
}

fn damaged(subject: impl Into<String>) -> OpenError {
    OpenError::Damaged { detail: subject.into() }
}

/// Opens a partition in its stored state. `has_keyspace`: the database has its keyspace.
pub(super) fn open_partition(
    db: &Database,
    meta: &Keyspace,
    partition: Partition,
    has_keyspace: bool,
    retention_bytes: u64,
) -> Result<StoredPartition, OpenError> {
    let read = |key: Vec<u8>| meta.get(key).map_err(|error| storage(&error));
    let (start, mut last_ms) = match read(MetaKey::Start.key(partition, 0))? {
        Some(value) => {
            format::parse_pair(&value).ok_or_else(|| damaged(format!("the start of {partition}")))?
        }
        None => (0, 0),
    };
    let mut closed = VecDeque::new();
    for guard in meta.prefix(MetaKey::Segment.prefix(partition)) {
        let (key, value) = guard.into_inner().map_err(|error| storage(&error))?;
        let segment = key
            .len()
            .checked_sub(8)
            .and_then(|start| format::parse_offset(&key[start..]))
            .zip(format::parse_pair(&value));
        let (end, (bytes, last_append_ms)) =
            segment.ok_or_else(|| damaged(format!("a segment of {partition}")))?;
        closed.push_back(Segment { end, bytes: bytes.unsigned_abs(), last_ms: last_append_ms });
    }
    let open_from = closed.back().map_or(start, |segment| segment.end.max(start));

    let keyspace = OnceLock::new();
    let mut end = open_from;
    let mut open_bytes = 0;
    if has_keyspace {
        let partition_keyspace = open_keyspace(db, partition).map_err(|error| storage(&error))?;
        let last_records = LastRecords::of(&partition_keyspace, start).map_err(|error| storage(&error))?;
        if let Some(last_records) = last_records {
            let last = last_records.last.ok_or_else(|| damaged(format!("the last record of {partition}")))?;
            // An open segment has no stored end, so the last record determines it.
            end = end.max(last.0 + 1);
            last_ms = last_ms.max(last.1);
            // Estimated from the last records: reading all of the open segment would slow down the start.
            open_bytes = last_records.mean_bytes.saturating_mul(end.abs_diff(open_from));
        }
        let _first = keyspace.set(partition_keyspace);
    }
    let close_at = (retention_bytes / 16).clamp(1 << 10, 4 << 20);
    let open = Segment { end, bytes: open_bytes, last_ms };
    Ok(StoredPartition::new(keyspace, start, end, Segments::new(closed, open, close_at)))
}

/// Last records of a partition. Appends continue after them.
struct LastRecords {
    /// Offset and append time of the last record. `None`: its bytes are damaged.
    last: Option<(i64, i64)>,
    mean_bytes: u64,
}

impl LastRecords {
    /// Reads only at or above the start: below it the database may hold many removal marks.
    fn of(keyspace: &Keyspace, start: i64) -> fjall::Result<Option<Self>> {
        let mut last = None;
        let mut bytes = 0_u64;
        let mut records = 0_u64;
        for guard in keyspace.range(format::offset_key(start)..).rev().take(16) {
            let (key, value) = guard.into_inner()?;
            if records == 0 {
                last = format::parse_offset(&key).zip(format::written_at(&value).map(|at| at.0));
            }
            bytes += value.len() as u64;
            records += 1;
        }
        Ok((records > 0).then(|| Self { last, mean_bytes: bytes / records.max(1) }))
    }
}

/// Writes format and partition count of a new log, or checks those of an existing one.
pub(super) fn check_format(db: &Database, meta: &Keyspace, partitions: u32) -> Result<(), OpenError> {
    let number = |key: &[u8], subject: &str| -> Result<Option<u32>, OpenError> {
        let Some(value) = meta.get(key).map_err(|error| storage(&error))? else { return Ok(None) };
        format::parse_number(&value).map(Some).ok_or_else(|| damaged(format!("the log's {subject}")))
    };
    match number(format::FORMAT_KEY, "format")? {
        Some(stored_format) if stored_format > format::FORMAT => {
            return Err(OpenError::NewerFormat { found: stored_format, known: format::FORMAT });
        }
        Some(_) => {
            let stored_count = number(format::PARTITIONS_KEY, "partition count")?
                .ok_or_else(|| damaged("the log's partition count is missing"))?;
            // The partition of a key depends on the number, so another one would break the order of keys.
            if stored_count != partitions {
                return Err(OpenError::PartitionCount {
                    topic: Topic::Items,
                    configured: partitions,
                    found: stored_count,
                    found_in: "the data folder".to_owned(),
                });
            }
        }
        None => {
            // Durable before the first record, so that every later start can check it.
            let mut batch = db.batch().durability(Some(PersistMode::SyncAll));
            batch.insert(meta, format::FORMAT_KEY, format::FORMAT.to_be_bytes());
            batch.insert(meta, format::PARTITIONS_KEY, partitions.to_be_bytes());
            batch.commit().map_err(|error| storage(&error))?;
        }
    }
    Ok(())
}

/// Reads the position of each group.
pub(super) fn read_groups(meta: &Keyspace) -> Result<GroupPositions, OpenError> {
    let mut groups = GroupPositions::new();
    for guard in meta.prefix(format::group_prefix()) {
        let (key, value) = guard.into_inner().map_err(|error| storage(&error))?;
        let ((group, partition), next) = format::parse_group_key(&key)
            .zip(format::parse_next(&value))
            .ok_or_else(|| damaged("a group's position"))?;
        groups.entry(group).or_default().insert(partition, next);
    }
    Ok(groups)
}
