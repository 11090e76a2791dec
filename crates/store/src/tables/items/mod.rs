//! Items that platforms sent, and their effects.

pub mod by_user;
pub mod history;
pub mod idempotency;
#[allow(clippy::module_inception, reason = "one file a table, and this table has the name of its folder")]
pub mod items;
pub mod limits;
pub mod media_prints;
pub mod plans;
pub mod replays;
pub mod retroactions;
pub mod rules;
pub mod scores;
pub mod strikes;
pub mod windows;
