//! Index of the times at which deliveries are due.
//!
//! Rows are never deleted. The delivery's row is authoritative, and stale due rows are skipped.

use tidegate_schemas::ids::{EventId, Millis, OrgId};

use crate::table;

table! {
    /// A delivery that may be due. `shard` is the partition of the callbacks topic; its owner reads the rows. A delivery
    /// and its due row are written together and the due row expires later, so an outage of any length loses none.
    Fact Due in "due" ttl Some(35 days);
    partition { shard: i64, minute: i64 }
    cluster { due_at: Millis [Asc], org: OrgId [Asc], event_id: EventId [Asc] }
    values {
        /// Number of the planned attempt. 0: the owner released the delivery before its attempt began, so the next owner
        /// need not wait for a running call.
        attempt: i64,
    }
}

table! {
    /// Oldest minute that the scanner of a shard has not finished.
    Fact DueCursor in "due_cursor" ttl None;
    partition { shard: i64 }
    cluster {}
    values {
        minute: i64,
        /// Write time of this row, in microseconds: the next write uses a later one, even if the clock went back.
        written: Option<i64>,
    }
}
