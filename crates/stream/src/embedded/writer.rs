//! The single writer thread of the log: makes many appends durable with one sync, then answers them.
//!
//! It also writes commits, so that the journal holds commits, appends and removals in their order.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{Receiver, SyncSender},
    },
};

use fjall::PersistMode;
use tidegate_embedded_data::LOG_SYNCS_KEY;
use tidegate_schemas::ids::Millis;
use tokio::sync::oneshot;

use super::{
    durability,
    format::{self, MetaKey},
    segments::Segment,
    state::State,
};
use crate::{
    error::AppendError,
    metrics,
    topics::{NextOffset, Partition, Topic},
    wakeup::Wakeup,
};

/// Describes a failed write with its remedy. The database itself reports only that an earlier write failed.
fn describe_failure(error: &fjall::Error, table: &Path) -> String {
    let folder = table.ancestors().nth(2).unwrap_or(table);
    match error {
        fjall::Error::Poisoned => format!(
            "{} takes no more writes after a failed one: its files are damaged or the disk failed \
             (docs/guides/data.md)",
            folder.display()
        ),
        error => format!("the data folder: {error}"),
    }
}

/// Largest number of records of one trim, so that appends do not wait long.
pub(super) const TRIM_RECORDS: i64 = 8_192;

pub(super) enum WriteRequest {
    Append(Append),
    Commit(Commit),
    /// Registers a group, so that retention keeps its records, and answers with its positions.
    Register {
        group: &'static str,
        partitions: Vec<Partition>,
        done: SyncSender<RegisterResult>,
    },
    Trim(Trim),
    Close(oneshot::Sender<()>),
}

pub(super) struct Append {
    pub(super) records: Vec<(Partition, Vec<u8>)>,
    pub(super) bytes: usize,
    pub(super) done: oneshot::Sender<Result<(), AppendError>>,
}

pub(super) struct Commit {
    pub(super) group: &'static str,
    pub(super) upto: Vec<(Partition, NextOffset)>,
    pub(super) done: CommitCallback,
}

/// Receives the durable positions, or the error.
type CommitCallback = Box<dyn FnOnce(Result<&[(Partition, NextOffset)], String>) + Send>;

pub(super) type RegisterResult = Result<Vec<(Partition, NextOffset)>, String>;

/// Removes some records of a partition before an offset. Callers repeat it until the answer reaches the offset.
pub(super) struct Trim {
    pub(super) partition: Partition,
    pub(super) before: NextOffset,
    /// Removes records even if a group still needs them, on request of an operator.
    pub(super) ignores_groups: bool,
    /// Receives the new start of the partition.
    pub(super) done: oneshot::Sender<Result<NextOffset, String>>,
}

pub(super) struct LogWriter {
    state: Arc<State>,
    requests: Receiver<WriteRequest>,
    disk_wakeup: Arc<Wakeup>,
}

/// Writes that share one sync.
#[derive(Default)]
struct SyncBatch {
    appends: Vec<Append>,
    commits: Vec<Commit>,
    bytes: usize,
}

/// New end of a partition in a batch. Published to readers after the sync.
struct PartitionAdvance {
    end: i64,
    last_ms: i64,
    bytes: u64,
}

impl LogWriter {
    pub(super) const fn new(
        state: Arc<State>,
        requests: Receiver<WriteRequest>,
        disk_wakeup: Arc<Wakeup>,
    ) -> Self {
        Self { state, requests, disk_wakeup }
    }

    /// Runs until a close request, or until every sender is dropped.
    pub(super) fn run(self) {
        while let Ok(first) = self.requests.recv() {
            if let Some(done) = self.process_queue(first) {
                // Dropped requests answer their callers with "shutting down".
                while self.requests.try_recv().is_ok() {}
                let _dropped = done.send(());
                return;
            }
        }
    }

    /// Processes `first` and the queued requests: appends and commits in one batch, the others after the batch so far. Returns the
    /// sender of a close request.
    fn process_queue(&self, first: WriteRequest) -> Option<oneshot::Sender<()>> {
        let mut batch = SyncBatch::default();
        let mut next = Some(first);
        while let Some(request) = next.take() {
            match request {
                WriteRequest::Append(append) => {
                    batch.bytes += append.bytes;
                    batch.appends.push(append);
                }
                WriteRequest::Commit(commit) => batch.commits.push(commit),
                // Registrations and removals read positions and ends, so the earlier requests are written first.
                WriteRequest::Register { group, partitions, done } => {
                    self.write(std::mem::take(&mut batch));
                    let _dropped = done.send(self.register(group, &partitions));
                }
                WriteRequest::Trim(trim) => {
                    self.write(std::mem::take(&mut batch));
                    let answer = self.trim(&trim);
                    let _dropped = trim.done.send(answer);
                }
                WriteRequest::Close(done) => {
                    self.write(batch);
                    return Some(done);
                }
            }
            // A full batch is written before further requests are taken, which bounds the wait of its callers.
            if batch.bytes < self.state.settings.group_commit_bytes {
                next = self.requests.try_recv().ok();
            }
        }
        self.write(batch);
        None
    }

