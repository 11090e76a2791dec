//! Request and response bodies of the platform API. `data` is validated against its item type in `item_types`.

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
pub use rejected_request::{InvalidRequest, Part, RequestRejection};
