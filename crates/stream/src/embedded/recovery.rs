//! State of the log as the last process left it, read when the log is opened.

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

fn damaged(what: impl Into<String>) -> OpenError {
    OpenError::Damaged { detail: what.into() }
}

/// Opens a partition as its last process left it. `exists`: it has a keyspace.
pub(super) fn open_partition(
    db: &Database,
    meta: &Keyspace,
    partition: Partition,
    exists: bool,
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
            .and_then(|at| format::parse_offset(&key[at..]))
            .zip(format::parse_pair(&value));
        let (end, (bytes, at)) = segment.ok_or_else(|| damaged(format!("a segment of {partition}")))?;
        closed.push_back(Segment { end, bytes: bytes.unsigned_abs(), last_ms: at });
    }
    let open_from = closed.back().map_or(start, |segment| segment.end.max(start));

    let keyspace = OnceLock::new();
    let mut end = open_from;
    let mut open_bytes = 0;
    if exists {
        let own = open_keyspace(db, partition).map_err(|error| storage(&error))?;
        let last_records = LastRecords::of(&own, start).map_err(|error| storage(&error))?;
        if let Some(last_records) = last_records {
            let last = last_records.last.ok_or_else(|| damaged(format!("the last record of {partition}")))?;
            end = end.max(last.0 + 1);
            last_ms = last_ms.max(last.1);
            // An estimate: reading the whole stretch would make a start as slow as it is long.
            open_bytes = last_records.mean_bytes.saturating_mul(end.abs_diff(open_from));
        }
        let _first = keyspace.set(own);
    }
    let close_at = (retention_bytes / 16).clamp(1 << 10, 4 << 20);
    let open = Segment { end, bytes: open_bytes, last_ms };
    Ok(StoredPartition::new(keyspace, start, end, Segments::new(closed, open, close_at)))
}

/// Last records of a partition, from which appending goes on.
struct LastRecords {
    /// Offset and append time of the last one. `None`: its bytes are damaged.
    last: Option<(i64, i64)>,
    mean_bytes: u64,
}

impl LastRecords {
    /// Reads from the start on, because everything before it may be a long row of removals.
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
    let number = |key: &[u8], what: &str| -> Result<Option<u32>, OpenError> {
        let Some(value) = meta.get(key).map_err(|error| storage(&error))? else { return Ok(None) };
        format::parse_number(&value).map(Some).ok_or_else(|| damaged(format!("the log's {what}")))
    };
    match number(format::FORMAT_KEY, "format")? {
        Some(found) if found > format::FORMAT => {
            return Err(OpenError::NewerFormat { found, known: format::FORMAT });
        }
        Some(_) => {
            let found = number(format::PARTITIONS_KEY, "partition count")?
                .ok_or_else(|| damaged("the log's partition count is missing"))?;
            if found != partitions {
                return Err(OpenError::PartitionCount {
                    topic: Topic::Items,
                    configured: partitions,
                    found,
                    found_in: "the data folder".to_owned(),
                });
            }
        }
        None => {
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
