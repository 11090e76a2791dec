//! The server as sockets see it.
#![allow(clippy::unwrap_used)]

mod compressed;
mod server;
mod support;
mod unread;
