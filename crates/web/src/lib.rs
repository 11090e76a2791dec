//! What both HTTP servers share: who calls, how faults are told, limits, serving and draining.
//!
//! It knows no route and no resource; `ingest` and `console` do.

mod body;
mod caller;
mod extract;
mod limits;
mod problem;
mod rate_headers;
mod request_id;
mod serve;
mod settings;

pub use body::{Body, read};
pub use caller::{Scheme, authenticate, authorize, bearer};
pub use extract::{Path, Query};
pub use limits::{InFlight, Rate, Rates, Spent};
pub use problem::Problem;
pub use request_id::RequestId;
pub use serve::{Drained, serve};
pub use settings::{Contradiction, Settings};

/// What every route of both servers stands under: the request's id, the envelope of problems, and an answer for whoever
/// calls a handler that panics.
pub fn dressed(router: axum::Router) -> axum::Router {
    router.layer(axum::middleware::from_fn(problem::dress))
}
