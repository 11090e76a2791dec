//! The log as the roles see it: append, consume, read pages, whichever engine keeps it.

use std::{sync::Arc, time::Instant as Clock};

use bytes::Bytes;
use tidegate_schemas::{DiskSpace, DurableMark, ids::Millis};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    codec::Codec,
    consumer::inbox::{DrainResult, Inbox},
    embedded::EmbeddedLog,
    error::{AppendError, OpenError, PageError},
    health::Readiness,
    kafka::KafkaLog,
    metrics,
    page_reader::{self, Order, Page, Query},
    record::AddressedRecord,
    settings::{Budget, Settings},
    topics::{Group, Partition, Position, Role, Topic, partition_of},
};

/// The log. A clone is the same log.
#[derive(Clone, Debug)]
pub enum Log {
    Embedded(EmbeddedLog),
    Kafka(KafkaLog),
}

impl Log {
    /// Opens the log in a database of this process, shared with the store: its keyspaces begin with `log.`.
    /// Ids of schemas are the checked-in ones. Reads the disk.
    pub fn open_embedded(db: fjall::Database, settings: &Settings) -> Result<Self, OpenError> {
        EmbeddedLog::open(db, settings, Arc::new(Codec::checked_in()), None, None).map(Self::Embedded)
    }

    /// Opens it like `open_embedded`, compares it with what the mark says was durable, and keeps the mark up to date. The
    /// store shares the measurements of the disk.
    pub fn open_embedded_marked(
        db: fjall::Database,
        settings: &Settings,
        mark: Arc<DurableMark>,
        disk: Arc<DiskSpace>,
    ) -> Result<Self, OpenError> {
        let codec = Arc::new(Codec::checked_in());
        EmbeddedLog::open(db, settings, codec, Some(mark), Some(disk)).map(Self::Embedded)
    }

    /// Opens the log on Kafka. Refuses topics that are missing or that differ where a promise rests on it; waits a
    /// while for brokers and registry. Call it inside a tokio runtime.
    pub async fn open_kafka(settings: Settings) -> Result<Self, OpenError> {
        KafkaLog::open(settings).await.map(Self::Kafka)
    }

    /// Partition of a key's records, always the same.
    pub fn partition(&self, topic: Topic, key: &[u8]) -> Partition {
        partition_of(topic, key, self.partitions())
    }

    /// Number of partitions of every topic.
    pub fn partitions(&self) -> u32 {
        match self {
            Self::Embedded(log) => log.partitions(),
            Self::Kafka(log) => log.partitions(),
        }
    }

    /// Appends all records; `Ok` only when every one of them is durable. After an error some may be.
    pub async fn append(&self, records: &[AddressedRecord<'_>]) -> Result<(), AppendError> {
        let began = Clock::now();
        let result = match self {
            Self::Embedded(log) => log.append(records).await,
            Self::Kafka(log) => log.append(records).await,
        };
        metrics::append_answered(&result, began.elapsed());
        result
    }

    /// Returns the same log for effects of accepted records. At the disk limit its appends may use the part that
    /// requests may not, because refusing them would keep the consumers from ever freeing space.
    #[must_use]
    pub fn reserved(&self) -> Self {
        match self {
            Self::Embedded(log) => Self::Embedded(log.reserved()),
            // The disks are the brokers'.
            Self::Kafka(log) => Self::Kafka(log.clone()),
        }
    }

    /// Starts the one consumer of the group in this process. An error that keeps it from starting comes out of
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
    pub async fn read_page(&self, query: Query) -> Result<Page, PageError> {
        let query = Query { limit: query.limit.max(1), ..query };
        match self {
            Self::Embedded(log) => {
                let mut parts = Vec::new();
                for index in 0..log.partitions() {
                    let from = query.after.as_ref().and_then(|cursor| cursor.0.get(&index).copied());
                    let partition = Partition::new(query.topic, index);
                    parts.push((index, log.read(partition, query.order, from, query.limit).await?));
                }
                page_reader::page(log.codec(), query, parts)
            }
            Self::Kafka(log) => log.read_page(query).await,
        }
    }

    /// Returns the append time of the oldest record of a topic that a group has not completed, wherever its consumer
    /// runs. A group that never committed has completed nothing.
    pub async fn oldest_uncommitted(&self, group: Group, topic: Topic) -> Result<Option<Millis>, PageError> {
        let after = match self {
            Self::Embedded(log) => log.committed(group, topic),
            Self::Kafka(log) => log.committed(group, topic).await?,
        };
        let query = Query { topic, order: Order::Oldest, limit: 1, after: Some(after) };
        Ok(self.read_page(query).await?.records.first().map(|record| record.written_at))
    }

    /// Returns the datum of a record of `topic` that is kept in its framing, as the dead letter at `at` keeps one.
    pub fn unframe(&self, at: Position, topic: Topic, framed: &Bytes) -> Result<Bytes, PageError> {
        let codec = match self {
            Self::Embedded(log) => log.codec(),
            Self::Kafka(log) => log.codec(),
        };
        codec
            .unframe(topic, framed)
            .map_err(|error| PageError::Malformed { position: at, detail: error.to_string() })
    }

    /// Readiness from cached state: reading it costs nothing.
    pub fn ready(&self) -> Readiness {
        match self {
            Self::Embedded(log) => log.ready(),
            Self::Kafka(log) => log.ready(),
        }
    }

    /// Error after which this process can never use the log again, if there was one.
    pub fn fatal_error(&self) -> Option<&str> {
        match self {
            Self::Embedded(log) => log.fatal_error(),
            Self::Kafka(log) => log.fatal_error(),
        }
    }

    /// Stops the consumers, refuses appends, and waits for appends in flight until the deadline.
    pub async fn close(&self, deadline: Instant) -> DrainResult {
        match self {
            Self::Embedded(log) => log.close(deadline).await,
            Self::Kafka(log) => log.close(deadline).await,
        }
    }
}
