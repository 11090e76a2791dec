//! The role `process` on the embedded engine, in a temporary folder: from records to rows and records.

mod along;
mod batches;
mod child_safety;
mod cluster;
mod handled_times;
mod history;
mod hosts;
mod items;
mod left_out;
mod life;
mod media;
mod missing;
mod partial_items;
mod poison;
mod queues;
mod related;
mod replays;
mod retroact;
mod reviews;
mod routing;
mod scores;
mod slow_rules;
mod standing;
mod windows;
mod world;
