//! Append-only events by day. `tidegate-moderation` writes them with the effects, `tidegate-history` reads them.

use tidegate_schemas::{
    history::{EventOfKind, HistoryKind},
    ids::{ItemKey, Millis, OrgId},
};
use uuid::Uuid;

use crate::{string_column, table};

string_column!(HistoryKind);

table! {
    /// One event. `at` is the append time of the record whose processing caused it, the first one if the record was appended
    /// again. `shard` comes from the id and spreads a busy day.
    Fact HistoryEvent in "history_events" ttl None;
    partition { org: OrgId, kind: HistoryKind, day: i64, shard: i64 }
    cluster { at: Millis [Asc], id: Uuid [Asc] }
    values {
        item: ItemKey,
        /// True for child-safety material.
        child_safety: bool,
        /// JSON of the event of this kind, as `tidegate_schemas::history` declares it.
        event: String,
    }
}

/// Subject and time of an event.
#[derive(Clone, Copy, Debug)]
pub struct EventHead<'a> {
    pub org: &'a OrgId,
    pub id: Uuid,
    /// Append time of the record whose processing causes the event.
    pub at: Millis,
    pub item: &'a ItemKey,
    pub is_child_safety: bool,
}

impl HistoryEvent {
    pub fn new<E: EventOfKind>(head: EventHead<'_>, event: &E) -> Self {
        Self {
            org: head.org.clone(),
            kind: E::KIND,
            day: head.at.day(),
            shard: shard_of(head.id),
            at: head.at,
            id: head.id,
            item: head.item.clone(),
            child_safety: head.is_child_safety,
            event: event.to_json(),
        }
    }
}

/// Number of partitions of a day.
pub const SHARDS: i64 = 32;

/// Returns the partition of an id within its day.
pub fn shard_of(id: Uuid) -> i64 {
    i64::from(id.as_bytes()[15]) % SHARDS
}
