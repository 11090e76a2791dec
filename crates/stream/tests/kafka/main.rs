//! What the log promises on Kafka alone: groups, brokers that vanish, topics, gaps, the registry.
//! What every engine promises is in the contract suite. Needs `TIDEGATE_TEST_KAFKA`; only `mock` and `refused` need no server.

#![allow(clippy::unwrap_used)]

mod append;
mod fixture;
mod gap;
mod groups;
mod mock;
mod outage;
mod refused;
mod schema_ids;
mod tail;
#[cfg(feature = "tls")]
mod tls;
mod topics;
