//! What the benches share: the items that are sent, processes and their CPU time, a small HTTP client, Kafka, tables.
//!
//! It measures nothing by itself; the binaries do.

pub mod clock;
pub mod installation;
pub mod http;
pub mod items;
pub mod kafka;
pub mod pictures;
pub mod process;
pub mod servers;
pub mod table;
