//! Every version of every item; the first row of an item is its latest.
//!
//! It does not decide what an item leads to; it keeps what was sent and what was found.

use bytes::Bytes;
use tidegate_schemas::ids::{ConfigVersion, ItemId, Millis, OrgId, ReportId, SubmissionId, TypeId};

use crate::{WriteTime, table};

table! {
    /// One submission of one item, at the coordinates of its first record in the log.
    Fact Item in "items" ttl None;
    partition { org: OrgId, type_id: TypeId, item_id: ItemId }
    cluster { append_ms: Millis [Desc], offset: i64 [Desc], position: i64 [Desc] }
    values {
        submission_id: SubmissionId,
        source: String,
        variant: String,
        type_version: Option<String>,
        data: Bytes,
        state: String,
        config_version: ConfigVersion,
        request_id: String,
        received_at: Millis,
        evaluated_at: Option<Millis>,
        report_id: Option<ReportId>,
        matched: String,
        errored: String,
        actions: String,
        media: String,
        /// JSON: what the evaluation left out, if it did.
        left_out: Option<String>,
        /// Submission of the next version of the item in the same request; it may not be stored yet.
        followed_by: Option<SubmissionId>,
    }
}

table! {
    /// Coordinates and stage of an item's submission, without what was sent and found.
    View ItemPlace in "items" ttl None;
    partition { org: OrgId, type_id: TypeId, item_id: ItemId }
    cluster { append_ms: Millis [Desc], offset: i64 [Desc], position: i64 [Desc] }
    values { submission_id: SubmissionId, source: String, variant: String, state: String }
}

table! {
    /// Coordinates of a submission that may be sent again: those of its row in `items`. Other submissions have their
    /// row at the coordinates of the one record that they came in.
    Fact SubmissionPlace in "submission_places" ttl None;
    partition { org: OrgId, submission_id: SubmissionId }
    cluster {}
    values { type_id: TypeId, item_id: ItemId, append_ms: Millis, offset: i64, position: i64 }
}

pub const ACCEPTED: &str = "accepted";
pub const EVALUATED: &str = "evaluated";

/// Stage of a submission. A later stage of the same submission overwrites an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Accepted = 0,
    Evaluated = 1,
    /// Evaluated after it waited for its media. A replay may have evaluated it without them at the same time: then this
    /// row stands, and whole.
    EvaluatedLate = 2,
}

/// The write time of a submission's row: where the log put it, then how far it has come.
pub fn write_time(append_ms: Millis, stage: Stage) -> WriteTime {
    WriteTime::of(append_ms, stage as u16)
}
