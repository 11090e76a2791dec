//! Times at which deliveries are due.
//!
//! Rows are never deleted and promise nothing: the delivery's row is the truth, a stale due row is passed over.

use tidegate_schemas::ids::{EventId, Millis, OrgId};

use crate::table;

table! {
    /// A delivery to look at. `shard` is the partition of the callbacks topic, whose owner looks. A delivery is written
    /// with the row that it waits for, so these outlive it: after however long an outage none is missing.
    Fact Due in "due" ttl Some(35 days);
    partition { shard: i64, minute: i64 }
    cluster { due_at: Millis [Asc], org: OrgId [Asc], event_id: EventId [Asc] }
    values {
        /// The attempt that the writer had in mind. 0: its owner let go of the delivery before it had begun one, so
        /// the next owner need not wait for a call that may be under way.
        attempt: i64,
    }
}

table! {
    /// The oldest minute that a shard's scanner still has to look at.
    Fact DueCursor in "due_cursor" ttl None;
    partition { shard: i64 }
    cluster {}
    values {
        minute: i64,
        /// Write time of this row, in microseconds: the next write comes after it, whatever the clock says.
        written: Option<i64>,
    }
}
