//! Reads, writes, validates, inspects, compares and hashes data bundles in files.

pub mod diff;
pub mod digest;
pub mod inspect;
pub mod invalid_json;
pub(crate) mod read;
pub(crate) mod row_reader;
pub mod validate;
pub(crate) mod write;
