//! The one thread that changes the log: it makes many appends durable with one sync, then answers them.
//!
//! It admits nothing and decides no retention; it also writes commits, so that their order to appends
//! and removals is the order of the journal.

use std::{
    collections::{BTreeMap, BTreeSet},
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
    format::{self, Mark},
    segments::Segment,
    state::State,
};
use crate::{
    error::AppendError,
    metrics,
    signal::Signal,
    topics::{NextOffset, Partition, Topic},
};

/// How many records one removal takes: it must not keep appends waiting.
pub(super) const TRIM_RECORDS: i64 = 8_192;

pub(super) enum Job {
    Append(Append),
    Commit(Commit),
    /// Makes a group known to retention, and tells where it goes on. `None` in the answer: damaged.
    Register {
        group: &'static str,
        partitions: Vec<Partition>,
        done: SyncSender<Registered>,
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
    pub(super) done: Answer,
}

/// Takes what is durable now, or why it is not.
type Answer = Box<dyn FnOnce(Result<&[(Partition, NextOffset)], String>) + Send>;

pub(super) type Registered = Result<Vec<(Partition, NextOffset)>, String>;

/// Removes records of a partition before an offset: one bite, to be asked again until `done` says so.
pub(super) struct Trim {
    pub(super) partition: Partition,
    pub(super) before: NextOffset,
    /// Also what a group still needs: the operator's will.
    pub(super) despite_groups: bool,
    /// Answers with the start of the log after it.
    pub(super) done: oneshot::Sender<Result<NextOffset, String>>,
}

pub(super) struct Writer {
    state: Arc<State>,
    jobs: Receiver<Job>,
    keeper: Arc<Signal>,
}

/// What one sync makes durable.
#[derive(Default)]
struct Group {
    appends: Vec<Append>,
    commits: Vec<Commit>,
    bytes: usize,
}

/// A partition while a group is written: published once it is durable.
struct Advance {
    end: i64,
    last_ms: i64,
    bytes: u64,
}

impl Writer {
    pub(super) const fn new(state: Arc<State>, jobs: Receiver<Job>, keeper: Arc<Signal>) -> Self {
        Self { state, jobs, keeper }
    }

    /// Runs until it is asked to close, or nobody is left to ask.
    pub(super) fn run(self) {
        while let Ok(first) = self.jobs.recv() {
            if let Some(closed) = self.work(first) {
                // Whoever waits for an answer gets none, and reports it as shutting down.
                while self.jobs.try_recv().is_ok() {}
                let _nobody_waits = closed.send(());
                return;
            }
        }
    }

    /// Gathers what is waiting behind the first job into one group. Some: asked to close.
    fn work(&self, first: Job) -> Option<oneshot::Sender<()>> {
        let mut group = Group::default();
        let mut next = Some(first);
        while let Some(job) = next.take() {
            match job {
                Job::Append(append) => {
                    group.bytes += append.bytes;
                    group.appends.push(append);
                }
                Job::Commit(commit) => group.commits.push(commit),
                Job::Register { group: name, partitions, done } => {
                    self.write(std::mem::take(&mut group));
                    let _gone = done.send(self.register(name, &partitions));
                }
                Job::Trim(trim) => {
                    self.write(std::mem::take(&mut group));
                    let answer = self.trim(&trim);
                    let _gone = trim.done.send(answer);
                }
                Job::Close(done) => {
                    self.write(group);
                    return Some(done);
                }
            }
            if group.bytes < self.state.settings.group_commit_bytes {
                next = self.jobs.try_recv().ok();
            }
        }
        self.write(group);
        None
    }

    fn write(&self, mut group: Group) {
        if group.appends.is_empty() && group.commits.is_empty() {
            return;
        }
        let written = self.write_durably(&mut group);
        self.state.queued.fetch_sub(group.bytes, Ordering::AcqRel);
        match written {
            Ok(topics) => {
                self.state.health.recover("storage");
                // Counted before the answers, so that whoever was answered finds it counted.
                for (topic, records) in &topics {
                    metrics::appended(*topic).increment(*records);
                }
                self.state.ring(&topics.keys().copied().collect());
                if self.state.room.spend(group.bytes) {
                    self.keeper.ring();
                }
                for append in group.appends {
                    let _gone = append.done.send(Ok(()));
                }
                for commit in group.commits {
                    (commit.done)(Ok(&commit.upto));
                }
            }
            Err(error) => {
                let detail = format!("the data folder: {error}");
                if self.state.health.complain("storage", detail.clone()) {
                    tracing::error!(%error, "the log cannot write");
                }
                for append in group.appends {
                    let _gone = append.done.send(Err(AppendError::Unavailable { detail: detail.clone() }));
                }
                for commit in group.commits {
                    (commit.done)(Err(detail.clone()));
                }
            }
        }
    }

