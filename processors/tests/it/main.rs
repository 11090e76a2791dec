//! Integration tests of the roles `process` and `deliver` on the embedded engine, in a temporary folder.
#![allow(clippy::unwrap_used)]

mod callbacks;
mod pipeline;
