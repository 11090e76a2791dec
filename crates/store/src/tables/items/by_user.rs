//! Items and cases by user: what a user made, and what they have to do with.
//!
//! It holds nothing of them but where their rows stand. A partition holds one stretch of time of a user, so that it stays
//! bounded for users who send without end.

use tidegate_schemas::{
    ids::{ItemId, ItemKey, Millis, OrgId, SubmissionId, TypeId},
    string_enum,
};
use uuid::Uuid;

use crate::table;

string_enum! {
    /// Kind of a case that names a user.
    pub enum CaseKind {
        /// A job about the user or an item of theirs.
        Job = "job",
        /// A report by the user.
        ReportMade = "report_made",
        /// A report of the user or an item of theirs.
        ReportReceived = "report_received",
    }
}

table! {
    /// Pointer to a submission in `items`, under the user with the role of its creator. `stretch` counts
    /// [`STRETCH_DAYS`] since 1970.
    Fact ItemOfUser in "items_by_user" ttl Some(400 days), window 16 days;
    partition { org: OrgId, user: ItemKey, stretch: i64 }
    cluster { append_ms: Millis [Desc], submission_id: SubmissionId [Asc] }
    values { type_id: TypeId, item_id: ItemId, offset: i64, position: i64 }
}

table! {
    /// Pointer to a job or a report under a user. The job's row says whether the pointer holds: one whose `at` is not the
    /// job's time of creation was left by an opener that another one overtook.
    Fact CaseOfUser in "cases_by_user" ttl Some(400 days), window 16 days;
    partition { org: OrgId, user: ItemKey, kind: String, stretch: i64 }
    cluster { at: Millis [Desc], id: Uuid [Asc] }
    values { item: ItemKey }
}

/// Days of a partition.
pub const STRETCH_DAYS: i64 = 16;

/// Number of the stretch that an instant lies in.
pub const fn stretch(at: Millis) -> i64 {
    at.day().div_euclid(STRETCH_DAYS)
}
