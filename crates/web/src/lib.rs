//! Parts that both HTTP servers share: authentication, error envelope, limits, serving and draining.
//!
//! It knows no route and no resource; `ingest` and `console` do.

mod body;
mod caller;
mod extract;
mod json;
mod limits;
mod linger;
pub mod metrics;
mod problem;
mod rate_headers;
mod request_id;
mod serve;
mod settings;
mod unsent;

use axum::{
    Router,
    middleware::{Next, from_fn},
};

pub use body::{Body, read};
pub use caller::{Scheme, authenticate, authorize, bearer};
pub use extract::{Path, Query};
pub use json::Json;
pub use limits::{InFlight, Rate, Rates, Spent};
pub use problem::{Problem, handle_request, record_org};
pub use request_id::RequestId;
pub use serve::{Drained, serve};
pub use settings::{Settings, SettingsError};

/// The router with [`handle_request`] around whatever it answers.
pub fn with_envelope(router: Router) -> Router {
    router.layer(from_fn(|request, next: Next| handle_request(request, |request, _| next.run(request))))
}
