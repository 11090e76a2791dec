//! History of an organisation as datasets: reports, decisions, actions and the other exported tables, with documented
//! columns.
//!
//! `tidegate-exporter` writes rows to files and builds bundles; the console streams them over HTTP.

mod column;
mod dataset;
mod error;
pub mod ndjson;
mod reader;
mod request;
mod restricted_items;
mod row;
pub mod snapshot;
mod value;

pub use self::{
    column::{Column, ColumnType},
    dataset::Dataset,
    error::Error,
    reader::RowReader,
    request::{InvalidPart, InvalidPosition, Part, RestrictionLookup, RowPosition, RowRequest, Visibility},
    row::StoredRow,
    snapshot::{SnapshotTime, load_snapshot_time},
    value::Value,
};
