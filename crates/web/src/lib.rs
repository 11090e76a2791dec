//! HTTP server parts shared by the API and the console: authentication, error envelope, limits, serving and draining. Routes
//! are defined in `ingest` and `console`.

mod answers;
mod body;
mod caller;
mod connection;
mod connections;
mod content_coding;
mod extract;
mod json;
pub mod metrics;
mod networks;
mod problem;
mod rate_headers;
mod rates;
mod request_id;
mod request_service;
mod serve;
mod server;
mod settings;
mod streams;
mod watched_stream;

use axum::{
    Router,
    middleware::{Next, from_fn},
};

pub use body::Body;
pub use caller::{Scheme, authenticate, authorize, bearer_token};
pub use extract::{Path, Query};
pub use json::Json;
pub use networks::Network;
pub use problem::{Problem, handle_request, record_org};
pub use rates::{RateDecision, RateLimiter};
pub use request_id::RequestId;
pub use serve::DrainOutcome;
pub use server::{AnswerOrg, HttpServer, Limit, RequestCounts};
pub use settings::{Settings, SettingsError};
pub use tidegate_scheduler::{BudgetRefusal, FairBudget, Holder, Lease};

/// Wraps the router's answers, including those of unknown routes, in [`handle_request`].
pub fn with_error_envelope(router: Router) -> Router {
    router.layer(from_fn(|request, next: Next| {
        handle_request(request, |mut request, id| {
            request.extensions_mut().insert(id);
            next.run(request)
        })
    }))
}
