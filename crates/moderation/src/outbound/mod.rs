//! Shared parts of calls to other hosts: circuit breakers, pauses between attempts, and joining of equal calls.
//! `media` fetches, `scores` calls models, and `partial_items` calls platforms with them.

pub(crate) mod host_breaker;
pub(crate) mod retry;
pub mod single_flight;
