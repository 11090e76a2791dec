//! Processes that run configurations. A change waits until all of them run it.
//!
//! The row of a stopped process expires.

use tidegate_schemas::ids::Millis;
use uuid::Uuid;

use crate::table;

table! {
    /// A process, renewed while it lives. `epoch` is the last one with all changes running; `failing` lists as JSON the
    /// configurations that it cannot run; `load` is the processing time of organisations as JSON, if it evaluates items.
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
