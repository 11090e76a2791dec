//! Index of stored items of an organisation by hour. Rows point to the rows of the items.

use tidegate_schemas::ids::{ItemId, Millis, OrgId, SubmissionId, TypeId};

use crate::table;

table! {
    /// Pointer to a submission in `items`. `draw` is a number contained in its id, so the rows below a
    /// bound are a fair sample of the hour that can be read alone. `shard` is the upper part of the draw.
    Fact ItemOfHour in "items_by_hour" ttl Some(100 days), window 4 days;
    partition { org: OrgId, hour: i64, shard: i64 }
    cluster { draw: i64 [Asc], submission_id: SubmissionId [Asc] }
    values { type_id: TypeId, item_id: ItemId, append_ms: Millis, offset: i64, position: i64 }
}
