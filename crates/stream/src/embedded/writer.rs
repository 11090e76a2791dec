//! The one thread that changes the log: it makes many appends durable with one sync, then answers them.
//!
//! It also writes commits, so that their order to appends and removals is the order of the journal.

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

/// Says what an operator can do. The database says only that it failed before, and not of what.
fn describe_failure(error: &fjall::Error, table: &Path) -> String {
    let folder = table.ancestors().nth(2).unwrap_or(table);
    match error {
        fjall::Error::Poisoned => format!(
            "{} takes no more writes, because one had failed: its files are damaged or the disk failed \
             (docs/guides/data.md)",
            folder.display()
        ),
        error => format!("the data folder: {error}"),
    }
}

/// Largest number of records that one trim removes: it must not keep appends waiting.
pub(super) const TRIM_RECORDS: i64 = 8_192;

pub(super) enum WriteRequest {
    Append(Append),
    Commit(Commit),
    /// Makes a group known to retention, and answers with its positions.
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

/// Receives what is durable now, or the error.
type CommitCallback = Box<dyn FnOnce(Result<&[(Partition, NextOffset)], String>) + Send>;

pub(super) type RegisterResult = Result<Vec<(Partition, NextOffset)>, String>;

/// Removes some records of a partition before an offset; to be repeated until the answer reaches it.
pub(super) struct Trim {
    pub(super) partition: Partition,
    pub(super) before: NextOffset,
    /// Removes also what a group still needs, as an operator may ask.
    pub(super) despite_groups: bool,
    /// Receives the start of the partition afterwards.
    pub(super) done: oneshot::Sender<Result<NextOffset, String>>,
}

pub(super) struct LogWriter {
    state: Arc<State>,
    requests: Receiver<WriteRequest>,
    disk_wakeup: Arc<Wakeup>,
}

/// Writes that one sync makes durable.
#[derive(Default)]
struct SyncBatch {
    appends: Vec<Append>,
    commits: Vec<Commit>,
    bytes: usize,
}

/// New end of a partition while a batch is written: published once it is durable.
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

    /// Runs until it is asked to close, or every sender is gone.
    pub(super) fn run(self) {
        while let Ok(first) = self.requests.recv() {
            if let Some(closed) = self.work(first) {
                // A caller that waits for an answer gets none, and reports that the log is shutting down.
                while self.requests.try_recv().is_ok() {}
                let _nobody_waits = closed.send(());
                return;
            }
        }
    }

