//! Integration tests of the crate, one binary. `hostile_records` stays apart: it needs a counting allocator of its own.

#![allow(clippy::unwrap_used)]

mod agreement;
mod documents;
mod item_types;
mod openapi;
mod published_documents;
mod wire_json;
mod wire_requests;
