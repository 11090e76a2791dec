//! The processes that run configurations, for whoever waits until all of them run a new one.
//!
//! It does not decide when a process counts as gone: its row expires.

use tidegate_schemas::ids::Millis;
use uuid::Uuid;

use crate::table;

table! {
    /// A process, renewed while it lives. `epoch` is the last one whose changes it runs all; `failing` lists as JSON
    /// what of them it cannot run; `load` is the processing time of organisations as JSON, if it evaluates items.
    Fact Member in "members" ttl Some(30 seconds);
    partition { name: String }
    cluster { member_id: Uuid [Asc] }
    values {
        label: String,
        started_at: Millis,
        seen_at: Millis,
        epoch: i64,
        failing: String,
        load: Option<String>,
    }
}

/// The only partition of [`Member`].
pub const ALL: &str = "members";