    fn write(&self, mut batch: SyncBatch) {
        if batch.appends.is_empty() && batch.commits.is_empty() {
            return;
        }
        // The limit bounds queued requests, and these leave the queue now.
        self.state.queued.fetch_sub(batch.bytes, Ordering::AcqRel);
        self.refuse_without_space(&mut batch);
        let result = self.write_durably(&mut batch);
        match result {
            Ok(appended_counts) => {
                self.state.health.set_healthy("storage");
                // Counted before the answers, so that callers find their records in the metric.
                for (topic, records) in &appended_counts {
                    metrics::appended(*topic).increment(*records);
                }
                self.state.notify_subscribers(&appended_counts.keys().copied().collect());
                if self.state.quota.spend(batch.bytes) {
                    self.disk_wakeup.notify();
                }
                for append in batch.appends {
                    let _dropped = append.done.send(Ok(()));
                }
                for commit in batch.commits {
                    (commit.done)(Ok(&commit.upto));
                }
            }
            Err(error) => {
                let detail = describe_failure(&error, self.state.meta.path());
                if self.state.health.set_unhealthy("storage", detail.clone()) {
                    tracing::error!("the log cannot write: {detail}");
                }
                for append in batch.appends {
                    let _dropped = append.done.send(Err(AppendError::Unavailable { detail: detail.clone() }));
                }
                for commit in batch.commits {
                    (commit.done)(Err(detail.clone()));
                }
            }
        }
    }

    /// Refuses appends that would leave the database too little disk space to work. Commits are written anyway: they are small
    /// and allow retention to free space.
    fn refuse_without_space(&self, batch: &mut SyncBatch) {
        let state = &self.state;
        let Err(detail) = state.disk.check_write(state.db.write_buffer_size(), batch.bytes) else { return };
        self.disk_wakeup.notify();
        for append in batch.appends.drain(..) {
            let _dropped = append.done.send(Err(AppendError::Full { detail: detail.clone() }));
        }
        batch.bytes = 0;
    }

