//! Media of the context items of reports and appeals.
//!
//! A reported item is a submission of its own; its media are in its own row.

use tidegate_schemas::ids::{ItemId, Millis, OrgId, TypeId};
use uuid::Uuid;

use crate::table;

table! {
    /// Media of a context item of a report or an appeal. `cause` is the id of the job's cause.
    Fact ContextMedia in "context_media" ttl None;
    partition { org: OrgId, cause: Uuid }
    cluster { type_id: TypeId [Asc], item_id: ItemId [Asc] }
    values { media: String, looked_at: Millis }
}
