//! The console's port: serves pages for people and the admin API for programs.
//!
//! A handler reads the request, calls `moderation` or `catalog` once, and renders the result. Pages call the functions of the
//! admin API.

pub mod admin;
mod api;
mod html;
mod pages;
mod signin;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub use self::api::{
    Deps,
    local_token::LocalToken,
    settings::{Settings, SettingsError},
};

/// Serves until `stop`, then drains.
pub async fn run(
    deps: Deps,
    settings: Settings,
    http: tidegate_web::HttpServer,
    listener: TcpListener,
    stop: CancellationToken,
) -> tidegate_web::DrainOutcome {
    let api = admin::build_api(deps, settings, http.clone());
    let router = admin::router(&api).merge(pages::router(&api)).with_state(api);
    // Outermost, so that unknown paths and refusals of the layers have the envelope as well.
    let router = tidegate_web::with_error_envelope(router);
    http.serve(listener, router, stop).await
}
