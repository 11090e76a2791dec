//! Every version of every item; the first row of an item is its latest.
//! A row holds the data of a submission and the results of its evaluation.

use bytes::Bytes;
use tidegate_schemas::{
    ids::{ConfigVersion, ItemId, Millis, OrgId, ReportId, SubmissionId, TypeId},
    records::{Source, Variant},
    string_enum,
};

use crate::{OpenEnum, WriteTime, string_column, table};

string_enum! {
    /// State of a submission.
    pub enum SubmissionState {
        /// Stored without an evaluation: the item waits for its media or for scores.
        Accepted = "accepted",
        Evaluated = "evaluated",
    }
}

string_column!(SubmissionState, Source, Variant);

table! {
    /// One submission of one item, at the coordinates of its first record in the log.
    Fact Item in "items" ttl None;
    partition { org: OrgId, type_id: TypeId, item_id: ItemId }
    cluster { append_ms: Millis [Desc], offset: i64 [Desc], position: i64 [Desc] }
    values {
        submission_id: SubmissionId,
        source: OpenEnum<Source>,
        variant: OpenEnum<Variant>,
        type_version: Option<String>,
        data: Bytes,
        state: OpenEnum<SubmissionState>,
        config_version: ConfigVersion,
        request_id: String,
        received_at: Millis,
        evaluated_at: Option<Millis>,
        report_id: Option<ReportId>,
        matched: String,
        errored: String,
        actions: String,
        media: String,
        /// JSON: parts of the evaluation that were skipped, if any.
        left_out: Option<String>,
        /// Submission of the next version of the item in the same request; it may not be stored yet.
        followed_by: Option<SubmissionId>,
    }
}

table! {
    /// Coordinates and stage of an item's submission, without its data and results.
    View ItemPlace in "items" ttl None;
    partition { org: OrgId, type_id: TypeId, item_id: ItemId }
    cluster { append_ms: Millis [Desc], offset: i64 [Desc], position: i64 [Desc] }
    values {
        submission_id: SubmissionId,
        source: OpenEnum<Source>,
        variant: OpenEnum<Variant>,
        state: OpenEnum<SubmissionState>,
    }
}

table! {
    /// Coordinates of the row in `items` of a submission that may be sent again. The row of any other submission stands at
    /// the coordinates of its only record.
    Fact SubmissionPlace in "submission_places" ttl None;
    partition { org: OrgId, submission_id: SubmissionId }
    cluster {}
    values { type_id: TypeId, item_id: ItemId, append_ms: Millis, offset: i64, position: i64 }
}

/// Stage of a submission. A later stage of the same submission overwrites an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Accepted = 0,
    Evaluated = 1,
    /// Evaluated after it waited for its media. Wins over the row of a concurrent replay that evaluated without them.
    EvaluatedLate = 2,
}

/// Returns the write time of a submission's row, ordered by append time and then by stage.
pub fn write_time(append_ms: Millis, stage: Stage) -> WriteTime {
    WriteTime::from_append(append_ms, stage as u16)
}
