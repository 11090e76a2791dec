//! Commits of one consumer, executed on a separate thread. The engine collects their outcomes.
//!
//! librdkafka reports the outcome of an asynchronous commit only to a callback in C. Commits are therefore synchronous, on a
//! thread where they do not delay polling.

use std::{
    collections::BTreeMap,
    sync::Arc,
    thread::{self, JoinHandle},
};

use parking_lot::{Condvar, Mutex};
use rdkafka::{
    Offset, TopicPartitionList,
    consumer::{BaseConsumer, CommitMode, Consumer},
    error::{KafkaError, KafkaResult},
};

use super::{
    rebalance_events::EventQueue,
    topic_names::{TopicNames, index_of},
};
use crate::{
    topics::{NextOffset, Partition, Topic},
    wakeup::Wakeup,
};

/// Outcome of the commit of some partitions.
pub(super) struct CommitOutcome {
    pub(super) upto: Vec<(Partition, NextOffset)>,
    pub(super) result: KafkaResult<()>,
}

#[derive(Default)]
struct State {
    /// Offsets requested during a commit in flight. Later requests replace earlier ones.
    requested_offsets: BTreeMap<Partition, NextOffset>,
    outcomes: Vec<CommitOutcome>,
    is_closed: bool,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    wakeup: Arc<Wakeup>,
}

pub(super) struct Committer {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

impl Committer {
    pub(super) fn start(
        consumer: Arc<BaseConsumer<EventQueue>>,
        names: Arc<TopicNames>,
        wakeup: Arc<Wakeup>,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared { state: Mutex::default(), changed: Condvar::new(), wakeup });
        let thread_shared = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("commit".to_owned())
            .spawn(move || thread_shared.run(&consumer, &names))?;
        Ok(Self { shared, thread })
    }

    pub(super) fn request(&self, upto: impl IntoIterator<Item = (Partition, NextOffset)>) {
        self.shared.state.lock().requested_offsets.extend(upto);
        self.shared.changed.notify_one();
    }

    /// Drops the request for a released partition. A commit after the release could overwrite that of the new owner.
    pub(super) fn forget(&self, partition: Partition) {
        self.shared.state.lock().requested_offsets.remove(&partition);
    }

    pub(super) fn take_outcomes(&self) -> Vec<CommitOutcome> {
        std::mem::take(&mut self.shared.state.lock().outcomes)
    }

    /// Waits for the commit in flight, without a limit while no broker answers.
    pub(super) fn join(self) {
        self.shared.state.lock().is_closed = true;
        self.shared.changed.notify_one();
        if self.thread.join().is_err() {
            tracing::error!("the commit thread panicked");
        }
    }
}

impl Shared {
    fn run(&self, consumer: &BaseConsumer<EventQueue>, names: &TopicNames) {
        while let Some(offsets) = self.wait_for_request() {
            // One request a topic: librdkafka reports a failure only if every partition of a request failed, and a failure
            // such as a missing right concerns all partitions of a topic.
            let mut topics: BTreeMap<Topic, Vec<(Partition, NextOffset)>> = BTreeMap::new();
            for (partition, next) in offsets {
                topics.entry(partition.topic).or_default().push((partition, next));
            }
            for (topic, upto) in topics {
                let result = commit(consumer, names.name(topic), &upto);
                self.state.lock().outcomes.push(CommitOutcome { upto, result });
            }
            // The driver collects outcomes only when it is awake.
            self.wakeup.notify();
        }
    }

    fn wait_for_request(&self) -> Option<BTreeMap<Partition, NextOffset>> {
        let mut state = self.state.lock();
        while state.requested_offsets.is_empty() {
            // Checked only without requests, so that earlier requests are still committed.
            if state.is_closed {
                return None;
            }
            self.changed.wait(&mut state);
        }
        Some(std::mem::take(&mut state.requested_offsets))
    }
}

fn commit(
    consumer: &BaseConsumer<EventQueue>,
    topic: &str,
    upto: &[(Partition, NextOffset)],
) -> Result<(), KafkaError> {
    let mut list = TopicPartitionList::with_capacity(upto.len());
    for (partition, next) in upto {
        list.add_partition_offset(topic, index_of(*partition), Offset::Offset(next.0))?;
    }
    consumer.commit(&list, CommitMode::Sync)
}
