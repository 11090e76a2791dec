//! Consumers of the log's topics: items, reports, appeals, decisions, strikes and callbacks, each in the order of its key.
//!
//! The effects of content are decided in `tidegate-moderation`.

pub mod callbacks;
mod consumer;
mod due;
mod handled_times;
mod handlers;
mod health;
mod items;
pub mod metrics;
mod process;
mod settings;

use std::sync::Arc;

use tidegate_catalog::{LiveConfigs, Secrets};
use tidegate_egress::{Client, settings::PartialItemsEndpoints};
use tidegate_moderation::{media::MediaInspector, scores::Scorer};
use tidegate_store::Store;
use tidegate_stream::Log;

pub use self::{
    consumer::error::RoleError,
    health::Health,
    process::process,
    settings::{MediaSettings, MissingConfigSettings, PoisonSettings, Settings, SettingsError},
};

/// Shared handles of the process for the role `process`.
#[derive(Clone)]
pub struct Deps {
    pub log: Log,
    pub store: Store,
    pub live: Arc<LiveConfigs>,
    pub signals: MediaInspector,
    pub scorer: Scorer,
    pub partial_items: PartialItemsDeps,
    /// Shared by all roles of the process.
    pub health: Health,
}

/// Endpoints, client and secrets for requests for items to platforms.
#[derive(Clone)]
pub struct PartialItemsDeps {
    pub endpoints: Arc<PartialItemsEndpoints>,
    pub client: Client,
    pub secrets: Secrets,
}
