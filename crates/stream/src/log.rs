//! The log as used by the roles: append, consume and read pages, on either engine.

use std::{sync::Arc, time::Instant as Clock};

use async_recursion::async_recursion as boxed;
use bytes::Bytes;
use tidegate_embedded_data::{DiskSpace, DurableMark};
use tidegate_schemas::ids::Millis;
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

/// Handle to the log. Clones share it.
#[derive(Clone, Debug)]
pub enum Log {
    Embedded(EmbeddedLog),
    Kafka(KafkaLog),
}

impl Log {
    /// Opens the log in a database of this process, shared with the store: its keyspaces begin with `log.`.
    /// Uses the checked-in schema ids. Reads the disk.
    pub fn open_embedded(db: fjall::Database, settings: &Settings) -> Result<Self, OpenError> {
        EmbeddedLog::open(db, settings, Arc::new(Codec::checked_in()), None, None).map(Self::Embedded)
    }

    /// Opens the log like `open_embedded`, refuses a database with less durable data than the mark records, and keeps the mark
    /// up to date. The store shares the measurements of the disk.
    pub fn open_embedded_marked(
        db: fjall::Database,
        settings: &Settings,
        mark: Arc<DurableMark>,
        disk: Arc<DiskSpace>,
    ) -> Result<Self, OpenError> {
        let codec = Arc::new(Codec::checked_in());
        EmbeddedLog::open(db, settings, codec, Some(mark), Some(disk)).map(Self::Embedded)
    }

    /// Opens the log on Kafka. Refuses missing topics and topics with a configuration that breaks a guarantee. Waits up to
    /// `open_timeout_ms` for brokers and registry. Call it inside a tokio runtime.
    #[boxed]
    pub async fn open_kafka(settings: Settings) -> Result<Self, OpenError> {
        KafkaLog::open(settings).await.map(Self::Kafka)
    }

    /// Returns the partition of a key, which never changes.
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

    /// Appends all records. `Ok`: all are durable. After an error some may be durable.
    #[boxed]
    pub async fn append(&self, records: &[AddressedRecord<'_>]) -> Result<(), AppendError> {
        let started_at = Clock::now();
        let result = match self {
            Self::Embedded(log) => log.append(records).await,
            Self::Kafka(log) => log.append(records).await,
        };
        metrics::append_answered(&result, started_at.elapsed());
        result
    }

    /// Returns a handle for effects of accepted records. At the disk limit its appends may use the share that is closed to
    /// requests: refusing them would prevent the consumers from freeing space.
    #[must_use]
    pub fn for_effects(&self) -> Self {
        match self {
            Self::Embedded(log) => Self::Embedded(log.reserved()),
            // Disk space is managed by the brokers.
            Self::Kafka(log) => Self::Kafka(log.clone()),
        }
    }

    /// Starts the group's only consumer in this process. `Inbox::next` returns an error of the start; while the log is
    /// unreachable, the consumer keeps trying. Call it inside a tokio runtime.
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
    #[boxed]
    pub async fn read_page(&self, query: Query) -> Result<Page, PageError> {
        // A page of 0 records would look like the end of the topic.
        let query = Query { limit: query.limit.max(1), ..query };
        match self {
            Self::Embedded(log) => {
                let mut parts = Vec::new();
                for index in 0..log.partitions() {
                    let start_offset = query.after.as_ref().and_then(|cursor| cursor.0.get(&index).copied());
                    let partition = Partition::new(query.topic, index);
                    parts.push((index, log.read(partition, query.order, start_offset, query.limit).await?));
                }
                page_reader::page(log.codec(), query, parts)
            }
            Self::Kafka(log) => log.read_page(query).await,
        }
    }

    /// Returns the append time of the oldest record of a topic that a group has not completed, in whichever process its
    /// consumer runs. For a group without a commit this is the oldest record.
    #[boxed]
    pub async fn oldest_uncommitted(&self, group: Group, topic: Topic) -> Result<Option<Millis>, PageError> {
        let after = match self {
            Self::Embedded(log) => log.committed(group, topic),
            Self::Kafka(log) => log.committed(group, topic).await?,
        };
        let query = Query { topic, order: Order::Oldest, limit: 1, after: Some(after) };
        Ok(self.read_page(query).await?.records.first().map(|record| record.written_at))
    }

    /// Unframes a stored record of `topic`, such as the one in the dead letter at `at`.
    pub fn unframe(&self, at: Position, topic: Topic, framed: &Bytes) -> Result<Bytes, PageError> {
        let codec = match self {
            Self::Embedded(log) => log.codec(),
            Self::Kafka(log) => log.codec(),
        };
        codec
            .unframe(topic, framed)
            .map_err(|error| PageError::Malformed { position: at, detail: error.to_string() })
    }

    /// Returns the cached readiness.
    pub fn readiness(&self) -> Readiness {
        match self {
            Self::Embedded(log) => log.ready(),
            Self::Kafka(log) => log.ready(),
        }
    }

    /// Returns the error after which this process can never use the log again, if any.
    pub fn fatal_error(&self) -> Option<&str> {
        match self {
            Self::Embedded(log) => log.fatal_error(),
            Self::Kafka(log) => log.fatal_error(),
        }
    }

    /// Stops the consumers, refuses new appends, and waits for appends in flight until the deadline.
    #[boxed]
    pub async fn close(&self, deadline: Instant) -> DrainResult {
        match self {
            Self::Embedded(log) => log.close(deadline).await,
            Self::Kafka(log) => log.close(deadline).await,
        }
    }
}
