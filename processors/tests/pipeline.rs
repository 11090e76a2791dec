//! The role `process` on the embedded engine, in a temporary folder: from records to rows and records.
#![allow(clippy::unwrap_used)]

#[path = "pipeline/along.rs"]
mod along;
#[path = "pipeline/cluster.rs"]
mod cluster;
#[path = "pipeline/history.rs"]
mod history;
#[path = "pipeline/hosts.rs"]
mod hosts;
#[path = "pipeline/items.rs"]
mod items;
#[path = "pipeline/left_out.rs"]
mod left_out;
#[path = "pipeline/life.rs"]
mod life;
#[path = "pipeline/media.rs"]
mod media;
#[path = "pipeline/missing.rs"]
mod missing;
#[path = "pipeline/poison.rs"]
mod poison;
#[path = "pipeline/replays.rs"]
mod replays;
#[path = "pipeline/retroact.rs"]
mod retroact;
#[path = "pipeline/reviews.rs"]
mod reviews;
#[path = "pipeline/standing.rs"]
mod standing;
#[path = "pipeline/windows.rs"]
mod windows;
#[path = "pipeline/world.rs"]
mod world;
