//! Engine of the embedded log: reads every partition of a consumer's topics, from the group's position on.
//!
//! It never rebalances: all partitions are assigned at the first poll and stay until they are released.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        mpsc::{Sender, sync_channel},
    },
    time::Duration,
};

use parking_lot::Mutex;

use super::{
    state::State,
    stored_partition::ReadError,
    writer::{Commit, WriteRequest},
};
use crate::{
    consumer::{
        budget::Amount,
        engine::{Engine, Event},
    },
    record::FetchedRecord,
    topics::{Group, NextOffset, Partition, Topic},
    wakeup::Wakeup,
};

/// Largest amount that one poll reads, so that records are handed out while more are read.
const POLL_RECORDS: usize = 4_096;
const POLL_BYTES: usize = 4 << 20;
/// Records that one poll reads of a partition before it goes on to the next.
const PARTITION_RECORDS: usize = 512;

struct PartitionReader {
    partition: Partition,
    next: i64,
    paused: bool,
    /// True after retention has passed its position: it is not read.
    stopped: bool,
    reported_end: i64,
}

pub(super) struct EmbeddedEngine {
    state: Arc<State>,
    requests: Sender<WriteRequest>,
    group: Group,
    wakeup: Arc<Wakeup>,
    readers: Vec<PartitionReader>,
    /// Index of the reader that the next poll begins with, so that no partition starves.
    next_reader: usize,
    events: Arc<Mutex<Vec<Event>>>,
    unreachable: bool,
}

impl EmbeddedEngine {
    /// Registers the group, so that retention waits for it from here on.
    pub(super) fn open(
        state: Arc<State>,
        requests: Sender<WriteRequest>,
        group: Group,
        topics: &[Topic],
        wakeup: Arc<Wakeup>,
    ) -> Result<Self, String> {
        let topics: BTreeSet<Topic> = topics.iter().copied().collect();
        if topics.is_empty() {
            return Err("it names no topic".to_owned());
        }
        if !state.consumed.lock().insert(group.0) {
            return Err(format!("group {} has a consumer in this process already", group.0));
        }
        let topics: Vec<Topic> = topics.into_iter().collect();
        state.subscribe(&topics, Arc::clone(&wakeup));
        let mut engine = Self {
            state,
            requests,
            group,
            wakeup,
            readers: Vec::new(),
            next_reader: 0,
            events: Arc::default(),
            unreachable: false,
        };

        let count = engine.state.partition_count;
        let partitions = topics
            .iter()
            .flat_map(|topic| (0..count).map(move |index| Partition::new(*topic, index)))
            .collect();
        let (done, registered) = sync_channel(1);
        let gone = "the log is shutting down";
        engine
            .requests
            .send(WriteRequest::Register { group: group.0, partitions, done })
            .map_err(|_| gone.to_owned())?;
        for (partition, next) in registered.recv().map_err(|_| gone.to_owned())?? {
            let end = engine.state.stored(partition).map_or(next, |stored| NextOffset(stored.end()));
            engine.events.lock().push(Event::Assigned { partition, next, end });
            engine.readers.push(PartitionReader {
                partition,
                next: next.0,
                paused: false,
                stopped: false,
                reported_end: -1,
            });
        }
        Ok(engine)
    }

    /// Collects what there is now, without waiting.
    fn collect(&mut self, available: Amount, events: &mut Vec<Event>) {
        events.append(&mut self.events.lock());
        self.check_bounds(events);
        match self.read(available) {
            Ok(records) => {
                if std::mem::take(&mut self.unreachable) {
                    events.push(Event::Reachable);
                }
                if !records.is_empty() {
                    events.push(Event::Fetched(records));
                }
            }
            Err(ReadError::Storage(error)) => {
                self.unreachable = true;
                events.push(Event::Unreachable { detail: ReadError::Storage(error).to_string() });
            }
            Err(damaged @ ReadError::Damaged { .. }) => {
                events.push(Event::Failed { detail: damaged.to_string() });
            }
        }
    }

