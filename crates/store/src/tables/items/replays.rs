//! Marks of replayed dead letters. The letters themselves stay in the log.

use tidegate_schemas::ids::{Millis, OrgId};

use crate::table;

table! {
    /// The last replay of a dead letter; `letter` is its id, made of partition and offset.
    Fact Replay in "dead_letter_replays" ttl Some(400 days);
    partition { org: OrgId, letter: String }
    cluster {}
    values { replayed_at: Millis, replayed_by: String }
}
