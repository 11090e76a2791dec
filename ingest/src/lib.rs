//! HTTP API for platforms: appends items, reports, appeals and actions to the log, and returns policies and items.
//!
//! Consumers in `tidegate-processors` evaluate the records and carry out their effects.

mod actions;
mod admission;
mod appeals;
mod config;
mod content;
mod context;
mod failures;
mod idempotency;
mod item;
mod items;
mod lag;
pub mod metrics;
mod openapi;
mod policies;
mod refused;
mod reports;
mod settings;

use std::{sync::Arc, time::Instant};

use axum::{
    Router,
    extract::Request,
    http::StatusCode,
    response::IntoResponse,
    routing::{MethodFilter, MethodRouter},
};
use tidegate_catalog::{Keys, LiveConfigs, Scope};
use tidegate_store::Store;
use tidegate_stream::Log;
use tidegate_web::{DrainOutcome, FairBudget, HttpServer, RateLimiter, handle_request};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{
    admission::{authorized_route, open_route},
    lag::LagGate,
};
pub use settings::{Settings, SettingsError};

/// Dependencies of the API.
#[derive(Clone)]
pub struct Deps {
    pub log: Log,
    pub store: Store,
    pub live: Arc<LiveConfigs>,
    pub keys: Keys,
}

/// Reason that the API cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error(transparent)]
    Http(#[from] tidegate_web::SettingsError),
}

impl Error {
    pub fn tag(&self) -> &'static str {
        match self {
            Self::Settings(_) => "ingest_settings",
            Self::Http(_) => "http_settings",
        }
    }
}

/// Shared state of the handlers.
struct Api {
    deps: Deps,
    settings: Settings,
    http: HttpServer,
    rates: RateLimiter,
    /// Budget of concurrent requests that wait for an item's evaluation.
    waiting_requests: FairBudget,
    lag: Arc<LagGate>,
    item_counters: metrics::ItemCounters,
    stop: CancellationToken,
}

type Shared = Arc<Api>;

/// Builds the routes, and starts the task that follows the lag until `stop`. Requires a tokio runtime.
pub fn router(
    deps: Deps,
    settings: &Settings,
    http: &HttpServer,
    stop: CancellationToken,
) -> Result<Router, Error> {
    settings.validate()?;
    let lag = Arc::new(LagGate::new(settings.max_lag(), Instant::now()));
    tokio::spawn(Arc::clone(&lag).watch(deps.log.clone(), Arc::clone(&deps.live), stop.clone()));
    let api = Arc::new(Api {
        deps,
        settings: settings.clone(),
        http: http.clone(),
        rates: RateLimiter::new(http.settings().requests_per_second, http.settings().burst),
        waiting_requests: FairBudget::new(settings.waiting_requests, metrics::waiting_gauge()),
        lag,
        item_counters: metrics::ItemCounters::new(),
        stop,
    });
    let (get, post) = (MethodFilter::GET, MethodFilter::POST);
    let routes: [(&str, MethodRouter); 9] = [
        ("/api/v1/items/async", authorized_route(&api, "items", Scope::ItemsWrite, post, items::submit)),
        ("/api/v1/actions", authorized_route(&api, "actions", Scope::ActionsWrite, post, actions::submit)),
        ("/api/v1/content", authorized_route(&api, "content", Scope::ItemsWrite, post, content::submit)),
        ("/api/v1/report", authorized_route(&api, "report", Scope::ReportsWrite, post, reports::submit)),
        (
            "/api/v1/report/appeal",
            authorized_route(&api, "appeal", Scope::AppealsWrite, post, appeals::submit),
        ),
        ("/api/v1/policies", authorized_route(&api, "policies", Scope::PoliciesRead, get, policies::list)),
        ("/api/v1/items/{type_id}/{id}", authorized_route(&api, "item", Scope::ItemsRead, get, item::show)),
        ("/openapi.json", open_route("openapi", openapi::serve_document)),
        ("/docs", open_route("docs", openapi::serve_page)),
    ];
    let mut router = Router::new();
    for (path, route) in routes {
        // Clients send both forms, with and without a trailing slash.
        router = router.route(path, route.clone()).route(&format!("{path}/"), route);
    }
    // Through `handle_request`, so unknown routes and methods get the same envelope as other errors.
    let empty_response = |status: StatusCode| {
        move |request: Request| handle_request(request, move |_, _| async move { status.into_response() })
    };
    Ok(router
        .fallback(empty_response(StatusCode::NOT_FOUND))
        .method_not_allowed_fallback(empty_response(StatusCode::METHOD_NOT_ALLOWED)))
}

/// Serves the API until `stop`, then drains it.
pub async fn run(
    deps: Deps,
    settings: Settings,
    http: HttpServer,
    listener: TcpListener,
    stop: CancellationToken,
) -> Result<DrainOutcome, Error> {
    let router = router(deps, &settings, &http, stop.clone())?;
    Ok(http.serve(listener, router, stop).await)
}
