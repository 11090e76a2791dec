//! Engine of the embedded log: reads every partition of a consumer's topics from the group's position.
//!
//! It never rebalances: all partitions are assigned at the first poll and stay until their release.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        mpsc::{Sender, sync_channel},
    },
    time::{Duration, Instant},
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

/// Largest amount of one poll, so that the driver can hand out records between polls.
const POLL_RECORDS: usize = 4_096;
const POLL_BYTES: usize = 4 << 20;
/// Interval between two reports of all ends with a time.
const END_SNAPSHOT_INTERVAL: Duration = Duration::from_secs(1);
/// Margin for a clock that is set back while the log runs, as a time service does in small steps.
const CLOCK_MARGIN: Duration = Duration::from_secs(1);
/// Records of one partition in a poll, before the next partition has its turn.
const PARTITION_RECORDS: usize = 512;

struct PartitionReader {
    partition: Partition,
    next: i64,
    is_paused: bool,
    /// True after retention passed the position. The partition is no longer read.
    is_stopped: bool,
    reported_end: i64,
}

pub(super) struct EmbeddedEngine {
    state: Arc<State>,
    requests: Sender<WriteRequest>,
    group: Group,
    wakeup: Arc<Wakeup>,
    readers: Vec<PartitionReader>,
    /// Index of the first reader of the next poll. It rotates, so that no partition starves.
    next_reader: usize,
    events: Arc<Mutex<Vec<Event>>>,
    is_unreachable: bool,
    next_snapshot_at: Instant,
}

impl EmbeddedEngine {
    /// Registers the group, so that retention keeps its records.
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
        // Two consumers of a group would process every record twice.
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
            is_unreachable: false,
            next_snapshot_at: Instant::now(),
        };

        let count = engine.state.partition_count;
        let partitions = topics
            .iter()
            .flat_map(|topic| (0..count).map(move |index| Partition::new(*topic, index)))
            .collect();
        let (done, registered) = sync_channel(1);
        let shutdown_error = "the log is shutting down";
        engine
            .requests
            .send(WriteRequest::Register { group: group.0, partitions, done })
            .map_err(|_| shutdown_error.to_owned())?;
        for (partition, next) in registered.recv().map_err(|_| shutdown_error.to_owned())?? {
            let end = engine.state.stored(partition).map_or(next, |stored| NextOffset(stored.end()));
            engine.events.lock().push(Event::Assigned { partition, next, end });
            engine.readers.push(PartitionReader {
                partition,
                next: next.0,
                is_paused: false,
                is_stopped: false,
                reported_end: -1,
            });
        }
        Ok(engine)
    }

    /// Collects the present events and records, without waiting.
    fn collect(&mut self, available: Amount, events: &mut Vec<Event>) {
        events.append(&mut self.events.lock());
        self.check_bounds(events);
        self.report_snapshot(events);
        match self.read(available) {
            Ok(records) => {
                if std::mem::take(&mut self.is_unreachable) {
                    events.push(Event::Reachable);
                }
                if !records.is_empty() {
                    events.push(Event::Fetched(records));
                }
            }
            Err(ReadError::Storage(error)) => {
                self.is_unreachable = true;
                events.push(Event::Unreachable { detail: ReadError::Storage(error).to_string() });
            }
            Err(damaged @ ReadError::Damaged { .. }) => {
                events.push(Event::Failed { detail: damaged.to_string() });
            }
        }
    }

    /// Reports changed ends, and starts that moved past a reader.
    fn check_bounds(&mut self, events: &mut Vec<Event>) {
        for reader in &mut self.readers {
            let Some(stored) = self.state.stored(reader.partition) else { continue };
            let (start, end) = (stored.start(), stored.end());
            // Reported only on a change, because every event costs the driver work.
            if end != reader.reported_end {
                reader.reported_end = end;
                events.push(Event::End { partition: reader.partition, end: NextOffset(end) });
            }
            if reader.next < start && !reader.is_stopped {
                reader.is_stopped = true;
                events.push(Event::Gap {
                    partition: reader.partition,
                    committed: NextOffset(reader.next),
                    start: NextOffset(start),
                });
            }
        }
    }

    /// Reports all ends with a time, once an interval.
    fn report_snapshot(&mut self, events: &mut Vec<Event>) {
        let current_time = Instant::now();
        if current_time < self.next_snapshot_at {
            return;
        }
        self.next_snapshot_at = current_time + END_SNAPSHOT_INTERVAL;
        // Before the ends: a batch that is published in between only raises them.
        let complete_until = self.state.append_time_floor().minus(CLOCK_MARGIN);
        let ends = self.readers.iter().filter_map(|reader| {
            Some((reader.partition, NextOffset(self.state.stored(reader.partition)?.end())))
        });
        events.push(Event::EndSnapshot { complete_until, ends: ends.collect() });
    }

    fn read(&mut self, available: Amount) -> Result<Vec<FetchedRecord>, ReadError> {
        let max_records = available.records.min(POLL_RECORDS);
        let max_bytes = available.bytes.min(POLL_BYTES);
        let mut records = Vec::new();
        let mut bytes = 0;
        let count = self.readers.len();
        for turn in 0..count {
            let remaining = max_records - records.len();
            // One record may exceed the limit, or it would never be read.
            if remaining == 0 || (bytes >= max_bytes && !records.is_empty()) {
                break;
            }
            let index = (self.next_reader + turn) % count;
            let reader = &mut self.readers[index];
            if reader.is_paused || reader.is_stopped {
                continue;
            }
            let Some(stored) = self.state.stored(reader.partition) else { continue };
            // Load the end first: the check below notices a start that moves during the read.
            let end = stored.end();
            let record_count = records.len();
            bytes += stored.read(
                reader.partition,
                reader.next,
                end,
                remaining.min(PARTITION_RECORDS),
                max_bytes.saturating_sub(bytes),
                &mut records,
            )?;
            if stored.start() > reader.next {
                // Records were removed during the read, so it may have holes. The next poll reports the gap.
                records.truncate(record_count);
            } else if let Some(last) = records.get(record_count..).and_then(<[FetchedRecord]>::last) {
                reader.next = last.at.offset.next().0;
            }
        }
        if count > 0 {
            // Rotates, so that a busy partition does not starve the others.
            self.next_reader = (self.next_reader + 1) % count;
        }
        Ok(records)
    }

    fn set_paused(&mut self, partitions: &[Partition], is_paused: bool) {
        for reader in &mut self.readers {
            if partitions.contains(&reader.partition) {
                reader.is_paused = is_paused;
            }
        }
    }
}

impl Engine for EmbeddedEngine {
    // `poll` sleeps on the driver's wakeup, so it misses no settlement.
    const DEAF_FOR: Duration = Duration::from_secs(60);

    // The writer never lowers the append time within a partition.
    const APPEND_TIME_STEP: Duration = Duration::ZERO;

    fn poll(&mut self, wait: Duration, available: Amount) -> Vec<Event> {
        let mut events = Vec::new();
        self.collect(available, &mut events);
        // An unreachable disk must not be polled in a tight loop.
        if events.is_empty() || self.is_unreachable {
            self.wakeup.wait_up_to(wait);
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
        let report_result = move |result: Result<&[(Partition, NextOffset)], String>| {
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
        let commit = Commit { group: self.group.0, upto: upto.to_vec(), done: Box::new(report_result) };
        if let Err(unsent) = self.requests.send(WriteRequest::Commit(commit)) {
            // The writer has stopped, and the driver must not wait for an answer.
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
