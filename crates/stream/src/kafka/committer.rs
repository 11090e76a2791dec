//! Commits of one consumer, made on a thread of its own, whose outcomes the engine collects.
//!
//! librdkafka drops the outcome of an asynchronous commit unless it has a callback in C, so commits are synchronous and
//! run on a thread where they hold up neither polling nor anything else.

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
    /// Requested while another commit is in flight: later ones replace earlier ones.
    requested: BTreeMap<Partition, NextOffset>,
    outcomes: Vec<CommitOutcome>,
    closed: bool,
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
        let own = Arc::clone(&shared);
        let thread =
            thread::Builder::new().name("commit".to_owned()).spawn(move || own.run(&consumer, &names))?;
        Ok(Self { shared, thread })
    }

    pub(super) fn request(&self, upto: impl IntoIterator<Item = (Partition, NextOffset)>) {
        self.shared.state.lock().requested.extend(upto);
        self.shared.changed.notify_one();
    }

    /// Drops the request for a partition that is not ours any more: if it is not sent yet, it must not be.
    pub(super) fn forget(&self, partition: Partition) {
        self.shared.state.lock().requested.remove(&partition);
    }

    pub(super) fn take_outcomes(&self) -> Vec<CommitOutcome> {
        std::mem::take(&mut self.shared.state.lock().outcomes)
    }

    /// Waits for the commit in flight, without limit while no broker answers.
    pub(super) fn join(self) {
        self.shared.state.lock().closed = true;
        self.shared.changed.notify_one();
        if self.thread.join().is_err() {
            tracing::error!("the thread that commits panicked");
        }
    }
}

impl Shared {
    fn run(&self, consumer: &BaseConsumer<EventQueue>, names: &TopicNames) {
        while let Some(requested) = self.next() {
            // One request a topic: librdkafka reports a failure only if every partition of a request failed, and a failure
            // such as a missing right concerns all partitions of a topic.
            let mut topics: BTreeMap<Topic, Vec<(Partition, NextOffset)>> = BTreeMap::new();
            for (partition, next) in requested {
                topics.entry(partition.topic).or_default().push((partition, next));
            }
            for (topic, upto) in topics {
                let result = commit(consumer, names.name(topic), &upto);
                self.state.lock().outcomes.push(CommitOutcome { upto, result });
            }
            self.wakeup.notify();
        }
    }

    fn next(&self) -> Option<BTreeMap<Partition, NextOffset>> {
        let mut state = self.state.lock();
        while state.requested.is_empty() {
            if state.closed {
                return None;
            }
            self.changed.wait(&mut state);
        }
        Some(std::mem::take(&mut state.requested))
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
