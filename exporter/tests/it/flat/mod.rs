//! Tests of flat exports: formats, folders, parts, statements of reasons, and exports that are stopped.

mod dsa;
mod folders;
mod formats;
mod join;
pub(crate) mod rows;
mod stopped;
