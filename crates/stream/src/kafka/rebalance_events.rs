//! Queues the events that librdkafka reports during a poll: rebalances, ends of partitions, outages.
//!
//! The engine takes them from the queue, and the group waits for its answer to a rebalance. While the consumer closes, no engine
//! takes events any more, so rebalances are answered at once.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use rdkafka::{
    ClientContext, Statistics, TopicPartitionList,
    config::RDKafkaLogLevel,
    consumer::{BaseConsumer, Consumer, ConsumerContext, RebalanceProtocol},
    error::{KafkaError, KafkaResult, RDKafkaErrorCode},
    types::RDKafkaRespErr,
};

use super::{
    client_stats::{self, BrokerHealth},
    topic_names::TopicNames,
};
use crate::topics::{NextOffset, Partition};

const CLIENT: &str = "consumer";

/// Event of a poll.
pub(super) enum ConsumerEvent {
    Assign(TopicPartitionList),
    Revoke { list: TopicPartitionList, lost: bool },
    Ends(Vec<(Partition, NextOffset)>),
    Brokers { up: bool },
}

pub(super) struct EventQueue {
    names: Arc<TopicNames>,
    health: Arc<BrokerHealth>,
    events: Mutex<VecDeque<ConsumerEvent>>,
    /// Number of callbacks made by librdkafka. A poll without a record may have made a callback, and then more records may be
    /// queued behind it.
    callbacks: AtomicU64,
    closing: AtomicBool,
}

impl EventQueue {
    pub(super) fn new(names: Arc<TopicNames>, health: Arc<BrokerHealth>) -> Self {
        Self {
            names,
            health,
            events: Mutex::default(),
            callbacks: AtomicU64::new(0),
            closing: AtomicBool::new(false),
        }
    }

    pub(super) fn callbacks(&self) -> u64 {
        self.callbacks.load(Ordering::Relaxed)
    }

    pub(super) fn has_events(&self) -> bool {
        !self.events.lock().is_empty()
    }

    pub(super) fn take_event(&self) -> Option<ConsumerEvent> {
        self.events.lock().pop_front()
    }

    /// Closes the queue: no engine takes events any more.
    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::Release);
    }

    fn push(&self, event: ConsumerEvent) {
        self.count_callback();
        self.events.lock().push_back(event);
    }

    fn count_callback(&self) {
        self.callbacks.fetch_add(1, Ordering::Relaxed);
    }

    fn ends(&self, statistics: &Statistics) -> Vec<(Partition, NextOffset)> {
        let partitions = statistics
            .topics
            .values()
            .flat_map(|topic| topic.partitions.values().map(|partition| (topic.topic.as_str(), partition)));
        partitions
            // A negative end is not known yet.
            .filter(|(_, partition)| partition.hi_offset >= 0)
            .filter_map(|(topic, partition)| {
                Some((self.names.partition(topic, partition.partition)?, NextOffset(partition.hi_offset)))
            })
            .collect()
    }
}

impl ClientContext for EventQueue {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, line: &str) {
        self.count_callback();
        client_stats::log(CLIENT, level, facility, line);
    }

    fn stats(&self, statistics: Statistics) {
        let up = client_stats::record_brokers(CLIENT, &statistics);
        self.push(ConsumerEvent::Brokers { up });
        self.push(ConsumerEvent::Ends(self.ends(&statistics)));
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.count_callback();
        if error.rdkafka_error_code() == Some(RDKafkaErrorCode::AllBrokersDown) {
            self.push(ConsumerEvent::Brokers { up: false });
        }
        client_stats::handle_error(CLIENT, &self.health, &error, reason);
    }
}

impl ConsumerContext for EventQueue {
    fn rebalance(&self, consumer: &BaseConsumer<Self>, err: RDKafkaRespErr, list: &mut TopicPartitionList) {
        let is_assignment = err == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS;
        if self.closing.load(Ordering::Acquire) {
            self.count_callback();
            let result =
                if is_assignment { accept(consumer, list) } else { return_partitions(consumer, list) };
            if let Err(error) = result {
                tracing::warn!("a closing consumer could not answer a rebalance: {error}");
            }
            return;
        }
        self.push(if is_assignment {
            ConsumerEvent::Assign(list.clone())
        } else {
            ConsumerEvent::Revoke { list: list.clone(), lost: consumer.assignment_lost() }
        });
    }
}

fn is_cooperative(consumer: &BaseConsumer<EventQueue>) -> bool {
    matches!(consumer.rebalance_protocol(), RebalanceProtocol::Cooperative)
}

/// Accepts an assignment: reading begins at the offsets of the list.
pub(super) fn accept(consumer: &BaseConsumer<EventQueue>, list: &TopicPartitionList) -> KafkaResult<()> {
    if is_cooperative(consumer) { consumer.incremental_assign(list) } else { consumer.assign(list) }
}

/// Accepts a revocation.
pub(super) fn return_partitions(
    consumer: &BaseConsumer<EventQueue>,
    list: &TopicPartitionList,
) -> KafkaResult<()> {
    if is_cooperative(consumer) { consumer.incremental_unassign(list) } else { consumer.unassign() }
}
