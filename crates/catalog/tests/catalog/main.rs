//! The catalog on the embedded engine in a temporary folder.
#![allow(clippy::unwrap_used)]

mod changes;
mod first_start;
mod keys;
mod live;
mod secrets;
mod support;
