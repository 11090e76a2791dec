//! Peers that tests connect to.

pub(crate) mod receiver;
