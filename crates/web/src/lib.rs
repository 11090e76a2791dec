//! Parts that both HTTP servers share: authentication, error envelope, limits, serving and draining.
//!
//! It knows no route and no resource; `ingest` and `console` do.

mod answers;
mod body;
mod caller;
mod connection;
mod connections;
mod content_coding;
mod extract;
mod fair_budget;
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
pub use caller::{Scheme, authenticate, authorize, bearer};
pub use extract::{Path, Query};
pub use fair_budget::{FairBudget, Holder, Lease, Refusal};
pub use json::Json;
pub use networks::Network;
pub use problem::{Problem, handle_request, record_org};
pub use rates::{Rate, Rates};
pub use request_id::RequestId;
pub use serve::Drained;
pub use server::{AnswerFor, HttpServer, Limit, Load};
pub use settings::{Settings, SettingsError};

/// The router with [`handle_request`] around whatever it answers.
pub fn with_envelope(router: Router) -> Router {
    router.layer(from_fn(|request, next: Next| {
        handle_request(request, |mut request, id| {
            request.extensions_mut().insert(id);
            next.run(request)
        })
    }))
}