    /// Writes the whole batch with one sync, publishes it to readers, and returns the number of appended records by topic.
    fn write_durably(&self, batch: &mut SyncBatch) -> fjall::Result<BTreeMap<Topic, u64>> {
        let state = &self.state;
        // If the data folder was removed, fjall would create the partitions' folders again in its place.
        state.is_in_place()?;
        // `SyncData` suffices: fdatasync also writes the metadata that reading back needs.
        let mut writes = state.db.batch().durability(Some(PersistMode::SyncData));
        let mut advances: BTreeMap<Partition, PartitionAdvance> = BTreeMap::new();
        let mut appended_counts: BTreeMap<Topic, u64> = BTreeMap::new();
        let now = state.begin_append();

        for append in &mut batch.appends {
            for (partition, mut record) in append.records.drain(..) {
                // `append` has checked the partition, so none is skipped here.
                let Some(stored) = state.stored(partition) else { continue };
                let Some(keyspace) = state.writable(partition)? else { continue };
                let advance = advances.entry(partition).or_insert_with(|| PartitionAdvance {
                    end: stored.end(),
                    // The clock may have been set back, but append times must not decrease.
                    last_ms: stored.segments.lock().last_ms().max(now.0),
                    bytes: 0,
                });
                format::stamp(&mut record, Millis(advance.last_ms));
                advance.bytes += record.len() as u64;
                writes.insert(keyspace, format::offset_key(advance.end), record);
                advance.end += 1;
                *appended_counts.entry(partition.topic).or_default() += 1;
            }
        }

        let mut closed_segments: Vec<(Partition, Segment)> = Vec::new();
        let mut segments = Vec::with_capacity(advances.len());
        for (partition, advance) in &advances {
            let Some(stored) = state.stored(*partition) else { continue };
            // Changed in a copy: a failed write must leave the segments as they are on disk.
            let mut updated_segments = stored.segments.lock().clone();
            closed_segments.extend(
                updated_segments
                    .append(advance.end, advance.bytes, advance.last_ms)
                    .map(|closed_segment| (*partition, closed_segment)),
            );
            segments.push((stored, advance.end, updated_segments));
        }
        for (partition, segment) in closed_segments {
            let bytes = i64::try_from(segment.bytes).unwrap_or(i64::MAX);
            let key = MetaKey::Segment.key(partition, segment.end);
            writes.insert(&state.meta, key, format::pair(bytes, segment.last_ms));
        }

        // Merge commits by key: two writes of one key in a batch have no defined order.
        let mut positions: BTreeMap<(&'static str, Partition), NextOffset> = BTreeMap::new();
        for commit in &batch.commits {
            for (partition, next) in &commit.upto {
                let position = positions.entry((commit.group, *partition)).or_default();
                *position = (*position).max(*next);
            }
        }
        for ((group, partition), next) in &positions {
            writes.insert(&state.meta, format::group_key(group, *partition), format::offset_key(next.0));
        }

        let syncs = state.syncs() + 1;
        writes.insert(&state.meta, LOG_SYNCS_KEY, syncs.to_be_bytes());

        writes.commit()?;
        // Writes to open files of a removed folder still succeed, so check again after the sync.
        state.is_in_place()?;
        state.set_syncs(syncs);
        // After the sync and before the answers, so that the loss of any acknowledged record is detected.
        let ends = advances.iter().map(|(partition, advance)| (*partition, advance.end));
        durability::mark_synced(state.mark.as_ref(), syncs, ends);

        for (stored, end, updated_segments) in segments {
            *stored.segments.lock() = updated_segments;
            stored.set_end(end);
        }
        state.publish_append();
        let mut groups = state.groups.write();
        for ((group, partition), next) in positions {
            groups.entry(group.to_owned()).or_default().insert(partition, next);
        }
        Ok(appended_counts)
    }

    /// Starts the group's positions of new partitions at their first records, and returns the positions of all.
    fn register(&self, group: &'static str, partitions: &[Partition]) -> RegisterResult {
        let state = &self.state;
        let known_positions = state.groups.read().get(group).cloned().unwrap_or_default();
        let new_positions: Vec<(Partition, NextOffset)> = partitions
            .iter()
            .filter(|partition| !known_positions.contains_key(partition))
            .filter_map(|partition| Some((*partition, NextOffset(state.stored(*partition)?.start()))))
            .collect();
        if !new_positions.is_empty() {
            // Durable before the answer: retention must not pass a group that reads already.
            let mut batch = state.db.batch().durability(Some(PersistMode::SyncData));
            for (partition, next) in &new_positions {
                batch.insert(&state.meta, format::group_key(group, *partition), format::offset_key(next.0));
            }
            batch.commit().map_err(|error| format!("the data folder: {error}"))?;
        }
        let mut groups = state.groups.write();
        let positions = groups.entry(group.to_owned()).or_default();
        positions.extend(new_positions);
        Ok(partitions.iter().filter_map(|partition| Some((*partition, *positions.get(partition)?))).collect())
    }

    /// Removes at most `TRIM_RECORDS` records, and returns the new start of the partition.
    fn trim(&self, trim: &Trim) -> Result<NextOffset, String> {
        let state = &self.state;
        let partition = trim.partition;
        let stored = state.stored(partition).ok_or_else(|| format!("{partition} does not exist"))?;
        let start = stored.start();
        // Computed on this thread, so that it includes every earlier registration and commit.
        let barrier = if trim.ignores_groups { i64::MAX } else { state.retention_barrier(partition) };
        let before = trim.before.0.min(barrier).min(stored.end()).min(start.saturating_add(TRIM_RECORDS));
        let Some(keyspace) = stored.keyspace().filter(|_| before > start) else {
            return Ok(NextOffset(start));
        };

        let mut updated_segments = stored.segments.lock().clone();
        let removed_segments = updated_segments.trim(before);
        // Not synced, because a lost removal is repeated by the next pass.
        let mut batch = state.db.batch();
        for offset in start..before {
            batch.remove(keyspace, format::offset_key(offset));
        }
        for segment in removed_segments {
            batch.remove(&state.meta, MetaKey::Segment.key(partition, segment.end));
        }
        batch.insert(
            &state.meta,
            MetaKey::Start.key(partition, 0),
            format::pair(before, updated_segments.last_ms()),
        );
        // Move the start before the removal, so that a late reader detects a gap and not an empty range.
        stored.set_start(before);
        if let Err(error) = batch.commit() {
            // The records are still stored.
            stored.set_start(start);
            return Err(format!("the data folder: {error}"));
        }
        *stored.segments.lock() = updated_segments;
        state.notify_subscribers(&BTreeSet::from([partition.topic]));
        Ok(NextOffset(before))
    }
}
