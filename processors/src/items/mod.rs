//! Processing of items: evaluates records of the topics `items` and `items-slow` and carries out their effects.

pub(crate) mod alarm_thresholds;
mod attached_media;
pub(crate) mod compute_pool;
mod counting_threads;
pub(crate) mod fact_lookup;
mod fetched;
mod handler;
mod job;
pub(crate) mod media_wait;
pub(crate) mod pipeline;
mod reevaluation;
mod replays;
pub(crate) mod rule_counters;
pub(crate) mod rule_limits;
pub(crate) mod score_wait;
pub(crate) mod slow_queue;
pub(crate) mod window_order;
