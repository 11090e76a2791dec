//! Writes a bundle in one pass, in a fixed order, one element a line.
//!
//! Equal content gives equal bytes.

pub(crate) mod document;
pub(crate) mod output;
pub(crate) mod pipeline;
pub(crate) mod row_lines;
mod writeback;
