//! State that all threads of the embedded log share: partitions with their ends, groups with their positions, and
//! subscribers to new records.
//!
//! Only the writer changes what is durable; everybody else reads.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use fjall::{
    Database, Keyspace, KeyspaceCreateOptions, PersistMode,
    config::{BlockSizePolicy, FilterPolicy},
};
use parking_lot::{Mutex, RwLock};
use tidegate_schemas::{DiskSpace, DurableMark, Folder};

use super::{
    disk_quota::DiskQuota,
    format::{self, MetaKey},
    segments::{Segment, Segments},
};
use crate::{
    error::OpenError,
    health::Health,
    record::FetchedRecord,
    settings::embedded::EmbeddedSettings,
    topics::{NextOffset, Partition, Topic},
    wakeup::Wakeup,
};

/// Memory of one partition before it is written to a table. Sixteen busy partitions hold 128 MiB.
const MEMTABLE_BYTES: u64 = 8 << 20;

/// One partition in the database.
pub(super) struct StoredPartition {
    /// Made at the first append: a new installation uses few of its partitions.
    keyspace: OnceLock<Keyspace>,
    start: AtomicI64,
    end: AtomicI64,
    pub(super) segments: Mutex<Segments>,
}

impl StoredPartition {
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
        self.end.store(end, Ordering::Release);
    }

    pub(super) fn keyspace(&self) -> Option<&Keyspace> {
        self.keyspace.get()
    }
}

struct Subscriber {
    topics: BTreeSet<Topic>,
    wakeup: Arc<Wakeup>,
}

pub(super) struct State {
    pub(super) db: Database,
    pub(super) meta: Keyspace,
    pub(super) folder: Folder,
    /// Error after which nothing that is written here will be found again.
    pub(super) fatal_error: OnceLock<String>,
    pub(super) settings: EmbeddedSettings,
    pub(super) partition_count: u32,
    stored: HashMap<Partition, StoredPartition>,
    /// Position of each group, also of groups that have no consumer at the moment.
    pub(super) groups: RwLock<BTreeMap<String, BTreeMap<Partition, NextOffset>>>,
    /// Groups with a consumer in this process.
    pub(super) consumed: Mutex<BTreeSet<&'static str>>,
    subscribers: RwLock<Vec<Subscriber>>,
    /// Bytes of appends on their way to the writer.
    pub(super) queued: AtomicUsize,
    pub(super) quota: DiskQuota,
    pub(super) disk: Arc<DiskSpace>,
    /// Number of synced batches, as the database holds it. The writer counts.
    syncs: AtomicU64,
    /// Mark of what is durable, beside the database.
    pub(super) mark: Option<Arc<DurableMark>>,
    pub(super) health: Arc<Health>,
}

pub(super) fn storage(error: &fjall::Error) -> OpenError {
    OpenError::Unavailable { detail: format!("the data folder: {error}") }
}

fn damaged(what: impl Into<String>) -> OpenError {
    OpenError::Damaged { detail: what.into() }
}

impl State {
    pub(super) fn open(
        db: Database,
        partition_count: u32,
        settings: EmbeddedSettings,
        health: Arc<Health>,
        mark: Option<Arc<DurableMark>>,
        disk: Option<Arc<DiskSpace>>,
    ) -> Result<Self, OpenError> {
        let meta =
            db.keyspace(format::META, KeyspaceCreateOptions::default).map_err(|error| storage(&error))?;
        let folder = Folder::open(meta.path()).map_err(|error| storage(&error.into()))?;
        check_format(&db, &meta, partition_count)?;
        let syncs = meta.get(format::SYNCS_KEY).map_err(|error| storage(&error))?;
        let syncs = syncs.and_then(|value| format::parse_count(&value)).unwrap_or(0);
        let mut state = Self {
            groups: RwLock::new(read_groups(&meta)?),
            consumed: Mutex::default(),
            subscribers: RwLock::default(),
            queued: AtomicUsize::new(0),
            quota: DiskQuota::default(),
            disk: disk.unwrap_or_else(|| Arc::new(DiskSpace::of(folder.path()))),
            syncs: AtomicU64::new(syncs),
            mark,
            stored: HashMap::new(),
            db,
            meta,
            folder,
            fatal_error: OnceLock::new(),
            settings,
            partition_count,
            health,
        };
        let existing: BTreeSet<Partition> =
            state.db.list_keyspace_names().iter().filter_map(|name| format::parse_keyspace(name)).collect();
        for topic in Topic::ALL {
            for index in 0..partition_count {
                let partition = Partition::new(topic, index);
                let stored = state.open_partition(partition, existing.contains(&partition))?;
                state.stored.insert(partition, stored);
            }
        }
        Ok(state)
    }

