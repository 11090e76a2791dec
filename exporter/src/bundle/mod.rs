//! Data bundles as files: written, read element by element, validated, inspected, compared and hashed.

pub mod diff;
pub mod digest;
pub mod inspect;
pub mod invalid_json;
pub(crate) mod read;
pub(crate) mod row_reader;
pub mod validate;
pub(crate) mod write;
