//! Errors of a conversion, with file and row.
//!
//! Messages name files, rows and rules, never values of cells: an export may hold personal data.

use std::{fmt, io, path::Path};

use crate::plural::format_count;

/// Failure of a conversion.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    /// Invalid input file.
    #[error("{file}{}: {detail}", RowSuffix(*row))]
    Content { file: String, row: Option<u64>, kind: ErrorKind, detail: String },
    /// Options that contradict each other or the input.
    #[error("{0}")]
    Refused(String),
    #[error("{action}: {error}")]
    Io { action: String, error: io::Error },
    /// A stop was requested through the meter.
    #[error("stopped after {}", format_count(*rows, "row"))]
    Stopped { rows: u64 },
}

/// Kinds of invalid content; each has a stable tag for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    Archive,
    Compressed,
    Bomb,
    LongRecord,
    Nul,
    Quote,
    Encoding,
    MissingColumn,
    Columns,
    MissingFile,
    Value,
    UnknownItem,
    Duplicate,
    Sign,
    TooLong,
    Format,
}

impl ErrorKind {
    fn tag(self) -> &'static str {
        match self {
            Self::Archive => "archive",
            Self::Compressed => "compressed",
            Self::Bomb => "bomb",
            Self::LongRecord => "long_record",
            Self::Nul => "nul",
            Self::Quote => "quote",
            Self::Encoding => "encoding",
            Self::MissingColumn => "missing_column",
            Self::Columns => "columns",
            Self::MissingFile => "missing_file",
            Self::Value => "value",
            Self::UnknownItem => "unknown_item",
            Self::Duplicate => "duplicate",
            Self::Sign => "sign",
            Self::TooLong => "too_long",
            Self::Format => "format",
        }
    }
}

struct RowSuffix(Option<u64>);

impl fmt::Display for RowSuffix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |row| write!(f, ", row {row}"))
    }
}

impl ConvertError {
    /// Stable identifier of the error kind, for machine-readable output.
    pub fn tag(&self) -> &'static str {
        match self {
            Self::Content { kind: wrong, .. } => wrong.tag(),
            Self::Refused(_) => "refused",
            Self::Io { .. } => "io",
            Self::Stopped { .. } => "stopped",
        }
    }

    pub(crate) fn content(
        file: &str,
        row: impl Into<Option<u64>>,
        kind: ErrorKind,
        detail: impl Into<String>,
    ) -> Self {
        Self::Content { file: file.to_owned(), row: row.into(), kind, detail: detail.into() }
    }

    /// True if an archive or a compressed file is damaged.
    pub(crate) fn is_damage(&self) -> bool {
        matches!(self, Self::Content { kind: ErrorKind::Archive | ErrorKind::Compressed, .. })
    }

    /// Wraps a system error. The file is named by its last component: messages are kept in logs, and full paths
    /// describe the machine.
    pub(crate) fn io(action: &str, path: &Path, error: io::Error) -> Self {
        let name = path.file_name().unwrap_or(path.as_os_str()).display();
        Self::Io { action: format!("{action} {name}"), error }
    }

    /// Error for standard output that is closed or full.
    pub(crate) fn stream(error: io::Error) -> Self {
        Self::Io { action: "writing to standard output".to_owned(), error }
    }

    /// Unwraps an error that [`ConvertError::into_io`] has wrapped.
    pub(crate) fn from_io(file: &str, error: io::Error) -> Self {
        match error.downcast::<Self>() {
            Ok(error) => error,
            Err(error) => Self::Io { action: format!("reading {file}"), error },
        }
    }

    /// Wraps the error for readers that must return `io::Error`.
    pub(crate) fn into_io(self) -> io::Error {
        io::Error::other(self)
    }
}
