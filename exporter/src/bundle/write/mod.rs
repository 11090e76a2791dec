//! Writes a bundle in one pass, in a fixed order, with one element on each line. Equal content gives equal bytes.

pub(crate) mod document;
pub(crate) mod output;
pub(crate) mod pipeline;
pub(crate) mod row_lines;
mod writeback;
