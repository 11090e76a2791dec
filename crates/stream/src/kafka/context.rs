//! What librdkafka tells a consumer while it is polled, kept until the engine looks: rebalances, ends, outages.
//!
//! It answers nothing: the group waits until the engine has assigned or unassigned. Only while the consumer closes,
//! when no engine looks any more, does it let go at once.

use std::{
    collections::{HashMap, VecDeque},
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

use super::observe::{self, BrokerHealth};
use crate::topics::{NextOffset, Partition, Topic};

const CLIENT: &str = "consumer";

/// Kafka's topic names and ours.
pub(super) struct Names {
    ours: HashMap<String, Topic>,
    kafkas: Vec<String>,
}

impl Names {
    pub(super) fn new(prefix: &str) -> Self {
        let kafkas: Vec<String> = Topic::ALL.into_iter().map(|topic| topic.name(prefix)).collect();
        Self { ours: kafkas.iter().cloned().zip(Topic::ALL).collect(), kafkas }
    }

    pub(super) fn kafkas(&self, topic: Topic) -> &str {
        &self.kafkas[topic as usize]
    }

    /// None for a partition of somebody else's topic.
    pub(super) fn partition(&self, topic: &str, index: i32) -> Option<Partition> {
        Some(Partition::new(*self.ours.get(topic)?, u32::try_from(index).ok()?))
    }

    pub(super) fn partitions(&self, list: &TopicPartitionList) -> Vec<Partition> {
        list.elements()
            .iter()
            .filter_map(|element| self.partition(element.topic(), element.partition()))
            .collect()
    }
}

/// Something that happened inside a poll.
pub(super) enum Note {
    Assign(TopicPartitionList),
    Revoke { list: TopicPartitionList, lost: bool },
    Ends(Vec<(Partition, NextOffset)>),
    Brokers { up: bool },
}

pub(super) struct Context {
    names: Arc<Names>,
    health: Arc<BrokerHealth>,
    notes: Mutex<VecDeque<Note>>,
    /// Counts what librdkafka served to us: a poll that returns nothing may have served something, and then more may
    /// wait behind it.
    served: AtomicU64,
    closing: AtomicBool,
}

impl Context {
    pub(super) fn new(names: Arc<Names>, health: Arc<BrokerHealth>) -> Self {
        Self {
            names,
            health,
            notes: Mutex::default(),
            served: AtomicU64::new(0),
            closing: AtomicBool::new(false),
        }
    }

    pub(super) fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }

    pub(super) fn has_notes(&self) -> bool {
        !self.notes.lock().is_empty()
    }

    pub(super) fn take_note(&self) -> Option<Note> {
        self.notes.lock().pop_front()
    }

    /// Nobody looks at notes from here on.
    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::Release);
    }

    fn note(&self, note: Note) {
        self.serve();
        self.notes.lock().push_back(note);
    }

    fn serve(&self) {
        self.served.fetch_add(1, Ordering::Relaxed);
    }

    fn ends(&self, statistics: &Statistics) -> Vec<(Partition, NextOffset)> {
        let partitions = statistics
            .topics
            .values()
            .flat_map(|topic| topic.partitions.values().map(|partition| (topic.topic.as_str(), partition)));
        partitions
            .filter(|(_, partition)| partition.hi_offset >= 0)
            .filter_map(|(topic, partition)| {
                Some((self.names.partition(topic, partition.partition)?, NextOffset(partition.hi_offset)))
            })
            .collect()
    }
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, line: &str) {
        self.serve();
        observe::log(CLIENT, level, facility, line);
    }

    fn stats(&self, statistics: Statistics) {
        let up = observe::brokers(CLIENT, &statistics);
        self.note(Note::Brokers { up });
        self.note(Note::Ends(self.ends(&statistics)));
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.serve();
        if error.rdkafka_error_code() == Some(RDKafkaErrorCode::AllBrokersDown) {
            self.note(Note::Brokers { up: false });
        }
        observe::fault(CLIENT, &self.health, &error, reason);
    }
}

impl ConsumerContext for Context {
    fn rebalance(&self, consumer: &BaseConsumer<Self>, err: RDKafkaRespErr, list: &mut TopicPartitionList) {
        let assign = err == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS;
        if self.closing.load(Ordering::Acquire) {
            self.serve();
            let answered = if assign { take(consumer, list) } else { let_go(consumer, list) };
            if let Err(why) = answered {
                tracing::warn!("a closing consumer could not answer a rebalance: {why}");
            }
            return;
        }
        self.note(if assign {
            Note::Assign(list.clone())
        } else {
            Note::Revoke { list: list.clone(), lost: consumer.assignment_lost() }
        });
    }
}

fn is_cooperative(consumer: &BaseConsumer<Context>) -> bool {
    matches!(consumer.rebalance_protocol(), RebalanceProtocol::Cooperative)
}

/// Answers an assignment: reading begins at the offsets of the list.
pub(super) fn take(consumer: &BaseConsumer<Context>, list: &TopicPartitionList) -> KafkaResult<()> {
    if is_cooperative(consumer) { consumer.incremental_assign(list) } else { consumer.assign(list) }
}

/// Answers a revocation.
pub(super) fn let_go(consumer: &BaseConsumer<Context>, list: &TopicPartitionList) -> KafkaResult<()> {
    if is_cooperative(consumer) { consumer.incremental_unassign(list) } else { consumer.unassign() }
}
