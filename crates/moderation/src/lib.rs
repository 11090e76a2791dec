//! What an item, a report, an appeal or a decision leads to: evaluate, plan, apply.
//!
//! It consumes no topic and serves no request: `processors`, `ingest` and `console` call it.

pub mod appeals;
pub mod backtest;
pub mod baselines;
pub mod context;
pub mod context_media;
pub mod decisions;
pub mod effects;
pub mod evaluate;
pub mod events;
pub mod history;
pub mod items;
pub mod job_answers;
pub mod jobs;
pub mod limits;
pub mod past;
pub mod queues;
pub mod reports;
pub mod retroact;
pub mod rule_stats;
pub mod signals;
pub mod strikes;
pub mod submissions;
pub mod windows;

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
