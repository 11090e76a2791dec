//! The log inside the process: partitions and offsets as in Kafka, in one database shared with the store.
//!
//! It does not rebalance: each group has one consumer, which owns every partition.

mod settings;

pub use settings::Settings;
