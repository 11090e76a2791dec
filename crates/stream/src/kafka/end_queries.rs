//! Queries for the ends of a consumer's partitions, executed on a separate thread. The engine collects the answers.
//!
//! A query waits for an answer of each broker, which would delay polling on the thread of the driver.

use std::{
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use parking_lot::{Condvar, Mutex};
use rdkafka::{
    Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer},
    error::KafkaResult,
};
use tidegate_schemas::ids::Millis;

use super::{
    client_stats,
    rebalance_events::EventQueue,
    topic_names::{TopicNames, index_of},
};
use crate::{
    topics::{NextOffset, Partition},
    wakeup::Wakeup,
};

/// Longest wait for the answers of all brokers. An unanswered query is repeated at the next request.
const QUERY_TIMEOUT: Duration = Duration::from_secs(2);

/// Ends of partitions as reported by the brokers after `asked_at`, the local time before the query.
pub(super) struct EndAnswer {
    pub(super) asked_at: Millis,
    pub(super) ends: Vec<(Partition, NextOffset)>,
}

#[derive(Default)]
struct State {
    /// Partitions to query. A later request replaces an earlier one.
    requested_partitions: Option<Vec<Partition>>,
    answer: Option<EndAnswer>,
    is_closed: bool,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    wakeup: Arc<Wakeup>,
}

pub(super) struct EndQueries {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

impl EndQueries {
    pub(super) fn start(
        consumer: Arc<BaseConsumer<EventQueue>>,
        names: Arc<TopicNames>,
        wakeup: Arc<Wakeup>,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared { state: Mutex::default(), changed: Condvar::new(), wakeup });
        let thread_shared = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("query-ends".to_owned())
            .spawn(move || thread_shared.run(&consumer, &names))?;
        Ok(Self { shared, thread })
    }

    pub(super) fn request(&self, partitions: Vec<Partition>) {
        self.shared.state.lock().requested_partitions = Some(partitions);
        self.shared.changed.notify_one();
    }

    pub(super) fn take_answer(&self) -> Option<EndAnswer> {
        self.shared.state.lock().answer.take()
    }

    /// Waits for the query in flight.
    pub(super) fn join(self) {
        self.shared.state.lock().is_closed = true;
        self.shared.changed.notify_one();
        if self.thread.join().is_err() {
            tracing::error!("the thread of the end queries panicked");
        }
    }
}

impl Shared {
    fn run(&self, consumer: &BaseConsumer<EventQueue>, names: &TopicNames) {
        while let Some(partitions) = self.wait_for_request() {
            let asked_at = Millis::now();
            match query_ends(consumer, names, &partitions) {
                Ok(ends) => {
                    self.state.lock().answer = Some(EndAnswer { asked_at, ends });
                    self.wakeup.notify();
                }
                Err(error) => tracing::debug!(
                    code = client_stats::code(&error),
                    "the ends of partitions cannot be read: {error}"
                ),
            }
        }
    }

    fn wait_for_request(&self) -> Option<Vec<Partition>> {
        let mut state = self.state.lock();
        loop {
            if state.is_closed {
                return None;
            }
            if let Some(partitions) = state.requested_partitions.take() {
                return Some(partitions);
            }
            self.changed.wait(&mut state);
        }
    }
}

/// Queries all ends with one request a broker. Leaves out partitions without an answer.
fn query_ends(
    consumer: &BaseConsumer<EventQueue>,
    names: &TopicNames,
    partitions: &[Partition],
) -> KafkaResult<Vec<(Partition, NextOffset)>> {
    let mut list = TopicPartitionList::with_capacity(partitions.len());
    for partition in partitions {
        // As a timestamp, the number of `End` stands for the latest offset.
        list.add_partition_offset(names.name(partition.topic), index_of(*partition), Offset::End)?;
    }
    let answers = consumer.offsets_for_times(list, QUERY_TIMEOUT)?;
    let ends =
        answers.elements().into_iter().filter_map(|element| match (element.error(), element.offset()) {
            (Ok(()), Offset::Offset(end)) => {
                Some((names.partition(element.topic(), element.partition())?, NextOffset(end)))
            }
            _ => None,
        });
    Ok(ends.collect())
}
