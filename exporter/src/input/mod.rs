//! Input files of a conversion: from a folder, an archive, single files or standard input.
//!
//! `sources` reads their content.

mod files;
pub(crate) mod lines;
mod near_miss;
mod quotes;
mod sniff;
mod stream;
pub(crate) mod table;
mod unread_columns;
mod zip_archive;

pub(crate) use self::{
    files::{Input, Member, name_of},
    near_miss::{
        MAX_LISTED_FILES, broken_file_suffix, check_optional_file, explain_missing, explain_nearest,
        has_known_name, list_broken, list_files, missing_file_error, require_file, tool_file_name,
    },
    quotes::{MAX_CELLS, check_line},
    sniff::{Role, check_summary, detect_damaged_role, detect_role, find_single, read_pairs},
    stream::{FileDigest, Stream},
    unread_columns::note_dropped_columns,
};
use crate::error::{ConvertError, ErrorKind};

/// Limits on the cost of hostile or damaged input, each with an option to raise it.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum bytes of one row.
    pub max_row_bytes: usize,
    /// Maximum ratio of decompressed to compressed size, applied above 64 MiB.
    pub max_expansion: u64,
    /// Maximum number of files in one folder or archive.
    pub max_files: usize,
    /// Bytes of rows sorted in memory; larger inputs are sorted on disk.
    pub sort_memory: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_row_bytes: 16 << 20, max_expansion: 250, max_files: 10_000, sort_memory: 256 << 20 }
    }
}

impl Limits {
    fn check_file_count(&self, container: &str, count: usize) -> Result<(), ConvertError> {
        if count <= self.max_files {
            return Ok(());
        }
        let detail =
            format!("it holds {count} files, {} are allowed (--max-files allows more)", self.max_files);
        Err(ConvertError::content(container, None, ErrorKind::Bomb, detail))
    }

    fn bomb_error(&self, name: &str) -> ConvertError {
        let times = self.max_expansion;
        let detail = format!("it unpacks to more than {times} times its size (--max-expansion allows more)");
        ConvertError::content(name, None, ErrorKind::Bomb, detail)
    }
}
