//! Operations port: `/livez`, `/readyz`, `/metrics` and `/buildinfo`, on a thread of its own, so that probes are answered while all
//! other threads are busy.
//!
//! The state behind `/readyz` is collected by `health`.

use std::thread::JoinHandle;

use anyhow::Context as _;

use axum::{
    Json, Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use metrics_exporter_prometheus::PrometheusHandle;
use tidegate_web::HttpServer;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{health::Health, open_files::OPERATIONS_CONNECTIONS, telemetry::BUILD};

/// Server of the operations port. It outlives the roles, so that probes see them drain.
pub(crate) struct Server {
    stop: CancellationToken,
    thread: JoinHandle<()>,
}

impl Server {
    pub(crate) fn start(listener: TcpListener, router: Router) -> anyhow::Result<Self> {
        const DRAIN_MS: u64 = 1_000;
        let settings = tidegate_web::Settings {
            connections: OPERATIONS_CONNECTIONS,
            drain_ms: DRAIN_MS,
            ..tidegate_web::Settings::default()
        };
        let server = HttpServer::new("operations", settings)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        // A socket belongs to the runtime that it was registered with, so it is registered again on the new one.
        let listener = listener.into_std()?;
        let stop = CancellationToken::new();
        let stop_signal = stop.clone();
        let serve = move || {
            runtime.block_on(async move {
                match TcpListener::from_std(listener) {
                    Ok(listener) => drop(server.serve(listener, router, stop_signal).await),
                    Err(error) => tracing::error!(%error, "the operations port is not served"),
                }
            });
        };
        let thread = std::thread::Builder::new().name("operations".to_owned()).spawn(serve);
        Ok(Self { stop, thread: thread.context("the operations port has no thread")? })
    }

    /// Drains open requests for at most a second, then ends the thread.
    pub(crate) fn stop(self) {
        self.stop.cancel();
        if self.thread.join().is_err() {
            tracing::error!("the thread of the operations port panicked");
        }
    }
}

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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{
        io::{Read, Write},
        time::Duration,
    };

    use super::*;

    #[tokio::test]
    async fn probe_is_answered_while_every_worker_is_busy() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/livez", get(async || "alive\n"));
        let server = Server::start(listener, router).unwrap();
        // The one worker of this runtime blocks here.
        let mut client = std::net::TcpStream::connect(address).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        client.write_all(b"GET /livez HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("alive\n"), "{answer}");
        server.stop();
    }
}
