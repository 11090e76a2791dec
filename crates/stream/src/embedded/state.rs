//! State shared by all threads of the embedded log: partitions with their ends, positions of groups, and subscribers to new
//! records.
//!
//! Only the writer changes durable state; the other threads read it.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use fjall::{Database, Keyspace, KeyspaceCreateOptions};
use parking_lot::{Mutex, RwLock};
use tidegate_embedded_data::{DiskSpace, DurableMark, LOG_SYNCS_KEY};
use tidegate_schemas::{Folder, ids::Millis};

use super::{
    disk_quota::DiskQuota,
    format,
    recovery::{self, GroupPositions, storage},
    stored_partition::StoredPartition,
};
use crate::{
    error::OpenError,
    health::Health,
    settings::embedded::EmbeddedSettings,
    topics::{Partition, Topic},
    wakeup::Wakeup,
};

struct Subscriber {
    topics: BTreeSet<Topic>,
    wakeup: Arc<Wakeup>,
}

pub(super) struct State {
    pub(super) db: Database,
    pub(super) meta: Keyspace,
    pub(super) folder: Folder,
    /// Error after which all writes of this process are lost.
    pub(super) fatal_error: OnceLock<String>,
    pub(super) settings: EmbeddedSettings,
    pub(super) partition_count: u32,
    stored: HashMap<Partition, StoredPartition>,
    /// Position of each group, including groups without a consumer.
    pub(super) groups: RwLock<GroupPositions>,
    /// Groups with a consumer in this process.
    pub(super) consumed: Mutex<BTreeSet<&'static str>>,
    subscribers: RwLock<Vec<Subscriber>>,
    /// Bytes of appends in the writer's queue.
    pub(super) queued: AtomicUsize,
    pub(super) quota: DiskQuota,
    pub(super) disk: Arc<DiskSpace>,
    /// Number of synced batches in the database. The writer increments it.
    syncs: AtomicU64,
    /// Mark of the durable state, in a file beside the database.
    pub(super) mark: Option<Arc<DurableMark>>,
    pub(super) health: Arc<Health>,
    /// Append time of the batch that is being written. After a failed write it stays set until a write succeeds, because a
    /// restart may recover the failed batch.
    unpublished_append: Mutex<Option<Millis>>,
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
        recovery::check_format(&db, &meta, partition_count)?;
        let syncs = meta.get(LOG_SYNCS_KEY).map_err(|error| storage(&error))?;
        let syncs = syncs.and_then(|value| format::parse_count(&value)).unwrap_or(0);
        let mut state = Self {
            groups: RwLock::new(recovery::read_groups(&meta)?),
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
            unpublished_append: Mutex::default(),
        };
        let existing_partitions: BTreeSet<Partition> =
            state.db.list_keyspace_names().iter().filter_map(|name| format::parse_keyspace(name)).collect();
        for topic in Topic::ALL {
            for index in 0..partition_count {
                let partition = Partition::new(topic, index);
                let exists = existing_partitions.contains(&partition);
                let retention_bytes = state.settings.retention_bytes;
                let stored =
                    recovery::open_partition(&state.db, &state.meta, partition, exists, retention_bytes)?;
                state.stored.insert(partition, stored);
            }
        }
        Ok(state)
    }

    /// Checks that the data folder is still the opened one. An error becomes the fatal error.
    pub(super) fn is_in_place(&self) -> std::io::Result<()> {
        self.folder.is_in_place().inspect_err(|error| {
            // Keeps the first reason; later ones follow from it.
            let _first = self.fatal_error.set(format!("the data folder was taken away: {error}"));
        })
    }

    /// Returns the append time of a new batch, and marks it as unpublished.
    pub(super) fn begin_append(&self) -> Millis {
        let mut unpublished_append = self.unpublished_append.lock();
        // Read under the lock, so that `append_time_floor` sees either the mark or an earlier clock.
        let append_time = Millis::now();
        *unpublished_append =
            unpublished_append.map_or(Some(append_time), |earlier| Some(earlier.min(append_time)));
        append_time
    }

    /// Ends the mark of `begin_append`, after the new ends are stored.
    pub(super) fn publish_append(&self) {
        *self.unpublished_append.lock() = None;
    }

    /// Returns a time: all records with an earlier append time are below the ends that are loaded after this call.
    pub(super) fn append_time_floor(&self) -> Millis {
        let unpublished_append = self.unpublished_append.lock();
        unpublished_append.unwrap_or_else(Millis::now)
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

    /// Returns the keyspace of a partition for writing, and creates it if needed.
    pub(super) fn writable(&self, partition: Partition) -> fjall::Result<Option<&Keyspace>> {
        self.stored(partition).map_or(Ok(None), |stored| stored.writable(&self.db, partition))
    }

    /// Returns the lowest position of all groups in a partition. Retention must not pass it.
    pub(super) fn retention_barrier(&self, partition: Partition) -> i64 {
        let groups = self.groups.read();
        groups
            .values()
            .filter_map(|positions| positions.get(&partition))
            .map(|next| next.0)
            .min()
            .unwrap_or(i64::MAX)
    }

    /// Returns the bytes of records that some group has not passed.
    pub(super) fn unprocessed_bytes(&self) -> u64 {
        let of_partition = |(partition, stored): (Partition, &StoredPartition)| {
            stored.segments.lock().bytes_from(self.retention_barrier(partition))
        };
        self.all_stored().map(of_partition).sum()
    }

    /// Describes why requests are refused: the disk or its configured share is full.
    pub(super) fn describe_full(&self) -> String {
        let (kept, free) = (self.quota.kept_bytes(), self.disk.space().map_or(u64::MAX, |space| space.free));
        // The disk has space, so the configured limit is the cause.
        if free > kept && self.settings.max_bytes > 0 {
            let limit = self.settings.max_bytes >> 20;
            return format!(
                "the data folder is near the {limit} MiB of stream.embedded.max_bytes: raise it, or lower \
                 stream.embedded.retention_bytes"
            );
        }
        format!(
            "the disk of the data folder has {} MiB free, and {} MiB are kept (stream.embedded.min_free_bytes, or the \
             space for pending writes and compactions): free space",
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