    /// Everything of the group in one batch and one sync. Readers see it only after that.
    fn write_durably(&self, group: &mut Group) -> fjall::Result<BTreeMap<Topic, u64>> {
        let state = &self.state;
        // Or the partitions' folders would be made again in its place.
        state.is_in_place()?;
        // `SyncData` suffices: fdatasync also writes the metadata that reading back needs.
        let mut batch = state.db.batch().durability(Some(PersistMode::SyncData));
        let mut advances: BTreeMap<Partition, Advance> = BTreeMap::new();
        let mut topics: BTreeMap<Topic, u64> = BTreeMap::new();
        let now = Millis::now();

        for append in &mut group.appends {
            for (partition, mut stored) in append.records.drain(..) {
                let Some(lane) = state.lane(partition) else { continue };
                let Some(keyspace) = state.writable(partition)? else { continue };
                let advance = advances.entry(partition).or_insert_with(|| Advance {
                    end: lane.end(),
                    // A clock that was set back must not make a later record older.
                    last_ms: lane.segments.lock().last_ms().max(now.0),
                    bytes: 0,
                });
                format::stamp(&mut stored, Millis(advance.last_ms));
                advance.bytes += stored.len() as u64;
                batch.insert(keyspace, format::offset_key(advance.end), stored);
                advance.end += 1;
                *topics.entry(partition.topic).or_default() += 1;
            }
        }

        let mut closed: Vec<(Partition, Segment)> = Vec::new();
        let mut segments = Vec::with_capacity(advances.len());
        for (partition, advance) in &advances {
            let Some(lane) = state.lane(*partition) else { continue };
            let mut after = lane.segments.lock().clone();
            closed.extend(
                after.append(advance.end, advance.bytes, advance.last_ms).map(|own| (*partition, own)),
            );
            segments.push((lane, advance.end, after));
        }
        for (partition, segment) in closed {
            let bytes = i64::try_from(segment.bytes).unwrap_or(i64::MAX);
            let key = Mark::Segment.key(partition, segment.end);
            batch.insert(&state.meta, key, format::pair(bytes, segment.last_ms));
        }

        // One value a key: two writes of one key in one batch have no order.
        let mut positions: BTreeMap<(&'static str, Partition), NextOffset> = BTreeMap::new();
        for commit in &group.commits {
            for (partition, next) in &commit.upto {
                let position = positions.entry((commit.group, *partition)).or_default();
                *position = (*position).max(*next);
            }
        }
        for ((name, partition), next) in &positions {
            batch.insert(&state.meta, format::group_key(name, *partition), format::offset_key(next.0));
        }

        batch.commit()?;
        state.is_in_place()?;

        for (lane, end, after) in segments {
            *lane.segments.lock() = after;
            lane.set_end(end);
        }
        let mut groups = state.groups.write();
        for ((name, partition), next) in positions {
            groups.entry(name.to_owned()).or_default().insert(partition, next);
        }
        Ok(topics)
    }

    fn register(&self, name: &'static str, partitions: &[Partition]) -> Registered {
        let state = &self.state;
        let known = state.groups.read().get(name).cloned().unwrap_or_default();
        let new: Vec<(Partition, NextOffset)> = partitions
            .iter()
            .filter(|partition| !known.contains_key(partition))
            .filter_map(|partition| Some((*partition, NextOffset(state.lane(*partition)?.start()))))
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
        let lane = state.lane(partition).ok_or_else(|| format!("{partition} does not exist"))?;
        let start = lane.start();
        // Looked at again here, after every registration and commit that came before.
        let barrier = if trim.despite_groups { i64::MAX } else { state.barrier(partition) };
        let before = trim.before.0.min(barrier).min(lane.end()).min(start.saturating_add(TRIM_RECORDS));
        let Some(keyspace) = lane.keyspace().filter(|_| before > start) else {
            return Ok(NextOffset(start));
        };

        let mut after = lane.segments.lock().clone();
        let gone = after.trim(before);
        let mut batch = state.db.batch();
        for offset in start..before {
            batch.remove(keyspace, format::offset_key(offset));
        }
        for segment in gone {
            batch.remove(&state.meta, Mark::Segment.key(partition, segment.end));
        }
        batch.insert(&state.meta, Mark::Start.key(partition, 0), format::pair(before, after.last_ms()));
        // A reader that comes too late must find a gap, not silence: the start moves first.
        lane.set_start(before);
        if let Err(error) = batch.commit() {
            lane.set_start(start);
            return Err(format!("the data folder: {error}"));
        }
        *lane.segments.lock() = after;
        state.ring(&BTreeSet::from([partition.topic]));
        Ok(NextOffset(before))
    }
}
