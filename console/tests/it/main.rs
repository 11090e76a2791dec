//! Tests of the console's port through its socket.
#![allow(clippy::unwrap_used)]

mod exports;
mod service;
mod stored;
