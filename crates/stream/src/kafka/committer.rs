//! Commits for one consumer on a thread of its own, and keeps the answers until the engine looks.
//!
//! librdkafka throws away what became of an asynchronous commit unless it has a callback in C, so commits are
//! synchronous, where they hold up neither polling nor anybody else. It decides nothing about what is committed.

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
    context::{Context, Names},
    index_of,
};
use crate::{
    signal::Signal,
    topics::{NextOffset, Partition, Topic},
};

/// What became of the commit of some partitions.
pub(super) struct Answer {
    pub(super) upto: Vec<(Partition, NextOffset)>,
    pub(super) result: KafkaResult<()>,
}

#[derive(Default)]
struct State {
    /// Asked for while another commit is under way: later ones replace earlier ones.
    asked: BTreeMap<Partition, NextOffset>,
    answers: Vec<Answer>,
    closed: bool,
}

struct Shared {
    state: Mutex<State>,
    wake: Condvar,
    signal: Arc<Signal>,
}

pub(super) struct Committer {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

impl Committer {
    pub(super) fn start(
        consumer: Arc<BaseConsumer<Context>>,
        names: Arc<Names>,
        signal: Arc<Signal>,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared { state: Mutex::default(), wake: Condvar::new(), signal });
        let own = Arc::clone(&shared);
        let thread =
            thread::Builder::new().name("commit".to_owned()).spawn(move || own.run(&consumer, &names))?;
        Ok(Self { shared, thread })
    }

    pub(super) fn ask(&self, upto: impl IntoIterator<Item = (Partition, NextOffset)>) {
        self.shared.state.lock().asked.extend(upto);
        self.shared.wake.notify_one();
    }

    /// What is not sent yet must not be: the partition is not ours any more.
    pub(super) fn forget(&self, partition: Partition) {
        self.shared.state.lock().asked.remove(&partition);
    }

    pub(super) fn answers(&self) -> Vec<Answer> {
        std::mem::take(&mut self.shared.state.lock().answers)
    }

    /// Waits for the commit under way, without limit while no broker answers.
    pub(super) fn end(self) {
        self.shared.state.lock().closed = true;
        self.shared.wake.notify_one();
        if self.thread.join().is_err() {
            tracing::error!("the thread that commits panicked");
        }
    }
}

impl Shared {
    fn run(&self, consumer: &BaseConsumer<Context>, names: &Names) {
        while let Some(asked) = self.next() {
            // One request a topic: librdkafka tells a failure only if it is that of every partition of a request, and
            // what fails for one partition of a topic, as rights do, fails for all.
            let mut topics: BTreeMap<Topic, Vec<(Partition, NextOffset)>> = BTreeMap::new();
            for (partition, next) in asked {
                topics.entry(partition.topic).or_default().push((partition, next));
            }
            for (topic, upto) in topics {
                let result = commit(consumer, names.kafkas(topic), &upto);
                self.state.lock().answers.push(Answer { upto, result });
            }
            self.signal.ring();
        }
    }

    fn next(&self) -> Option<BTreeMap<Partition, NextOffset>> {
        let mut state = self.state.lock();
        while state.asked.is_empty() {
            if state.closed {
                return None;
            }
            self.wake.wait(&mut state);
        }
        Some(std::mem::take(&mut state.asked))
    }
}

fn commit(
    consumer: &BaseConsumer<Context>,
    topic: &str,
    upto: &[(Partition, NextOffset)],
) -> Result<(), KafkaError> {
    let mut list = TopicPartitionList::with_capacity(upto.len());
    for (partition, next) in upto {
        list.add_partition_offset(topic, index_of(*partition), Offset::Offset(next.0))?;
    }
    consumer.commit(&list, CommitMode::Sync)
}
