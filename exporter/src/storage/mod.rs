//! External sorting and grouping: data that exceeds the memory limit is written to temporary files as sorted runs,
//! which are merged.

pub(crate) mod rows;
pub mod spill;
