//! The shapes of requests and answers between a platform and the service.
//!
//! It checks the form of a request; whether `data` fits its item type is `item_types`' concern.

pub mod fault;
pub mod json;

pub use fault::{Fault, Faults, Pointer};
