//! Guarantees of the log on Kafka only: groups, broker outages, topics, gaps, the registry.
//!
//! Needs `TIDEGATE_TEST_KAFKA`; only `mock` and `refused` need no server.

mod append;
mod fixture;
mod gap;
mod groups;
mod mock;
mod outage;
mod pages;
mod refused;
mod schema_ids;
#[cfg(feature = "tls")]
mod tls;
mod topics;
