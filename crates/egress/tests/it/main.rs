//! The guarded client against real sockets.

mod address_guard;
mod callbacks;
mod media_fetch;
mod partial_items;
mod signature;
mod support;
mod tls;
