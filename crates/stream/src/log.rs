//! The log as the roles see it: append, consume, tail, whichever engine keeps it.
//!
//! It decides nothing: each operation belongs to the engine.

use crate::{
    budget::Budget,
    error::{AppendError, TailError},
    inbox::{Drained, Inbox},
    record::Addressed,
    tail::{Page, Query},
    topics::{Group, Partition, Role, Topic},
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Whether the log takes and gives records at the moment. From cached state: asking costs nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    Ready,
    NotReady { why: String },
}

impl Readiness {
    pub const fn is_ready(&self) -> bool {
        matches!(self, Self::Ready)
    }
}

/// The log. A clone is the same log.
#[derive(Clone, Debug)]
pub enum Log {}

impl Log {
    /// The partition that a key's records go to, always the same.
    pub fn partition(&self, _topic: Topic, _key: &[u8]) -> Partition {
        match *self {}
    }

    /// How many partitions each topic has.
    pub fn partitions(&self) -> u32 {
        match *self {}
    }

    /// Appends all records; `Ok` only when every one of them is durable. After an error some may be.
    pub async fn append(&self, _records: &[Addressed<'_>]) -> Result<(), AppendError> {
        match *self {}
    }

    /// The same log for what accepted records lead to. At the disk limit its appends may use the part
    /// that requests may not, because refusing them would keep the consumers from ever freeing space.
    #[must_use]
    pub fn reserved(&self) -> Self {
        match *self {}
    }

    /// Starts the one consumer of the group in this process. What keeps it from starting comes out of
    /// `Inbox::next`; while the log is unreachable it keeps trying.
    pub fn consume(
        &self,
        _group: Group,
        _topics: &[Topic],
        _budget: Budget,
        _role: Role,
        _stop: CancellationToken,
    ) -> Inbox {
        match *self {}
    }

    /// Reads a page of a topic without a group.
    pub async fn tail(&self, _query: Query) -> Result<Page, TailError> {
        match *self {}
    }

    pub fn ready(&self) -> Readiness {
        match *self {}
    }

    /// Stops the consumers, refuses appends, waits for what is under way until the deadline.
    pub async fn close(&self, _deadline: Instant) -> Drained {
        match *self {}
    }
}
