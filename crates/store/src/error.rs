//! Errors of a store. [`Error::is_outage`] tells callers whether a retry can help.

/// Stored row that this version cannot read. The error names the column, never the value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column {column} of table {table}: {reason}")]
pub struct CorruptCell {
    pub table: &'static str,
    pub column: &'static str,
    pub reason: &'static str,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the store cannot be reached: {0}")]
    Unreachable(String),
    #[error("the store did not answer in time: {0}")]
    Timeout(String),
    #[error("the store is overloaded: {0}")]
    Overloaded(String),
    /// The process is shutting the store down.
    #[error("the store is closed")]
    Closed,
    #[error(transparent)]
    Corrupt(CorruptCell),
    #[error("table {table}: {detail}")]
    Schema { table: String, detail: String },
    #[error(
        "the data is of format {found}, this version knows up to {known}: it was written by a newer version"
    )]
    NewerFormat { found: u32, known: u32 },
    #[error("table {0} is not known to this store: it is missing in the list of tables")]
    UnknownTable(&'static str),
    #[error("a key of {bytes} bytes for table {table} is longer than {limit}")]
    KeyTooLong { table: &'static str, bytes: usize, limit: usize },
    /// The row is above the size limit. A retry cannot help.
    #[error("a row of {bytes} bytes for table {table} is larger than {limit}")]
    TooLarge { table: &'static str, bytes: usize, limit: usize },
    /// The server works and rejects these values.
    #[error("the store refuses the values: {0}")]
    Refused(String),
    #[error("the store's answer cannot be decoded: {0}")]
    Unreadable(String),
    #[error("the cursor does not belong to this list")]
    BadCursor,
    #[error("store settings: {0}")]
    Settings(String),
    /// Durable rows are missing.
    #[error(
        "the store lacks durable data: the last {missing} of {durable} synced writes. Restore the data folder or a \
         backup, or start with --accept-loss to continue without them"
    )]
    LostWrites { missing: u64, durable: u64 },
    /// The engine failed permanently; waiting does not help.
    #[error("the store failed: {0}")]
    Engine(String),
    /// A write or a sync failed earlier, so the state of the disk is unknown. Only a new process, which reads it again, can
    /// continue.
    #[error(
        "the store's database cannot be used by this process any more, and another one can: a write had failed. If it \
         fails again, its files are damaged or the disk failed (docs/guides/data.md)"
    )]
    DatabasePoisoned,
    /// The data folder was removed while the process ran: new rows would be lost.
    #[error("the data folder was taken away: {0}")]
    FolderRemoved(String),
}

impl Error {
    /// Returns a stable name for metrics and dead letters.
    pub fn tag(&self) -> &'static str {
        match self {
            Self::Unreachable(_) => "store_unreachable",
            Self::Timeout(_) => "store_timeout",
            Self::Overloaded(_) => "store_overloaded",
            Self::Closed => "store_closed",
            Self::Corrupt(_) => "store_corrupt_row",
            Self::Schema { .. } => "store_schema",
            Self::NewerFormat { .. } => "store_newer_format",
            Self::UnknownTable(_) => "store_unknown_table",
            Self::KeyTooLong { .. } => "store_key_too_long",
            Self::TooLarge { .. } => "store_row_too_large",
            Self::Refused(_) => "store_refused",
            Self::Unreadable(_) => "store_unreadable",
            Self::BadCursor => "store_bad_cursor",
            Self::Settings(_) => "store_settings",
            Self::Engine(_) => "store_engine",
            Self::LostWrites { .. } => "store_missing",
            Self::DatabasePoisoned => "store_lost",
            Self::FolderRemoved(_) => "store_taken_away",
        }
    }

    /// True if the values are at fault and not the store: a retry fails, and other values work.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::KeyTooLong { .. } | Self::TooLarge { .. } | Self::Refused(_))
    }

    /// True if this process can never use the store again.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::DatabasePoisoned | Self::FolderRemoved(_))
    }

    /// True if the store is unavailable for a while: callers keep the work and retry without limit. Other errors are permanent.
    pub fn is_outage(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::Timeout(_) | Self::Overloaded(_))
    }
}

impl From<CorruptCell> for Error {
    fn from(corrupt: CorruptCell) -> Self {
        Self::Corrupt(corrupt)
    }
}
