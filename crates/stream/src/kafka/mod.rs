//! The log on Kafka: topics, the producer, and an engine for every consumer.
//!
//! `consumer` holds ledger, budget, epochs and drain, which are the same for both engines.

mod arena;
mod client_stats;
mod committer;
mod end_queries;
mod engine;
mod log;
mod page_reader;
mod producer;
mod rebalance_events;
mod topic_names;
mod topics;

pub use self::{
    log::KafkaLog,
    topics::{TopicsReport, create_topics},
};
