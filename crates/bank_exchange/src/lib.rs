//! Formats in which banks of hashes and words are exchanged: plain lists, CSV, NDJSON, and the files of ThreatExchange, NCMEC,
//! StopNCII and Tech Against Terrorism.
//!
//! A file is read entry by entry in bounded memory. Each entry has its position and either a change of the bank or the
//! reason why it is refused. The service decides whether a value may be in the bank.

mod csv_positions;
mod csv_table;
mod exchanges;
mod json_lines;
mod json_pages;
mod length_limit;
mod plain_lines;
mod unique_keys;

#[cfg(test)]
mod tests;

mod entry;
mod error;

use std::{io::BufRead, path::Path};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use tidegate_schemas::banks::BankKind;

pub use self::{
    csv_table::join_labels,
    entry::{Change, FileEntry, Position},
    error::FileError,
};

/// Format of a file of bank entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// One entry per line; a hash may follow its kind (`pdq f8f8...`) or be in the form of PDQ's tools (`hash,name` and
    /// `number,quality,hash,time`); blank lines are skipped
    Lines,
    /// With a header: `value` or `hash`, optionally `labels` (separated by `|`), `source`, `expires_at`, and for hashes
    /// `signal_type`, `max_distance`, `content_id`, `note` and `disabled`
    Csv,
    /// One JSON string per line, or an object with `value`, `labels`, `source`, `expiresAt` and the other columns of a table
    Ndjson,
    /// ThreatExchange: pages of indicators
    Threatexchange,
    /// NCMEC hash sharing, version 2: XML
    Ncmec,
    /// StopNCII: pages of hash records
    Stopncii,
    /// Tech Against Terrorism: pages of hashes
    Tat,
}

impl Format {
    /// Returns the format that the file's name suggests; by default one entry per line.
    pub fn from_path(file: &Path) -> Self {
        match file
            .extension()
            .and_then(|extension| extension.to_str())
            .map(str::to_ascii_lowercase)
            .as_deref()
        {
            Some("csv") => Self::Csv,
            Some("ndjson" | "jsonl") => Self::Ndjson,
            Some("xml") => Self::Ncmec,
            _ => Self::Lines,
        }
    }
}

/// Entries of one file, in its order. An error concerns the file as a whole and is the last element.
pub type FileEntries = Box<dyn Iterator<Item = Result<FileEntry, FileError>>>;

/// Returns the entries of a file for a bank of the given kind.
pub fn read_entries(
    file: impl BufRead + Send + 'static,
    format: Format,
    kind: BankKind,
) -> Result<FileEntries, FileError> {
    match format {
        Format::Lines => Ok(plain_lines::plain_entries(file, kind)),
        Format::Ndjson => Ok(json_lines::json_entries(file, kind)),
        Format::Csv => csv_table::csv_entries(file, kind),
        Format::Ncmec => Ok(exchanges::ncmec::ncmec_entries(file, kind)),
        Format::Threatexchange => Ok(exchanges::paged_entries(file, kind, exchanges::threatexchange::change)),
        Format::Stopncii => Ok(exchanges::paged_entries(file, kind, exchanges::stopncii::change)),
        Format::Tat => Ok(exchanges::paged_entries(file, kind, exchanges::tat::change)),
    }
}
