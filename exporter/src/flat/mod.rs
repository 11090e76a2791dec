//! Writes rows of the history's datasets as NDJSON, CSV or Parquet: one file, a stream, or a folder with one file a day.
//!
//! [`Export`] writes a dataset with its manifest, [`RowSink`] a single file of any columns. `tidegate-history` reads the
//! rows, and `destination` transfers finished files.

mod csv;
pub mod dsa;
mod export;
mod filter;
mod folder;
mod join;
mod manifest;
mod names;
mod ndjson;
mod output_file;
mod parquet;
pub mod progress;
mod row_check;
mod selection;
mod sink;

pub use self::{
    export::{Export, ExportOptions, ExportSummary, ExportTarget},
    filter::RowFilter,
    join::join_parts,
    manifest::{MANIFEST_VERSION, Manifest, ManifestColumn},
    names::{FlatFormat, Partition},
    output_file::FileSummary,
    selection::ColumnSelection,
    sink::{RowSink, SinkOptions, SinkTarget},
};
