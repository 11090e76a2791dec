//! History of an organisation as datasets: reports, decisions, actions and the other exported tables, with documented
//! columns.
//!
//! `tidegate-exporter` writes rows to files and builds bundles; the console streams them over HTTP.

mod column;
mod dataset;
mod value;

pub use self::{
    column::{Column, ColumnType},
    dataset::Dataset,
    value::Value,
};
