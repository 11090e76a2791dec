//! The admin API on the console's port: configuration, keys, jobs, deliveries, dead letters.
//!
//! It decides nothing itself: a handler reads the request, makes one call into `moderation` or `catalog`, and renders.

pub mod admin;
mod day_place;
mod deliveries;
mod settings;

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
    /// Lets commands of the same user in, on the machine that the process runs on.
    pub local_token: Arc<LocalToken>,
    /// Rows that may be read for what a window has counted: as processors do.
    pub window_rows: usize,
}

/// Serves until it is told to stop, then drains.
pub async fn run(
    deps: Deps,
    settings: Settings,
    http: tidegate_web::HttpServer,
    listener: TcpListener,
    stop: CancellationToken,
) -> tidegate_web::Drained {
    let router = admin::router(deps, settings, http.clone());
    http.serve(listener, router, stop).await
}
