//! Durable append to a partitioned log, and consumption with tickets, on Kafka or inside the process.
//!
//! The log keeps records in order, hands them out, and remembers the position of each group. Consumers interpret the records.

mod codec;
pub mod consumer;
pub mod embedded;
pub mod error;
pub mod failpoint;
pub mod health;
pub mod kafka;
mod log;
pub mod metrics;
pub mod page_reader;
pub mod record;
pub mod schema_registry;
pub mod settings;
pub mod topics;
mod wakeup;

pub use log::Log;
pub use record::Record;
pub use topics::Topic;
