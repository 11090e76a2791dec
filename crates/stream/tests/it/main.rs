//! Contract of the log on every engine, and its additional guarantees on Kafka.

#![allow(clippy::unwrap_used)]

mod contract;
mod kafka;
mod support;
