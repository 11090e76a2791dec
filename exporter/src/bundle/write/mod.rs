//! How a bundle is written: in one pass, in a fixed order, one element a line.
//!
//! What is in it is decided before; the same content gives the same bytes.

pub(crate) mod document;
pub(crate) mod output;
pub(crate) mod pipeline;
pub(crate) mod row_lines;
mod writeback;
