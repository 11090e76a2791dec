//! What an item, a report, an appeal or a decision leads to: evaluate, plan, apply.
//!
//! It consumes no topic and serves no request: `processors`, `ingest` and `console` call it.

pub mod dead_letters;
pub mod effects;
pub mod items;
pub mod jobs;
pub mod media;
pub mod reevaluation;
pub mod review;
pub mod rules;
pub mod strikes;

mod error;

use std::sync::Arc;

use tidegate_catalog::Live;
use tidegate_store::Store;
use tidegate_stream::Log;

pub use error::Error;

/// What every operation works on: the log, the store, and the configuration that is live.
#[derive(Clone)]
pub struct Deps {
    pub log: Log,
    pub store: Store,
    pub live: Arc<Live>,
}
