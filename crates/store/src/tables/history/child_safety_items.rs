//! Items with a child-safety job, so that an export without the scope can leave them out without a look-up per row.

use tidegate_schemas::ids::{ItemId, ItemKey, Kind, Millis, OrgId, TypeId, derive};
use uuid::Uuid;

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

impl ChildSafetyItem {
    pub fn new(org: &OrgId, item: &ItemKey, at: Millis) -> Self {
        let (type_id, item_id) = (item.type_id.clone(), item.id.clone());
        let digest: Uuid = derive(
            Kind::JobCause,
            &[b"child-safety-item", type_id.as_str().as_bytes(), item_id.as_str().as_bytes()],
        );
        let shard = i64::from(digest.as_bytes()[15]) % SHARDS;
        Self { org: org.clone(), shard, type_id, item_id, at }
    }
}
