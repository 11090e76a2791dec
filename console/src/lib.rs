//! The console's port: serves pages for people and the admin API for programs.
//!
//! A handler reads the request, calls `moderation` or `catalog` once, and renders the result. Pages call the functions of the
//! admin API.

pub mod admin;
mod day_place;
mod deliveries;
mod html;
mod pages;
mod settings;
mod sign_in_attempts;
mod signin;
mod user_history;

use std::sync::Arc;

use tidegate_catalog::{Banks, Keys, Secrets, change::Changes};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub use self::{
    admin::LocalToken,
    settings::{Settings, SettingsError},
};

/// Dependencies of the console.
#[derive(Clone)]
pub struct Deps {
    pub moderation: tidegate_moderation::Deps,
    pub keys: Keys,
    pub secrets: Secrets,
    pub changes: Changes,
    pub banks: Banks,
    /// Authenticates commands of the same user on the same machine.
    pub local_token: Arc<LocalToken>,
    /// Rows that may be read to count one window, as in the role `process`.
    pub window_rows: usize,
}

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