    /// Gathers the requests behind the first into one batch. Returns the sender of a close request.
    fn work(&self, first: WriteRequest) -> Option<oneshot::Sender<()>> {
        let mut batch = SyncBatch::default();
        let mut next = Some(first);
        while let Some(request) = next.take() {
            match request {
                WriteRequest::Append(append) => {
                    batch.bytes += append.bytes;
                    batch.appends.push(append);
                }
                WriteRequest::Commit(commit) => batch.commits.push(commit),
                WriteRequest::Register { group: name, partitions, done } => {
                    self.write(std::mem::take(&mut batch));
                    let _gone = done.send(self.register(name, &partitions));
                }
                WriteRequest::Trim(trim) => {
                    self.write(std::mem::take(&mut batch));
                    let answer = self.trim(&trim);
                    let _gone = trim.done.send(answer);
                }
                WriteRequest::Close(done) => {
                    self.write(batch);
                    return Some(done);
                }
            }
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
        self.state.queued.fetch_sub(batch.bytes, Ordering::AcqRel);
        self.refuse_without_space(&mut batch);
        let written = self.write_durably(&mut batch);
        match written {
            Ok(topics) => {
                self.state.health.set_healthy("storage");
                // Counted before the answers, so that a caller that was answered finds its records counted.
                for (topic, records) in &topics {
                    metrics::appended(*topic).increment(*records);
                }
                self.state.notify_subscribers(&topics.keys().copied().collect());
                if self.state.quota.spend(batch.bytes) {
                    self.disk_wakeup.notify();
                }
                for append in batch.appends {
                    let _gone = append.done.send(Ok(()));
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
                    let _gone = append.done.send(Err(AppendError::Unavailable { detail: detail.clone() }));
                }
                for commit in batch.commits {
                    (commit.done)(Err(detail.clone()));
                }
            }
        }
    }

    /// Answers appends that would leave the database too little of the disk to go on. Positions are small, and let
    /// retention remove something.
    fn refuse_without_space(&self, batch: &mut SyncBatch) {
        let state = &self.state;
        let Err(detail) = state.disk.admits(state.db.write_buffer_size(), batch.bytes) else { return };
        self.disk_wakeup.notify();
        for append in batch.appends.drain(..) {
            let _gone = append.done.send(Err(AppendError::Full { detail: detail.clone() }));
        }
        batch.bytes = 0;
    }

    /// Writes everything of the batch with one sync, and returns the number of appended records a topic. Readers see it
    /// only after that.
    fn write_durably(&self, batch: &mut SyncBatch) -> fjall::Result<BTreeMap<Topic, u64>> {
        let state = &self.state;
        // If the data folder was removed, fjall would make the partitions' folders again in its place.
        state.is_in_place()?;
        // `SyncData` suffices: fdatasync also writes the metadata that reading back needs.
        let mut writes = state.db.batch().durability(Some(PersistMode::SyncData));
        let mut advances: BTreeMap<Partition, PartitionAdvance> = BTreeMap::new();
        let mut topics: BTreeMap<Topic, u64> = BTreeMap::new();
        let now = Millis::now();

        for append in &mut batch.appends {
            for (partition, mut record) in append.records.drain(..) {
                let Some(stored) = state.stored(partition) else { continue };
                let Some(keyspace) = state.writable(partition)? else { continue };
                let advance = advances.entry(partition).or_insert_with(|| PartitionAdvance {
                    end: stored.end(),
                    // A clock that was set back must not make a later record older.
                    last_ms: stored.segments.lock().last_ms().max(now.0),
                    bytes: 0,
                });
                format::stamp(&mut record, Millis(advance.last_ms));
                advance.bytes += record.len() as u64;
                writes.insert(keyspace, format::offset_key(advance.end), record);
                advance.end += 1;
                *topics.entry(partition.topic).or_default() += 1;
            }
        }

        let mut closed: Vec<(Partition, Segment)> = Vec::new();
        let mut segments = Vec::with_capacity(advances.len());
        for (partition, advance) in &advances {
            let Some(stored) = state.stored(*partition) else { continue };
            let mut after = stored.segments.lock().clone();
            closed.extend(
                after.append(advance.end, advance.bytes, advance.last_ms).map(|own| (*partition, own)),
            );
            segments.push((stored, advance.end, after));
        }
        for (partition, segment) in closed {
            let bytes = i64::try_from(segment.bytes).unwrap_or(i64::MAX);
            let key = MetaKey::Segment.key(partition, segment.end);
            writes.insert(&state.meta, key, format::pair(bytes, segment.last_ms));
        }

        // One value a key: two writes of one key in one batch have no order.
        let mut positions: BTreeMap<(&'static str, Partition), NextOffset> = BTreeMap::new();
        for commit in &batch.commits {
            for (partition, next) in &commit.upto {
                let position = positions.entry((commit.group, *partition)).or_default();
                *position = (*position).max(*next);
            }
        }
        for ((name, partition), next) in &positions {
            writes.insert(&state.meta, format::group_key(name, *partition), format::offset_key(next.0));
        }

        let syncs = state.syncs() + 1;
        writes.insert(&state.meta, format::SYNCS_KEY, syncs.to_be_bytes());

        writes.commit()?;
        state.is_in_place()?;
        state.set_syncs(syncs);
        // Behind the sync and before the answers: whatever is acknowledged is missed if it is missing.
        let ends = advances.iter().map(|(partition, advance)| (*partition, advance.end));
        durability::mark_synced(state.mark.as_ref(), syncs, ends);

        for (stored, end, after) in segments {
            *stored.segments.lock() = after;
            stored.set_end(end);
        }
        let mut groups = state.groups.write();
        for ((name, partition), next) in positions {
            groups.entry(name.to_owned()).or_default().insert(partition, next);
        }
        Ok(topics)
    }

    fn register(&self, name: &'static str, partitions: &[Partition]) -> RegisterResult {
        let state = &self.state;
        let known = state.groups.read().get(name).cloned().unwrap_or_default();
        let new: Vec<(Partition, NextOffset)> = partitions
            .iter()
            .filter(|partition| !known.contains_key(partition))
            .filter_map(|partition| Some((*partition, NextOffset(state.stored(*partition)?.start()))))
            .collect();
        if !new.is_empty() {
            let mut batch = state.db.batch().durability(Some(PersistMode::SyncData));
            for (partition, next) in &new {
                batch.insert(&state.meta, format::group_key(name, *partition), format::offset_key(next.0));
            }
            batch.commit().map_err(|error| format!("the data folder: {error}"))?;
        }
        let mut groups = state.groups.write();
        let own = groups.entry(name.to_owned()).or_default();
        own.extend(new);
        Ok(partitions.iter().filter_map(|partition| Some((*partition, *own.get(partition)?))).collect())
    }

    fn trim(&self, trim: &Trim) -> Result<NextOffset, String> {
        let state = &self.state;
        let partition = trim.partition;
        let stored = state.stored(partition).ok_or_else(|| format!("{partition} does not exist"))?;
        let start = stored.start();
        // Read again here, after every registration and commit that was requested before.
        let barrier = if trim.despite_groups { i64::MAX } else { state.retention_barrier(partition) };
        let before = trim.before.0.min(barrier).min(stored.end()).min(start.saturating_add(TRIM_RECORDS));
        let Some(keyspace) = stored.keyspace().filter(|_| before > start) else {
            return Ok(NextOffset(start));
        };

        let mut after = stored.segments.lock().clone();
        let removed = after.trim(before);
        let mut batch = state.db.batch();
        for offset in start..before {
            batch.remove(keyspace, format::offset_key(offset));
        }
        for segment in removed {
            batch.remove(&state.meta, MetaKey::Segment.key(partition, segment.end));
        }
        batch.insert(&state.meta, MetaKey::Start.key(partition, 0), format::pair(before, after.last_ms()));
        // A reader that comes too late must find a gap, not silence: the start moves first.
        stored.set_start(before);
        if let Err(error) = batch.commit() {
            stored.set_start(start);
            return Err(format!("the data folder: {error}"));
        }
        *stored.segments.lock() = after;
        state.notify_subscribers(&BTreeSet::from([partition.topic]));
        Ok(NextOffset(before))
    }
}
