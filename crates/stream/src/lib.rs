//! Durable append, and consumption with tickets, on Kafka or inside the process.
//!
//! It knows neither what records mean nor what they lead to: it keeps them in order, hands them out,
//! and remembers how far each group has come.

mod book;
mod budget;
mod codec;
mod consumers;
mod drain;
mod driver;
pub mod embedded;
mod engine;
mod error;
pub mod failpoint;
mod health;
mod inbox;
pub mod kafka;
mod ledger;
mod log;
pub mod metrics;
mod record;
pub mod registry;
mod settings;
mod signal;
mod tail;
mod ticket;
mod topics;

pub use budget::Budget;
pub use error::{AppendError, ConsumeError, OpenError, Stopped, TailError};
pub use inbox::{Drained, Gate, Inbox, Ownership};
pub use log::{Log, Readiness};
pub use record::{Addressed, Headers, Reason, Received, Record, Tailed};
pub use settings::{Consume, EngineKind, Settings};
pub use tail::{Cursor, NotACursor, Order, Page, Query};
pub use ticket::{Epoch, Ticket};
pub use topics::{Group, NextOffset, Offset, Partition, Position, Role, Topic};
