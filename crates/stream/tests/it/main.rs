//! The contract of the log on every engine, and what the log promises on Kafka alone.

#![allow(clippy::unwrap_used)]

mod contract;
mod kafka;
mod support;
