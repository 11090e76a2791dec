//! What both HTTP servers share: who calls, how faults are told, limits, serving and draining.
//!
//! It knows no route and no resource; `ingest` and `console` do.

mod body;
mod limits;
mod problem;
mod request_id;
mod serve;
mod settings;

pub use body::{Body, read};
pub use limits::{InFlight, Rate, Rates, Spent};
pub use problem::{Problem, envelope};
pub use request_id::{RequestId, tag_request};
pub use serve::{Drained, serve};
pub use settings::{Contradiction, Settings};
