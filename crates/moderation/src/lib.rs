//! Moderation: evaluates items, plans and carries out effects, and handles reviews, reports, appeals and strikes.
//! `processors` calls it for records of the log, `ingest` and `console` for requests.

pub mod child_safety;
pub mod dead_letters;
pub mod effects;
pub mod items;
mod job_moves;
pub mod jobs;
pub mod media;
pub mod metrics;
pub mod partial_items;
pub mod priority;
pub mod queue_counts;
pub mod reevaluation;
pub mod reporters;
pub mod review;
pub mod routing;
pub mod rules;
pub mod scores;
pub mod single_flight;
mod standing;
pub mod strikes;
mod user_history;
pub mod users;

mod error;

use std::sync::Arc;

use tidegate_catalog::LiveConfigs;
use tidegate_egress::settings::PartialItemsEndpoints;
use tidegate_store::Store;
use tidegate_stream::Log;

pub use error::Error;

/// Dependencies of every operation: log, store and live configurations.
#[derive(Clone)]
pub struct Deps {
    pub log: Log,
    pub store: Store,
    pub live: Arc<LiveConfigs>,
    /// Endpoints of platforms that deliver items on request, by org.
    pub partial_items: Arc<PartialItemsEndpoints>,
}
