//! Errors of the log, each with a stable tag.

use thiserror::Error;

use crate::topics::{NextOffset, Partition, Position, Role, Topic};

/// Append that was not acknowledged. Some of its records may be durable nevertheless.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AppendError {
    /// The engine's queue or its disk is full.
    #[error("the log is full: {detail}")]
    Full { detail: String },
    #[error("the log is unavailable: {detail}")]
    Unavailable { detail: String },
    #[error("a record of {bytes} bytes exceeds the limit of {limit} bytes of topic {topic}")]
    TooLarge { topic: Topic, bytes: usize, limit: usize },
    /// The partition does not exist: its address is not from this log.
    #[error("{partition} does not exist: topic {} has {partitions} partitions", partition.topic)]
    NoSuchPartition { partition: Partition, partitions: u32 },
    #[error("the log is shutting down")]
    ShuttingDown,
}

impl AppendError {
    pub const fn tag(&self) -> &'static str {
        match self {
            Self::Full { .. } => "full",
            Self::Unavailable { .. } => "unavailable",
            Self::TooLarge { .. } => "too_large",
            Self::NoSuchPartition { .. } => "no_such_partition",
            Self::ShuttingDown => "shutting_down",
        }
    }

    /// True if the same append can succeed later in this process.
    pub const fn is_retriable(&self) -> bool {
        matches!(self, Self::Full { .. } | Self::Unavailable { .. })
    }
}

/// Error that stops a consumer. Its role fails with the same error.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConsumeError {
    #[error("role {role} dropped the ticket of {position} without completing it")]
    TicketDropped { role: Role, position: Position },
    /// Bytes that no version of Tidegate wrote. Skipping them would lose content.
    #[error("role {role} stopped at {position}: {detail}")]
    Malformed { role: Role, position: Position, detail: String },
    #[error("role {role} cannot consume: {detail}")]
    Refused { role: Role, detail: String },
    #[error("role {role} lost its log: {detail}")]
    Broken { role: Role, detail: String },
}

impl ConsumeError {
    pub const fn tag(&self) -> &'static str {
        match self {
            Self::TicketDropped { .. } => "ticket_dropped",
            Self::Malformed { .. } => "malformed",
            Self::Refused { .. } => "refused",
            Self::Broken { .. } => "broken",
        }
    }
}

/// Reason why a log does not open.
#[derive(Debug, Error)]
pub enum OpenError {
    #[error("{found_in} has {found} partitions in topic {topic}, but stream.partitions is {configured}")]
    PartitionCount { topic: Topic, configured: u32, found: u32, found_in: String },
    #[error("the log's data has format {found}, this program reads up to {known}: start a newer program")]
    NewerFormat { found: u32, known: u32 },
    #[error("the log's data is damaged: {detail}")]
    Damaged { detail: String },
    /// Durable records or positions are missing.
    #[error(
        "the log lacks durable data: {detail}. Restore the data folder or a backup, or start with --accept-loss to \
         continue without it"
    )]
    Lost { detail: String },
    /// A topic is missing, or its configuration breaks a guarantee.
    #[error("{detail}")]
    Topic { name: String, detail: String },
    #[error("{0}")]
    Settings(String),
    /// The servers answer and reject our credentials or certificate.
    #[error("the log refuses access: {detail}")]
    Refused { detail: String },
    #[error("the log cannot be opened: {detail}")]
    Unavailable { detail: String },
}

impl OpenError {
    pub const fn tag(&self) -> &'static str {
        match self {
            Self::PartitionCount { .. } => "partition_count",
            Self::NewerFormat { .. } => "newer_format",
            Self::Damaged { .. } => "damaged",
            Self::Lost { .. } => "lost",
            Self::Topic { .. } => "topic",
            Self::Settings(_) => "settings",
            Self::Refused { .. } => "refused",
            Self::Unavailable { .. } => "unavailable",
        }
    }

    /// True if the servers are temporarily unreachable. Other errors need an operator.
    pub const fn is_outage(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }
}

/// Reason why a page cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PageError {
    #[error("the cursor does not belong to topic {topic}")]
    Cursor { topic: Topic },
    #[error("{position} cannot be read: {detail}")]
    Malformed { position: Position, detail: String },
    #[error("the log is unavailable: {detail}")]
    Unavailable { detail: String },
}

impl PageError {
    pub const fn tag(&self) -> &'static str {
        match self {
            Self::Cursor { .. } => "cursor",
            Self::Malformed { .. } => "malformed",
            Self::Unavailable { .. } => "unavailable",
        }
    }
}

/// Reason why an owned partition is not read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StoppedPartition {
    #[error(
        "{partition} is stopped: the group is at {committed}, but retention has removed all records before {start}"
    )]
    Gap { partition: Partition, committed: NextOffset, start: NextOffset },
    #[error("{position} waits for schema {schema}: another process writes a newer version")]
    UnknownSchema { position: Position, schema: u32 },
}

impl StoppedPartition {
    pub const fn partition(&self) -> Partition {
        match self {
            Self::Gap { partition, .. } => *partition,
            Self::UnknownSchema { position, .. } => position.partition,
        }
    }

    pub const fn tag(&self) -> &'static str {
        match self {
            Self::Gap { .. } => "gap",
            Self::UnknownSchema { .. } => "unknown_schema",
        }
    }
}
