//! Sorting and grouping of more data than fits into memory: sorted runs in temporary files, merged.

pub(crate) mod rows;
pub mod spill;