    fn open_partition(&self, partition: Partition, exists: bool) -> Result<StoredPartition, OpenError> {
        let read = |key: Vec<u8>| self.meta.get(key).map_err(|error| storage(&error));
        let (start, mut last_ms) = match read(MetaKey::Start.key(partition, 0))? {
            Some(value) => {
                format::parse_pair(&value).ok_or_else(|| damaged(format!("the start of {partition}")))?
            }
            None => (0, 0),
        };
        let mut closed = VecDeque::new();
        for guard in self.meta.prefix(MetaKey::Segment.prefix(partition)) {
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
            let own = self.open_keyspace(partition).map_err(|error| storage(&error))?;
            let last_records = LastRecords::of(&own, start).map_err(|error| storage(&error))?;
            if let Some(last_records) = last_records {
                let last =
                    last_records.last.ok_or_else(|| damaged(format!("the last record of {partition}")))?;
                end = end.max(last.0 + 1);
                last_ms = last_ms.max(last.1);
                // An estimate: reading the whole stretch would make a start as slow as it is long.
                open_bytes = last_records.mean_bytes.saturating_mul(end.abs_diff(open_from));
            }
            let _first = keyspace.set(own);
        }
        let close_at = (self.settings.retention_bytes / 16).clamp(1 << 10, 4 << 20);
        let open = Segment { end, bytes: open_bytes, last_ms };
        Ok(StoredPartition {
            keyspace,
            start: AtomicI64::new(start),
            end: AtomicI64::new(end),
            segments: Mutex::new(Segments::new(closed, open, close_at)),
        })
    }

    /// Checks that the data folder is still the one that was opened. An error is remembered for good.
    pub(super) fn is_in_place(&self) -> std::io::Result<()> {
        self.folder.is_in_place().inspect_err(|why| {
            let _first = self.fatal_error.set(format!("the data folder was taken away: {why}"));
        })
    }

