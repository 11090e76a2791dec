//! Requests for items to the platforms' partial items endpoints, and their due rows.
//!
//! Pointers and due rows are written before the row of the request, which is authoritative.

use tidegate_schemas::{
    ids::{JobId, Millis, OrgId},
    string_enum,
};
use uuid::Uuid;

use crate::{string_column, table};

string_enum! {
    /// Reason for a request for items.
    pub enum PartialTrigger {
        /// A report named items that were never submitted.
        Report = "report",
        /// The thread, parent or creator of an appealed item was never submitted.
        Appeal = "appeal",
        /// A moderator claimed a job with old data or expired addresses.
        Claim = "claim",
        /// An administrator asked for a refresh.
        Refresh = "refresh",
    }
}

string_enum! {
    /// State of a request for items.
    pub enum PartialState {
        /// The request waits for its turn or for the next attempt.
        Pending = "pending",
        /// The platform answered.
        Done = "done",
        /// No usable answer arrived; the error names the reason.
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
        /// Number of entries that were not requested.
        dropped: i64,
        /// `[{typeId, id, faults, data?}]`: entries that are invalid for their types.
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
        /// Write time of this row, in microseconds: the next write uses a later one.
        written: i64,
    }
}

table! {
    /// Requests made for a job.
    Fact PartialRequestOfJob in "partial_requests_of_job" ttl Some(30 days);
    partition { org: OrgId, job_id: JobId }
    cluster { requested_at: Millis [Desc], request_id: Uuid [Asc] }
    values { trigger: PartialTrigger }
}

table! {
    /// A request that may be due. `shard` is the partition of its subject in the reports topic; its owner reads the rows.
    Fact PartialDue in "partial_due" ttl Some(35 days);
    partition { shard: i64, minute: i64 }
    cluster { due_at: Millis [Asc], org: OrgId [Asc], request_id: Uuid [Asc] }
    values { requested_at: Millis }
}

table! {
    /// Oldest minute that the scanner of a shard has not finished.
    Fact PartialCursor in "partial_cursors" ttl None;
    partition { shard: i64 }
    cluster {}
    values {
        minute: i64,
        /// Write time of this row, in microseconds: the next write uses a later one, even if the clock went back.
        written: Option<i64>,
    }
}