    /// Reports ends that moved, and starts that moved past a reader.
    fn check_bounds(&mut self, events: &mut Vec<Event>) {
        for reader in &mut self.readers {
            let Some(stored) = self.state.stored(reader.partition) else { continue };
            let (start, end) = (stored.start(), stored.end());
            if end != reader.reported_end {
                reader.reported_end = end;
                events.push(Event::End { partition: reader.partition, end: NextOffset(end) });
            }
            if reader.next < start && !reader.stopped {
                reader.stopped = true;
                events.push(Event::Gap {
                    partition: reader.partition,
                    committed: NextOffset(reader.next),
                    start: NextOffset(start),
                });
            }
        }
    }

    fn read(&mut self, available: Amount) -> Result<Vec<FetchedRecord>, ReadError> {
        let most_records = available.records.min(POLL_RECORDS);
        let most_bytes = available.bytes.min(POLL_BYTES);
        let mut records = Vec::new();
        let mut bytes = 0;
        let count = self.readers.len();
        for at in 0..count {
            let remaining = most_records - records.len();
            if remaining == 0 || (bytes >= most_bytes && !records.is_empty()) {
                break;
            }
            let index = (self.next_reader + at) % count;
            let reader = &mut self.readers[index];
            if reader.paused || reader.stopped {
                continue;
            }
            let Some(stored) = self.state.stored(reader.partition) else { continue };
            // The end first: a start that moves meanwhile is seen by the check below.
            let end = stored.end();
            let before = records.len();
            bytes += stored.read(
                reader.partition,
                reader.next,
                end,
                remaining.min(PARTITION_RECORDS),
                most_bytes.saturating_sub(bytes),
                &mut records,
            )?;
            if stored.start() > reader.next {
                // Removed while it was read: what was read may have holes. The next poll reports the gap.
                records.truncate(before);
            } else if let Some(last) = records.get(before..).and_then(<[FetchedRecord]>::last) {
                reader.next = last.at.offset.next().0;
            }
        }
        if count > 0 {
            self.next_reader = (self.next_reader + 1) % count;
        }
        Ok(records)
    }

    fn set_paused(&mut self, partitions: &[Partition], paused: bool) {
        for reader in &mut self.readers {
            if partitions.contains(&reader.partition) {
                reader.paused = paused;
            }
        }
    }
}

impl Engine for EmbeddedEngine {
    const DEAF_FOR: Duration = Duration::from_secs(60);

    fn poll(&mut self, wait: Duration, available: Amount) -> Vec<Event> {
        let mut events = Vec::new();
        self.collect(available, &mut events);
        if events.is_empty() || self.unreachable {
            self.wakeup.wait(wait);
            self.collect(available, &mut events);
        }
        events
    }

    fn pause(&mut self, partitions: &[Partition]) {
        self.set_paused(partitions, true);
    }

    fn resume(&mut self, partitions: &[Partition]) {
        self.set_paused(partitions, false);
    }

    fn commit(&mut self, upto: &[(Partition, NextOffset)]) {
        let events = Arc::clone(&self.events);
        let wakeup = Arc::clone(&self.wakeup);
        let requested: Vec<Partition> = upto.iter().map(|(partition, _)| *partition).collect();
        let done = move |result: Result<&[(Partition, NextOffset)], String>| {
            let mut events = events.lock();
            match result {
                Ok(upto) => events.extend(
                    upto.iter()
                        .map(|(partition, next)| Event::Committed { partition: *partition, next: *next }),
                ),
                Err(detail) => {
                    events.push(Event::CommitFailed { partitions: requested, tag: "unavailable", detail });
                }
            }
            drop(events);
            wakeup.notify();
        };
        let commit = Commit { group: self.group.0, upto: upto.to_vec(), done: Box::new(done) };
        if let Err(unsent) = self.requests.send(WriteRequest::Commit(commit)) {
            let WriteRequest::Commit(commit) = unsent.0 else { return };
            (commit.done)(Err("the log is shutting down".to_owned()));
        }
    }

    fn release(&mut self, partitions: &[Partition]) {
        self.readers.retain(|reader| !partitions.contains(&reader.partition));
    }

    fn close(&mut self) {
        self.readers.clear();
    }
}

impl Drop for EmbeddedEngine {
    fn drop(&mut self) {
        self.state.unsubscribe(&self.wakeup);
        self.state.consumed.lock().remove(self.group.0);
    }
}
