//! Media of items that came along with reports and appeals.
//!
//! Reported items are submissions of their own, and their media stand in their own rows.

use tidegate_schemas::ids::{ItemId, Millis, OrgId, TypeId};
use uuid::Uuid;

use crate::table;

table! {
    /// The media of an item that came with what caused a job; `cause` is that of the job's cause.
    Fact ContextMedia in "context_media" ttl None;
    partition { org: OrgId, cause: Uuid }
    cluster { type_id: TypeId [Asc], item_id: ItemId [Asc] }
    values { media: String, looked_at: Millis }
}
