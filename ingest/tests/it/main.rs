//! The API as a platform sees it: requests into the router, and what stands in the log afterwards.
//!
//! What records lead to is the processors' tests' concern.
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
