//! Indexes of items and cases by user.
//!
//! Rows point to the rows of items, jobs and reports. A partition covers a fixed period of a user, which bounds its size
//! for users with many items.

use tidegate_schemas::{
    ids::{ItemId, ItemKey, Millis, OrgId, SubmissionId, TypeId},
    string_enum,
};
use uuid::Uuid;

use crate::{string_column, table};

string_enum! {
    /// Kind of a case that names a user.
    pub enum CaseKind {
        /// A job about the user or an item of theirs.
        Job = "job",
        /// A report by the user.
        ReportMade = "report_made",
        /// A report against the user or an item of theirs.
        ReportReceived = "report_received",
    }
}

string_column!(CaseKind);

table! {
    /// Pointer to a submission in `items`, under the user with the role of its creator. `stretch` counts
    /// [`STRETCH_DAYS`] since 1970.
    Fact ItemOfUser in "items_by_user" ttl Some(400 days), window 16 days;
    partition { org: OrgId, user: ItemKey, stretch: i64 }
    cluster { append_ms: Millis [Desc], submission_id: SubmissionId [Asc] }
    values { type_id: TypeId, item_id: ItemId, offset: i64, position: i64 }
}

table! {
    /// Pointer to a job or a report under a user. A pointer to a job is valid if its `at` equals the job's time of
    /// creation; another `at` was left by a process that lost the race to open the job.
    Fact CaseOfUser in "cases_by_user" ttl Some(400 days), window 16 days;
    partition { org: OrgId, user: ItemKey, kind: CaseKind, stretch: i64 }
    cluster { at: Millis [Desc], id: Uuid [Asc] }
    values { item: ItemKey }
}

/// Length of the period of one partition, in days.
pub const STRETCH_DAYS: i64 = 16;

/// Returns the number of the period that contains an instant.
pub const fn stretch(at: Millis) -> i64 {
    at.day().div_euclid(STRETCH_DAYS)
}
