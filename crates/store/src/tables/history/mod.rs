//! History of organisations by time, for exports.

pub mod backfill;
pub mod child_safety_items;
pub mod events;
pub mod export_schedules;
pub mod handled_times;
