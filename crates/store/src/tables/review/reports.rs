//! Reports as the platform sent them.
//!
//! It does not hold the job that a report opened; the job's causes name the report.

use bytes::Bytes;
use tidegate_schemas::ids::{ConfigVersion, ItemKey, Millis, OrgId, ReportId, SubmissionId};

use crate::table;

table! {
    /// A report. Lists of items and mentions are JSON texts.
    Fact Report in "reports" ttl None;
    partition { org: OrgId, report_id: ReportId }
    cluster {}
    values {
        item: ItemKey,
        type_version: Option<String>,
        variant: String,
        data: Bytes,
        submission_id: SubmissionId,
        reporter: ItemKey,
        reported_at: Millis,
        received_at: Millis,
        written_at: Millis,
        request_id: String,
        config_version: ConfigVersion,
        policy: Option<String>,
        reason: Option<String>,
        csam: bool,
        thread: String,
        reported_in_thread: String,
        additional: String,
    }
}
