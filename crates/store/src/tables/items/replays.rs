//! Which dead letters were sent back.
//!
//! The letters themselves stay in the log.

use tidegate_schemas::ids::{Millis, OrgId};

use crate::table;

table! {
    /// The last time that a letter was sent back; `letter` is its place among the dead letters.
    Fact Replay in "dead_letter_replays" ttl Some(400 days);
    partition { org: OrgId, letter: String }
    cluster {}
    values { replayed_at: Millis, replayed_by: String }
}
