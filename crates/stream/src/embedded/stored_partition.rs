//! One partition in the database: its keyspace, its bounds, and reads of its records.

use std::sync::{
    OnceLock,
    atomic::{AtomicI64, Ordering},
};

use bytes::Bytes;
use fjall::{
    Database, Keyspace, KeyspaceCreateOptions,
    config::{BlockSizePolicy, FilterPolicy},
};
use parking_lot::Mutex;

use super::{format, segments::Segments};
use crate::{record::FetchedRecord, topics::Partition};

/// Size of a partition's memtable before it is flushed. Sixteen busy partitions hold 128 MiB.
const MEMTABLE_BYTES: u64 = 8 << 20;

/// One partition in the database.
pub(super) struct StoredPartition {
    /// Created at the first append, because a new installation uses few of its partitions.
    keyspace: OnceLock<Keyspace>,
    start: AtomicI64,
    end: AtomicI64,
    pub(super) segments: Mutex<Segments>,
}

impl StoredPartition {
    pub(super) fn new(keyspace: OnceLock<Keyspace>, start: i64, end: i64, segments: Segments) -> Self {
        let (start, end) = (AtomicI64::new(start), AtomicI64::new(end));
        Self { keyspace, start, end, segments: Mutex::new(segments) }
    }

    pub(super) fn start(&self) -> i64 {
        self.start.load(Ordering::Acquire)
    }

    pub(super) fn end(&self) -> i64 {
        self.end.load(Ordering::Acquire)
    }

    pub(super) fn set_start(&self, start: i64) {
        self.start.store(start, Ordering::Release);
    }

    pub(super) fn set_end(&self, end: i64) {
        // Stored after the records, so that a reader of the new end finds them.
        self.end.store(end, Ordering::Release);
    }

    /// Returns the keyspace for writing, and creates it if needed.
    pub(super) fn writable(&self, db: &Database, partition: Partition) -> fjall::Result<Option<&Keyspace>> {
        if self.keyspace.get().is_none() {
            let keyspace = open_keyspace(db, partition)?;
            let _first = self.keyspace.set(keyspace);
        }
        Ok(self.keyspace.get())
    }

    pub(super) fn keyspace(&self) -> Option<&Keyspace> {
        self.keyspace.get()
    }

    /// Reads records at or above `from`, up to both limits but at least one if there is one. Returns their bytes.
    pub(super) fn read(
        &self,
        partition: Partition,
        from: i64,
        below: i64,
        records: usize,
        bytes: usize,
        into: &mut Vec<FetchedRecord>,
    ) -> Result<usize, ReadError> {
        let Some(keyspace) = self.keyspace() else { return Ok(0) };
        if records == 0 || from >= below {
            return Ok(0);
        }
        let range = keyspace.range(format::offset_key(from)..format::offset_key(below));
        decode_up_to(partition, range.take(records), bytes, into)
    }

    /// Reads records backwards, from below `below`.
    pub(super) fn read_back(
        &self,
        partition: Partition,
        from: i64,
        below: i64,
        records: usize,
        bytes: usize,
    ) -> Result<Vec<FetchedRecord>, ReadError> {
        let mut into = Vec::new();
        let Some(keyspace) = self.keyspace() else { return Ok(into) };
        if from >= below {
            return Ok(into);
        }
        let range = keyspace.range(format::offset_key(from)..format::offset_key(below));
        decode_up_to(partition, range.rev().take(records), bytes, &mut into)?;
        Ok(into)
    }
}

/// Decodes records until their bytes reach the limit. Returns their bytes.
fn decode_up_to(
    partition: Partition,
    guards: impl Iterator<Item = fjall::Guard>,
    limit: usize,
    into: &mut Vec<FetchedRecord>,
) -> Result<usize, ReadError> {
    let mut bytes = 0;
    for guard in guards {
        let record = decode(partition, guard)?;
        bytes += record.bytes();
        into.push(record);
        if bytes >= limit {
            break;
        }
    }
    Ok(bytes)
}

/// Opens the keyspace of a partition, and creates it if needed.
pub(super) fn open_keyspace(db: &Database, partition: Partition) -> fjall::Result<Keyspace> {
    db.keyspace(&format::keyspace(partition), || {
        KeyspaceCreateOptions::default()
            .max_memtable_size(MEMTABLE_BYTES)
            // Records are read in order, never looked up by a key that may be absent.
            .filter_policy(FilterPolicy::disabled())
            .data_block_size_policy(BlockSizePolicy::all(32 << 10))
    })
}

/// Reason why a record cannot be read.
#[derive(Debug)]
pub(super) enum ReadError {
    Storage(fjall::Error),
    Damaged { partition: Partition, offset: Option<i64> },
}

impl std::fmt::Display for ReadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Storage(error) => write!(f, "the data folder: {error}"),
            Self::Damaged { partition, offset: Some(offset) } => {
                write!(f, "{partition}@{offset} is damaged")
            }
            Self::Damaged { partition, offset: None } => write!(f, "a key of {partition} is damaged"),
        }
    }
}

fn decode(partition: Partition, guard: fjall::Guard) -> Result<FetchedRecord, ReadError> {
    let (key, stored) = guard.into_inner().map_err(ReadError::Storage)?;
    let offset = format::parse_offset(&key).ok_or(ReadError::Damaged { partition, offset: None })?;
    let stored = Bytes::from(stored);
    format::decode(partition, offset, &stored).ok_or(ReadError::Damaged { partition, offset: Some(offset) })
}