    pub(super) fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Acquire)
    }

    pub(super) fn set_syncs(&self, syncs: u64) {
        self.syncs.store(syncs, Ordering::Release);
    }

    pub(super) fn stored(&self, partition: Partition) -> Option<&StoredPartition> {
        self.stored.get(&partition)
    }

    pub(super) fn all_stored(&self) -> impl Iterator<Item = (Partition, &StoredPartition)> {
        self.stored.iter().map(|(partition, stored)| (*partition, stored))
    }

    fn open_keyspace(&self, partition: Partition) -> fjall::Result<Keyspace> {
        self.db.keyspace(&format::keyspace(partition), || {
            KeyspaceCreateOptions::default()
                .max_memtable_size(MEMTABLE_BYTES)
                // Records are read in order, never looked up by a key that may be absent.
                .filter_policy(FilterPolicy::disabled())
                .data_block_size_policy(BlockSizePolicy::all(32 << 10))
        })
    }

    /// Returns the keyspace to write a partition to, and makes it now if there was none.
    pub(super) fn writable(&self, partition: Partition) -> fjall::Result<Option<&Keyspace>> {
        let Some(stored) = self.stored(partition) else { return Ok(None) };
        if stored.keyspace.get().is_none() {
            let own = self.open_keyspace(partition)?;
            let _first = stored.keyspace.set(own);
        }
        Ok(stored.keyspace.get())
    }

    /// Reads records of the partition from `from` on: at least one if there is one, then up to both limits. Returns
    /// their bytes.
    pub(super) fn read(
        &self,
        partition: Partition,
        from: i64,
        below: i64,
        records: usize,
        bytes: usize,
        into: &mut Vec<FetchedRecord>,
    ) -> Result<usize, ReadError> {
        let Some(keyspace) = self.stored(partition).and_then(StoredPartition::keyspace) else { return Ok(0) };
        if records == 0 || from >= below {
            return Ok(0);
        }
        let mut read = 0;
        for guard in keyspace.range(format::offset_key(from)..format::offset_key(below)).take(records) {
            let record = decode(partition, guard)?;
            read += record.bytes();
            into.push(record);
            if read >= bytes {
                break;
            }
        }
        Ok(read)
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
        let Some(keyspace) = self.stored(partition).and_then(StoredPartition::keyspace) else {
            return Ok(into);
        };
        if from >= below {
            return Ok(into);
        }
        let range = keyspace.range(format::offset_key(from)..format::offset_key(below));
        let mut read = 0;
        for guard in range.rev().take(records) {
            let record = decode(partition, guard)?;
            read += record.bytes();
            into.push(record);
            if read >= bytes {
                break;
            }
        }
        Ok(into)
    }

    /// Offset that retention may not pass, because a group still needs the records from it on.
    pub(super) fn retention_barrier(&self, partition: Partition) -> i64 {
        let groups = self.groups.read();
        groups.values().filter_map(|own| own.get(&partition)).map(|next| next.0).min().unwrap_or(i64::MAX)
    }

    /// Bytes of records that some group has not passed.
    pub(super) fn unprocessed_bytes(&self) -> u64 {
        let of_partition = |(partition, stored): (Partition, &StoredPartition)| {
            stored.segments.lock().bytes_from(self.retention_barrier(partition))
        };
        self.all_stored().map(of_partition).sum()
    }

    /// Describes why requests are refused while the disk or the configured share of it is used up.
    pub(super) fn describe_full(&self) -> String {
        let (kept, free) = (self.quota.kept(), self.disk.space().map_or(u64::MAX, |space| space.free));
        if free > kept && self.settings.max_bytes > 0 {
            let limit = self.settings.max_bytes >> 20;
            return format!(
                "the data folder is near the {limit} MiB of stream.embedded.max_bytes: raise it, or lower \
                 stream.embedded.retention_bytes"
            );
        }
        format!(
            "the disk of the data folder has {} MiB free, and {} MiB are kept (stream.embedded.min_free_bytes, and what \
             is being written and compacted): free space",
            free >> 20,
            kept >> 20
        )
    }

    pub(super) fn subscribe(&self, topics: &[Topic], wakeup: Arc<Wakeup>) {
        self.subscribers.write().push(Subscriber { topics: topics.iter().copied().collect(), wakeup });
    }

    pub(super) fn unsubscribe(&self, wakeup: &Arc<Wakeup>) {
        self.subscribers.write().retain(|subscriber| !Arc::ptr_eq(&subscriber.wakeup, wakeup));
    }

    /// Wakes the consumers of any of the topics.
    pub(super) fn notify_subscribers(&self, topics: &BTreeSet<Topic>) {
        for subscriber in self.subscribers.read().iter() {
            if !subscriber.topics.is_disjoint(topics) {
                subscriber.wakeup.notify();
            }
        }
    }
}

/// A record that cannot be read.
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
fn check_format(db: &Database, meta: &Keyspace, partitions: u32) -> Result<(), OpenError> {
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

fn read_groups(meta: &Keyspace) -> Result<BTreeMap<String, BTreeMap<Partition, NextOffset>>, OpenError> {
    let mut groups: BTreeMap<String, BTreeMap<_, _>> = BTreeMap::new();
    for guard in meta.prefix(format::group_prefix()) {
        let (key, value) = guard.into_inner().map_err(|error| storage(&error))?;
        let ((group, partition), next) = format::parse_group_key(&key)
            .zip(format::parse_next(&value))
            .ok_or_else(|| damaged("a group's position"))?;
        groups.entry(group).or_default().insert(partition, next);
    }
    Ok(groups)
}
