//! The log on Kafka: settings, topics, the producer, and an engine for every consumer.
//!
//! Ledger, budget, epochs and drain are not here: the driver has them, the same for both engines.

mod arena;
mod committer;
mod context;
mod engine;
mod log;
mod observe;
mod producer;
mod settings;
mod tail;
mod tls;
mod topics;

use rdkafka::error::KafkaError;

use crate::topics::Partition;

pub use self::{
    log::Log,
    settings::{Compression, Consumer, GroupProtocol, Keys, Producer, Settings, Topics},
    topics::{TopicsReport, create_topics},
};

/// Why a client was not made. librdkafka's text names the key; our own never shows a value, which may be a secret.
fn creation(why: &KafkaError) -> String {
    match why {
        KafkaError::ClientConfig(_, detail, key, _) => format!("stream.kafka: {key}: {detail}"),
        other => format!("stream.kafka: {other}"),
    }
}

/// Kafka counts partitions in signed numbers; ours never come near their end.
fn index_of(partition: Partition) -> i32 {
    i32::try_from(partition.index).unwrap_or(i32::MAX)
}
