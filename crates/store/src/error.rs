//! Errors of a store, and whether a retry helps.
//!
//! It does not retry; callers do, guided by [`Error::is_outage`].

/// A stored row that this version cannot read. It names the place, never the value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column {column} of table {table}: {reason}")]
pub struct Corrupt {
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
    Corrupt(Corrupt),
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
    /// No server takes the row, whoever writes it and whenever.
    #[error("a row of {bytes} bytes for table {table} is larger than {limit}")]
    TooLarge { table: &'static str, bytes: usize, limit: usize },
    /// The server is well and does not take these values.
    #[error("the store refuses the values: {0}")]
    Refused(String),
    #[error("an answer that cannot be read: {0}")]
    Unreadable(String),
    #[error("the cursor is not one of this list")]
    BadCursor,
    #[error("store settings: {0}")]
    Settings(String),
    /// Rows that were durable are not there.
    #[error(
        "the store lacks what was durable: the last {missing} of {durable} synced writes. Put back the data folder as \
         it was or a backup, or start with --accept-loss to go on without them"
    )]
    Missing { missing: u64, durable: u64 },
    /// The engine refuses for a reason that does not pass by waiting.
    #[error("the store failed: {0}")]
    Engine(String),
    /// A write or a sync had failed, so it is not known what is on the disk: only another process, which reads what is
    /// there, can go on.
    #[error(
        "the store's database cannot be used by this process any more, and another one can: a write had failed. If it \
         fails again, its files are damaged or the disk failed (docs/guides/data.md)"
    )]
    Lost,
    /// Storage that was removed under the process: rows written now would not be found again.
    #[error("the data folder was taken away: {0}")]
    TakenAway(String),
}

impl Error {
    /// A stable name for metrics and dead letters.
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
            Self::Missing { .. } => "store_missing",
            Self::Lost => "store_lost",
            Self::TakenAway(_) => "store_taken_away",
        }
    }

    /// The values are at fault, not the store: no waiting helps, and other values are taken.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::KeyTooLong { .. } | Self::TooLarge { .. } | Self::Refused(_))
    }

    /// This process can never use the store again.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Lost | Self::TakenAway(_))
    }

    /// The store is away for a while: keep the work and try again without limit. Everything else is a defect.
    pub fn is_outage(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::Timeout(_) | Self::Overloaded(_))
    }
}

impl From<Corrupt> for Error {
    fn from(corrupt: Corrupt) -> Self {
        Self::Corrupt(corrupt)
    }
}
