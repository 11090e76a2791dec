//! Requests for items to the platforms' partial items endpoints, and those that wait for an answer.
//!
//! Pointers and due rows are written before the request itself, whose row is the truth.

use tidegate_schemas::{
    ids::{JobId, Millis, OrgId},
    string_enum,
};
use uuid::Uuid;

use crate::{string_column, table};

string_enum! {
    /// Occasion on which items were asked for.
    pub enum PartialTrigger {
        /// A report named items that were never submitted.
        Report = "report",
        /// An appeal is about an item whose thread, parent or creator was never submitted.
        Appeal = "appeal",
        /// A moderator claimed a job whose data is old or has expired addresses.
        Claim = "claim",
        /// An administrator asked.
        Refresh = "refresh",
    }
}

string_enum! {
    /// State of a request for items.
    pub enum PartialState {
        /// It waits for its turn, or for the next attempt.
        Pending = "pending",
        /// The platform answered.
        Done = "done",
        /// No answer could be used; the error says why.
        Failed = "failed",
    }
}

string_column!(PartialTrigger, PartialState);

table! {
    /// A request for items. Lists are JSON.
    Fact PartialRequest in "partial_requests" ttl Some(30 days);
    partition { org: OrgId, day: i64 }
    cluster { requested_at: Millis [Desc], request_id: Uuid [Asc] }
    values {
        trigger: PartialTrigger,
        job_id: Option<JobId>,
        state: PartialState,
        /// `[{typeId, id}]`
        asked: String,
        /// `[{typeId, id, submissionId, typeSchemaVariant, faults}]`
        found: String,
        missing: String,
        /// Entries that nobody asked for.
        dropped: i64,
        /// `[{typeId, id, faults, data?}]`: entries that do not fit their types.
        invalid: String,
        attempts: i64,
        /// Time before which no further attempt is made.
        next_at: Option<Millis>,
        settled_at: Option<Millis>,
        took_ms: i64,
        http_status: Option<i64>,
        /// Name of the last error.
        error: Option<String>,
        error_detail: Option<String>,
        /// Write time of this row, in microseconds: the next write comes after it.
        written: i64,
    }
}

table! {
    /// The requests that were made for a job.
    Fact PartialRequestOfJob in "partial_requests_of_job" ttl Some(30 days);
    partition { org: OrgId, job_id: JobId }
    cluster { requested_at: Millis [Desc], request_id: Uuid [Asc] }
    values { trigger: PartialTrigger }
}

table! {
    /// A request to look at. `shard` is the partition of the reports topic that its subject has, whose owner looks.
    Fact PartialDue in "partial_due" ttl Some(35 days);
    partition { shard: i64, minute: i64 }
    cluster { due_at: Millis [Asc], org: OrgId [Asc], request_id: Uuid [Asc] }
    values { requested_at: Millis }
}

table! {
    /// The oldest minute that a shard's scanner still has to look at.
    Fact PartialCursor in "partial_cursors" ttl None;
    partition { shard: i64 }
    cluster {}
    values {
        minute: i64,
        /// Write time of this row, in microseconds: the next write comes after it, whatever the clock says.
        written: Option<i64>,
    }
}
