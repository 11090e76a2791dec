//! Moderation: evaluates items, plans and carries out effects, and handles reviews, reports, appeals and strikes.
//! `processors` calls it for records of the log, `ingest` and `console` for requests.

pub mod child_safety;
pub mod dead_letters;
mod deps;
pub mod effects;
mod error;
pub mod history_backfill;
pub mod items;
pub mod jobs;
pub mod media;
pub mod metrics;
pub mod outbound;
pub mod partial_items;
pub mod reevaluation;
pub mod review;
pub mod rules;
pub mod scores;
pub mod users;

pub use self::{deps::Deps, error::Error};
