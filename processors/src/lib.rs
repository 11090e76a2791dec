//! What the topics lead to: items, reports, appeals, decisions, strikes and callbacks, each consumed in the order of
//! its key.
//!
//! It decides nothing about content (`tidegate-moderation` does) and serves no request.

mod allowances;
mod appeals;
mod backoff;
pub mod callbacks;
mod decision_due;
mod decisions;
mod due_scan;
mod error;
mod expected;
mod facts;
mod handler;
mod health;
mod items;
pub mod lanes;
mod line;
mod looking;
mod missing;
mod place;
mod poison;
mod pool;
mod process;
mod reports;
mod seats;
mod settings;
mod strikes;
mod tally;
mod trying;
mod turns;
mod worker;

use std::sync::Arc;

use tidegate_catalog::Live;
use tidegate_moderation::media::Signals;
use tidegate_store::Store;
use tidegate_stream::Log;

pub use self::{
    error::RoleError,
    health::Health,
    looking::Settings as MediaSettings,
    missing::Settings as MissingSettings,
    poison::Settings as PoisonSettings,
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
