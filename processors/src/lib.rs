//! What the topics lead to: items, reports, appeals, decisions, strikes and callbacks, each consumed in the order of
//! its key.
//!
//! It decides nothing about content (`tidegate-moderation` does) and serves no request.

pub mod callbacks;
mod consumer;
mod handlers;
mod health;
mod items;
mod process;
mod scheduler;
mod settings;

use std::sync::Arc;

use tidegate_catalog::Live;
use tidegate_moderation::media::Signals;
use tidegate_store::Store;
use tidegate_stream::Log;

pub use self::{
    consumer::{
        error::RoleError, missing_config::Settings as MissingSettings,
        poison_monitor::Settings as PoisonSettings,
    },
    health::Health,
    items::media_wait::Settings as MediaSettings,
    process::process,
    settings::{Settings, SettingsError},
};

/// What a role works on.
#[derive(Clone)]
pub struct Deps {
    pub log: Log,
    pub store: Store,
    pub live: Arc<Live>,
    pub signals: Signals,
    /// Shared by the roles of the process, and asked by readiness.
    pub health: Health,
}
