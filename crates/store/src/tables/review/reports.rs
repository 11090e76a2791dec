//! Reports as sent by the platform. The causes of a job name its reports.

use bytes::Bytes;
use tidegate_schemas::{
    ids::{ConfigVersion, DecisionId, ItemId, ItemKey, Millis, OrgId, ReportId, SubmissionId, TypeId},
    records::Variant,
};

use crate::{OpenEnum, table};

table! {
    /// A report. Lists of items and mentions are JSON texts.
    Fact Report in "reports" ttl None;
    partition { org: OrgId, report_id: ReportId }
    cluster {}
    values {
        item: ItemKey,
        type_version: Option<String>,
        variant: OpenEnum<Variant>,
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

table! {
    /// Decision on a job that the user reported. It was upheld if the decision took an action.
    Fact ReporterFinding in "reporter_findings" ttl Some(400 days);
    partition { org: OrgId, type_id: TypeId, item_id: ItemId }
    cluster { at: Millis [Desc], decision_id: DecisionId [Asc] }
    values { upheld: bool }
}
