//! Items with a child-safety job, so that an export without the scope can leave them out without a look-up per row.

use tidegate_schemas::ids::{ItemId, Millis, OrgId, TypeId};

use crate::table;

table! {
    /// Item that has or had a child-safety job. The job's row tells whether the item is still restricted.
    Fact ChildSafetyItem in "child_safety_items" ttl None;
    partition { org: OrgId, shard: i64 }
    cluster { type_id: TypeId [Asc], item_id: ItemId [Asc] }
    values { at: Millis }
}

/// Number of partitions of an organisation.
pub const SHARDS: i64 = 64;
