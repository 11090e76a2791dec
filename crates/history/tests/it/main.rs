//! Tests of the reader on either engine of the store.
#![allow(clippy::unwrap_used)]

mod fixture;
mod order;
mod stored;
