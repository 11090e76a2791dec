//! Errors of the log, each with a stable tag.

use thiserror::Error;

use crate::topics::{NextOffset, Partition, Position, Role, Topic};

/// An append that is not acknowledged. Some of its records may be durable all the same.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AppendError {
    /// The engine's queue or its disk is full.
    #[error("the log is full: {detail}")]
    Full { detail: String },
    #[error("the log is unavailable: {detail}")]
    Unavailable { detail: String },
    #[error("a record of {bytes} bytes is above the {limit} bytes that topic {topic} takes")]
    TooLarge { topic: Topic, bytes: usize, limit: usize },
    /// The partition does not exist: the address was not made by this log.
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

/// An error that stops a consumer. The role that owns it fails with it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConsumeError {
    #[error("role {role} dropped the ticket of {position} without completing it")]
    TicketDropped { role: Role, position: Position },
    /// Bytes that no version of Tidegate wrote: going on would lose or invent content.
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

/// A log that does not open.
#[derive(Debug, Error)]
pub enum OpenError {
    #[error("{found_in} has {found} partitions in topic {topic}, but stream.partitions is {configured}")]
    PartitionCount { topic: Topic, configured: u32, found: u32, found_in: String },
    #[error("the log's data has format {found}, this program reads up to {known}: start a newer program")]
    NewerFormat { found: u32, known: u32 },
    #[error("the log's data is damaged: {detail}")]
    Damaged { detail: String },
    /// Records or positions that were durable are not there.
    #[error(
        "the log lacks what was durable: {detail}. Put back the data folder as it was or a backup, or start with \
         --accept-loss to go on without it"
    )]
    Lost { detail: String },
    /// A topic is missing, or differs where a promise rests on it.
    #[error("{detail}")]
    Topic { name: String, detail: String },
    #[error("{0}")]
    Settings(String),
    /// The servers are there and refuse us.
    #[error("the log refuses us: {detail}")]
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

    /// True if the servers are away for a while. Everything else is for an operator to mend.
    pub const fn is_outage(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }
}

/// A page that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PageError {
    #[error("this is not a cursor of topic {topic}")]
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

/// A partition that is owned but not read, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StoppedPartition {
    #[error(
        "{partition} is stopped: the group is at {committed}, but retention has removed everything before {start}"
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
