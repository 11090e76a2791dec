//! Review jobs, their causes and their queue entries.
//!
//! `tidegate-moderation` keeps the protocol between these rows.

use tidegate_schemas::{
    ids::{AppealId, ItemId, ItemKey, JobId, Millis, OrgId, QueueId, ReportId, SubmissionId, TypeId},
    records::JobClass,
    string_enum,
};
use uuid::Uuid;

use crate::{string_column, table};

string_enum! {
    /// State of a review job.
    pub enum JobState {
        /// A reviewer may claim the job.
        Open = "open",
        Decided = "decided",
        /// The job was closed without a decision, because it stayed unclaimed for the longest age of its queue.
        Closed = "closed",
        /// The causes of this child-safety job moved to a review job.
        Moved = "moved",
    }
}

string_enum! {
    /// Progress of a job's decision towards its effects.
    pub enum DecisionState {
        /// The decision can be undone.
        Pending = "pending",
        /// The time to undo is over and the decision is about to be appended to the log.
        Released = "released",
        /// The log has the decision.
        Appended = "appended",
    }
}

string_enum! {
    /// Kind of a job's cause.
    pub enum CauseKind {
        Report = "report",
        Appeal = "appeal",
        Rule = "rule",
        Threshold = "threshold",
        /// A moderator sent the item of another job to the child-safety team.
        Escalation = "escalation",
    }
}

string_column!(JobState, DecisionState, CauseKind, JobClass);

table! {
    /// Authoritative row of a job.
    Versioned Job in "jobs" ttl None;
    partition { org: OrgId, job_id: JobId }
    cluster {}
    values {
        class: JobClass,
        queue: QueueId,
        state: JobState,
        item: ItemKey,
        generation: i64,
        priority: i64,
        created_at: Millis,
        appeal_id: Option<AppealId>,
        epoch: i64,
        claimed_by: Option<String>,
        lease_until: Option<Millis>,
        decision: Option<String>,
        decision_state: Option<DecisionState>,
        /// Time of the queue entry of the present priority; `created_at` if the priority never rose.
        queued_at: Option<Millis>,
        /// JSON: severity, number of reporters and reach, from which the priority is computed.
        signals: Option<String>,
        /// Routing list and entry that chose the queue.
        routed_by: Option<String>,
        /// Report by which the routing list chose the queue. While it is set, the waiting job is routed again; a manual move
        /// clears it.
        routed_for: Option<ReportId>,
        /// Time at which the decision could no longer be undone, or the job ended without one.
        closed_at: Option<Millis>,
        /// JSON: moves to other queues, the oldest first.
        moves: Option<String>,
        /// JSON: the last skip of each reviewer, the oldest first.
        skips: Option<String>,
    }
}

table! {
    /// Cause that opened or joined a job. It is written after the row of the job accepted it, so a cause without a row
    /// joined no job.
    Fact JobCause in "job_causes" ttl None;
    partition { org: OrgId, job_id: JobId }
    cluster { cause: Uuid [Asc] }
    values {
        kind: CauseKind,
        at: Millis,
        report_id: Option<ReportId>,
        appeal_id: Option<AppealId>,
        submission_id: Option<SubmissionId>,
        rules: String,
        /// JSON: the versions of these rules.
        hits: Option<String>,
        /// JSON: the threshold that was crossed.
        threshold: Option<String>,
        /// JSON: policies of the report, the rules or the appeal; absent in rows of earlier versions.
        policies: Option<String>,
    }
}

table! {
    /// The newest job of a subject in a class, and the one before it.
    Versioned SubjectJob in "subject_jobs" ttl None;
    partition { org: OrgId, class: JobClass, type_id: TypeId, item_id: ItemId }
    cluster {}
    values { generation: i64, job_id: JobId, previous_job_id: Option<JobId> }
}

table! {
    /// Pointer to a job of a queue. Rows are only added; the job's row is authoritative.
    Fact QueueEntry in "queue_index" ttl Some(400 days);
    partition { org: OrgId, queue: QueueId, priority: i64, day: i64 }
    cluster { created_at: Millis [Asc], job_id: JobId [Asc] }
    values { item: ItemKey }
}

table! {
    /// Reporters of a subject by class and generation of its jobs, one row a user.
    Fact SubjectReporter in "subject_reporters" ttl Some(400 days);
    partition { org: OrgId, class: JobClass, type_id: TypeId, item_id: ItemId }
    cluster { generation: i64 [Desc], reporter_type: TypeId [Asc], reporter_id: ItemId [Asc] }
    values { at: Millis }
}

table! {
    /// Days and priorities in which a queue has entries.
    Fact QueueDay in "queue_days" ttl Some(400 days);
    partition { org: OrgId, queue: QueueId }
    cluster { priority: i64 [Desc], day: i64 [Asc] }
    values { first_at: Millis }
}
