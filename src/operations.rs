//! The operations port: `/livez`, `/readyz`, `/metrics`, `/buildinfo`, answered from what is known already.
//!
//! It looks at nothing itself; `health` does.

use axum::{
    Json, Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use metrics_exporter_prometheus::PrometheusHandle;

use crate::{health::Health, telemetry::BUILD};

pub(crate) fn router(health: Health, metrics: PrometheusHandle) -> Router {
    Router::new()
        .route("/livez", get(async || "alive\n"))
        .route("/readyz", get(ready))
        .with_state(health)
        .route("/metrics", get(move || render(metrics.clone())))
        .route("/buildinfo", get(async || Json(BUILD)))
}

async fn ready(State(health): State<Health>) -> Response {
    let report = health.report();
    let status = if report.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(report)).into_response()
}

async fn render(metrics: PrometheusHandle) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], metrics.render())
}
