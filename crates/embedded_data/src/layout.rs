//! Names of the files and folders of a database.

use std::path::{Path, PathBuf};

/// Name of the database folder inside the data folder.
const FOLDER: &str = "db";
/// Name of the database folder while it is created.
pub(crate) const UNFINISHED: &str = "db.new";
/// Folder inside the database folder with one folder per table.
pub(crate) const TABLES: &str = "keyspaces";
/// Folder of the table that lists all tables.
pub(crate) const LIST_OF_TABLES: &str = "0";
/// Empty file that is locked while the database is open.
pub(crate) const LOCK: &str = "lock";
/// File that the database writes into a new folder before it takes a row, and its length.
pub(crate) const MARKER: &str = "version";
pub(crate) const MARKER_BYTES: u64 = 4;

/// Returns the database folder of a data folder.
pub fn folder_in(data: &Path) -> PathBuf {
    data.join(FOLDER)
}
