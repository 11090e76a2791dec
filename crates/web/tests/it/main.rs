//! Tests of the HTTP server through its socket.
#![allow(clippy::unwrap_used)]

mod compressed;
mod server;
mod support;
mod unread;
