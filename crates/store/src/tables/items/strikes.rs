//! Strikes of users and their reversals; the sum inside a window is the user's standing.

use tidegate_schemas::ids::{ActionId, CauseId, EventId, ItemId, ItemKey, Millis, OrgId, TypeId};

use crate::table;

table! {
    /// A strike. `cause` is the event that issued it, `at` the append time of the record behind that event, `seq` the
    /// offset of its first record in the strikes topic.
    Fact Strike in "strikes" ttl None;
    partition { org: OrgId, user: ItemKey }
    cluster { at: Millis [Desc], cause: CauseId [Asc] }
    values { points: i64, action: ActionId, item: ItemKey, seq: i64 }
}

table! {
    /// Reversal of a strike. `reversed` is the cause of the strike.
    Fact StrikeReversal in "strike_reversals" ttl None;
    partition { org: OrgId, user: ItemKey }
    cluster { cause: CauseId [Asc] }
    values { reversed: CauseId, at: Millis, points: i64, seq: i64 }
}

table! {
    /// An action on an item with its strikes, to be reversed by an accepted appeal.
    Fact ActionByItem in "actions_by_item" ttl None;
    partition { org: OrgId, type_id: TypeId, item_id: ItemId }
    cluster { event_id: EventId [Asc] }
    values {
        action: ActionId,
        at: Millis,
        user: Option<ItemKey>,
        points: i64,
        /// JSON: the versions of the rules that led to it.
        hits: Option<String>,
        /// Person or system that took the action; absent for actions of rules and thresholds, and for rows of earlier versions.
        actor: Option<String>,
        /// Time of the action's history event; absent in rows of earlier versions, which wrote none.
        recorded_at: Option<Millis>,
    }
}
