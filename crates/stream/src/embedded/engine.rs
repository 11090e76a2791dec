//! Reads the embedded log for one driver: every partition of its topics, from where the group stands.
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
    state::{ReadError, State},
    writer::{Commit, Job},
};
use crate::{
    budget::Charge,
    engine::{self, Event},
    record::Fetched,
    signal::Signal,
    topics::{Group, NextOffset, Partition, Topic},
};

/// What one poll reads at most, so that records are handed out while more are read.
const POLL_RECORDS: usize = 4_096;
const POLL_BYTES: usize = 4 << 20;
/// What one partition gives before it is another's turn.
const TURN_RECORDS: usize = 512;

struct Reader {
    partition: Partition,
    next: i64,
    paused: bool,
    /// Retention has eaten its position: it is not read.
    stopped: bool,
    told_end: i64,
}

pub(super) struct Engine {
    state: Arc<State>,
    jobs: Sender<Job>,
    group: Group,
    signal: Arc<Signal>,
    readers: Vec<Reader>,
    /// Whose turn is first in the next poll.
    turn: usize,
    outbox: Arc<Mutex<Vec<Event>>>,
    unreachable: bool,
}

impl Engine {
    /// Registers the group, so that retention waits for it from here on.
    pub(super) fn open(
        state: Arc<State>,
        jobs: Sender<Job>,
        group: Group,
        topics: &[Topic],
        signal: Arc<Signal>,
    ) -> Result<Self, String> {
        let topics: BTreeSet<Topic> = topics.iter().copied().collect();
        if topics.is_empty() {
            return Err("it names no topic".to_owned());
        }
        if !state.consumed.lock().insert(group.0) {
            return Err(format!("group {} has a consumer in this process already", group.0));
        }
        let topics: Vec<Topic> = topics.into_iter().collect();
        state.watch(&topics, Arc::clone(&signal));
        let outbox = Arc::default();
        let mut engine =
            Self { state, jobs, group, signal, readers: Vec::new(), turn: 0, outbox, unreachable: false };

        let count = engine.state.partitions;
        let partitions = topics
            .iter()
            .flat_map(|topic| (0..count).map(move |index| Partition::new(*topic, index)))
            .collect();
        let (done, registered) = sync_channel(1);
        let gone = "the log is shutting down";
        engine.jobs.send(Job::Register { group: group.0, partitions, done }).map_err(|_| gone.to_owned())?;
        for (partition, next) in registered.recv().map_err(|_| gone.to_owned())?? {
            let end = engine.state.lane(partition).map_or(next, |lane| NextOffset(lane.end()));
            engine.outbox.lock().push(Event::Assigned { partition, next, end });
            engine.readers.push(Reader {
                partition,
                next: next.0,
                paused: false,
                stopped: false,
                told_end: -1,
            });
        }
        Ok(engine)
    }

    /// What there is now, without waiting.
    fn look(&mut self, room: Charge, events: &mut Vec<Event>) {
        events.append(&mut self.outbox.lock());
        self.watch_marks(events);
        match self.read(room) {
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

    /// Ends that moved, and starts that moved past a reader.
    fn watch_marks(&mut self, events: &mut Vec<Event>) {
        for reader in &mut self.readers {
            let Some(lane) = self.state.lane(reader.partition) else { continue };
            let (start, end) = (lane.start(), lane.end());
            if end != reader.told_end {
                reader.told_end = end;
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

    fn read(&mut self, room: Charge) -> Result<Vec<Fetched>, ReadError> {
        let most_records = room.records.min(POLL_RECORDS);
        let most_bytes = room.bytes.min(POLL_BYTES);
        let mut records = Vec::new();
        let mut bytes = 0;
        let count = self.readers.len();
        for at in 0..count {
            let left = most_records - records.len();
            if left == 0 || (bytes >= most_bytes && !records.is_empty()) {
                break;
            }
            let index = (self.turn + at) % count;
            let reader = &mut self.readers[index];
            if reader.paused || reader.stopped {
                continue;
            }
            let Some(lane) = self.state.lane(reader.partition) else { continue };
            // The end first: a start that moves meanwhile is seen by the check below.
            let end = lane.end();
            let before = records.len();
            bytes += self.state.read(
                reader.partition,
                reader.next,
                end,
                left.min(TURN_RECORDS),
                most_bytes.saturating_sub(bytes),
                &mut records,
            )?;
            if lane.start() > reader.next {
                // Removed while it was read: what was read may have holes. The next look names the gap.
                records.truncate(before);
            } else if let Some(last) = records.get(before..).and_then(<[Fetched]>::last) {
                reader.next = last.at.offset.next().0;
            }
        }
        if count > 0 {
            self.turn = (self.turn + 1) % count;
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

impl engine::Engine for Engine {
    const DEAF_FOR: Duration = Duration::from_secs(60);

    fn poll(&mut self, wait: Duration, room: Charge) -> Vec<Event> {
        let mut events = Vec::new();
        self.look(room, &mut events);
        if events.is_empty() || self.unreachable {
            self.signal.wait(wait);
            self.look(room, &mut events);
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
        let outbox = Arc::clone(&self.outbox);
        let signal = Arc::clone(&self.signal);
        let asked: Vec<Partition> = upto.iter().map(|(partition, _)| *partition).collect();
        let done = move |result: Result<&[(Partition, NextOffset)], String>| {
            let mut outbox = outbox.lock();
            match result {
                Ok(upto) => outbox.extend(
                    upto.iter()
                        .map(|(partition, next)| Event::Committed { partition: *partition, next: *next }),
                ),
                Err(detail) => {
                    outbox.push(Event::CommitFailed { partitions: asked, tag: "unavailable", detail });
                }
            }
            drop(outbox);
            signal.ring();
        };
        let commit = Commit { group: self.group.0, upto: upto.to_vec(), done: Box::new(done) };
        if let Err(unsent) = self.jobs.send(Job::Commit(commit)) {
            let Job::Commit(commit) = unsent.0 else { return };
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

impl Drop for Engine {
    fn drop(&mut self) {
        self.state.unwatch(&self.signal);
        self.state.consumed.lock().remove(self.group.0);
    }
}
