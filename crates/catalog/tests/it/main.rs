//! The catalog on the embedded engine in a temporary folder.
#![allow(clippy::unwrap_used)]

mod banks;
mod changes;
mod first_start;
mod hash_banks;
mod keys;
mod live;
mod secrets;
mod signals;
mod support;
