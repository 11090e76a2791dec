//! Tests of the platform API: requests to the router, and the records in the log.
//!
//! The effects of records are tested in `processors`.
#![allow(clippy::unwrap_used)]

mod actions;
mod appeals;
mod bad_input;
mod callers;
mod content;
mod fields;
mod idempotency;
mod items;
mod leniency;
mod look_ups;
mod openapi;
mod pressure;
mod reports;
mod spans;
mod support;
mod versions;
