//! The shapes of requests and answers between a platform and the service.
//!
//! It checks the form of a request; whether `data` fits its item type is `item_types`' concern.

pub mod actions;
pub mod answers;
pub mod appeals;
pub mod content;
pub mod items;
mod limits;
pub mod partial_items;
pub mod policies;
mod read;
mod rejected_request;
pub mod reports;

pub use limits::Limits;
pub use read::Request;
pub use rejected_request::{Misshapen, Part, Refused};
