//! Progress of the migration that writes history events for rows of earlier versions.

use tidegate_schemas::ids::Millis;

use crate::table;

table! {
    /// A finished part of a table.
    Fact BackfilledPart in "history_backfill" ttl None;
    partition { source: String }
    cluster { part: i64 [Asc], parts: i64 [Asc] }
    values { rows: i64, finished_at: Millis }
}
