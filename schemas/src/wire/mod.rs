//! The shapes of requests and answers between a platform and the service.
//!
//! It checks the form of a request; whether `data` fits its item type is `item_types`' concern.

pub mod answers;
pub mod appeals;
pub mod fault;
pub mod items;
pub mod json;
mod limits;
mod places;
pub mod policies;
mod read;
mod refused;
pub mod reports;

pub use fault::{Fault, Faults, Pointer};
pub use limits::Limits;
pub use read::Request;
pub use refused::{Misshapen, Part, Refused};
