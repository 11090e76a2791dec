//! The log as the roles see it: append, consume, tail, whichever engine keeps it.
//!
//! It decides nothing: each operation belongs to the engine.

use std::{sync::Arc, time::Instant as Clock};

use bytes::Bytes;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    budget::Budget,
    codec::Codec,
    embedded,
    error::{AppendError, OpenError, TailError},
    inbox::{Drained, Inbox},
    kafka, metrics,
    record::Addressed,
    settings::Settings,
    tail::{self, Page, Query},
    topics::{Group, Partition, Position, Role, Topic, partition_of},
};

pub use crate::health::Readiness;

/// The log. A clone is the same log.
#[derive(Clone, Debug)]
pub enum Log {
    Embedded(embedded::Log),
    Kafka(kafka::Log),
}

impl Log {
    /// The log in a database of this process, shared with the store: its keyspaces begin with `log.`.
    /// Ids of schemas are the checked-in ones. Reads the disk.
    pub fn open_embedded(db: fjall::Database, settings: &Settings) -> Result<Self, OpenError> {
        embedded::Log::open(db, settings, Arc::new(Codec::checked_in())).map(Self::Embedded)
    }

    /// The log on Kafka. Refuses topics that are missing or that differ where a promise rests on it; waits a while for
    /// brokers and registry. Call it inside a tokio runtime.
    pub async fn open_kafka(settings: Settings) -> Result<Self, OpenError> {
        kafka::Log::open(settings).await.map(Self::Kafka)
    }

    /// The partition that a key's records go to, always the same.
    pub fn partition(&self, topic: Topic, key: &[u8]) -> Partition {
        partition_of(topic, key, self.partitions())
    }

    /// How many partitions each topic has.
    pub fn partitions(&self) -> u32 {
        match self {
            Self::Embedded(log) => log.partitions(),
            Self::Kafka(log) => log.partitions(),
        }
    }

    /// Appends all records; `Ok` only when every one of them is durable. After an error some may be.
    pub async fn append(&self, records: &[Addressed<'_>]) -> Result<(), AppendError> {
        let began = Clock::now();
        let result = match self {
            Self::Embedded(log) => log.append(records).await,
            Self::Kafka(log) => log.append(records).await,
        };
        metrics::append_answered(&result, began.elapsed());
        result
    }

    /// The same log for what accepted records lead to. At the disk limit its appends may use the part
    /// that requests may not, because refusing them would keep the consumers from ever freeing space.
    #[must_use]
    pub fn reserved(&self) -> Self {
        match self {
            Self::Embedded(log) => Self::Embedded(log.reserved()),
            // Its disks are the brokers'.
            Self::Kafka(log) => Self::Kafka(log.clone()),
        }
    }

    /// Starts the one consumer of the group in this process. What keeps it from starting comes out of
    /// `Inbox::next`; while the log is unreachable it keeps trying. Call it inside a tokio runtime.
    pub fn consume(
        &self,
        group: Group,
        topics: &[Topic],
        budget: Budget,
        role: Role,
        stop: CancellationToken,
    ) -> Inbox {
        match self {
            Self::Embedded(log) => log.consume(group, topics, budget, role, stop),
            Self::Kafka(log) => log.consume(group, topics, budget, role, stop),
        }
    }

    /// Reads a page of a topic without a group.
    pub async fn tail(&self, query: Query) -> Result<Page, TailError> {
        let query = Query { limit: query.limit.max(1), ..query };
        match self {
            Self::Embedded(log) => {
                let mut runs = Vec::new();
                for index in 0..log.partitions() {
                    let from = query.after.as_ref().and_then(|cursor| cursor.0.get(&index).copied());
                    let partition = Partition::new(query.topic, index);
                    runs.push((index, log.read(partition, query.order, from, query.limit).await?));
                }
                tail::page(log.codec(), query, runs)
            }
            Self::Kafka(log) => log.tail(query).await,
        }
    }

    /// The datum of a record of `topic` that is kept in its framing, as the dead letter at `at` keeps one.
    pub fn unframe(&self, at: Position, topic: Topic, framed: &Bytes) -> Result<Bytes, TailError> {
        let codec = match self {
            Self::Embedded(log) => log.codec(),
            Self::Kafka(log) => log.codec(),
        };
        codec
            .open(topic, framed)
            .map_err(|error| TailError::Malformed { position: at, detail: error.to_string() })
    }

    /// From cached state: asking costs nothing.
    pub fn ready(&self) -> Readiness {
        match self {
            Self::Embedded(log) => log.ready(),
            Self::Kafka(log) => log.ready(),
        }
    }

    /// Why the log can never be used again by this process, if that is so.
    pub fn lost(&self) -> Option<&str> {
        match self {
            Self::Embedded(log) => log.lost(),
            Self::Kafka(log) => log.lost(),
        }
    }

    /// Stops the consumers, refuses appends, waits for what is under way until the deadline.
    pub async fn close(&self, deadline: Instant) -> Drained {
        match self {
            Self::Embedded(log) => log.close(deadline).await,
            Self::Kafka(log) => log.close(deadline).await,
        }
    }
}
