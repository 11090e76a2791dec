//! The server as sockets see it.
#![allow(clippy::unwrap_used)]

mod server;
mod support;
mod unread;
