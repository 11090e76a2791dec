//! Decisions that were carried out, and those that wait for their undo time to end.
//!
//! It does not release anything; the scanner of the decisions topic does.

use tidegate_schemas::{
    ids::{DecisionId, ItemKey, JobId, Millis, OrgId},
    records::{JobClass, Verdict},
};

use crate::{string_column, table};

string_column!(Verdict);

table! {
    /// A decision as an event: written once, when it is carried out.
    Fact Decision in "decisions" ttl None;
    partition { org: OrgId, day: i64 }
    cluster { at: Millis [Asc], decision_id: DecisionId [Asc] }
    values {
        job_id: JobId,
        class: JobClass,
        item: ItemKey,
        verdict: Verdict,
        actions: String,
        policies: String,
        reason: Option<String>,
        decided_by: String,
        decided_at: Millis,
        /// JSON list of the actions on items that belong to the job.
        related: Option<String>,
    }
}

table! {
    /// A job to look at when the undo time of its decision has ended. `shard` is the partition of the decisions
    /// topic, whose owner looks.
    Fact DecisionDue in "decision_due" ttl Some(40 days);
    partition { shard: i64, minute: i64 }
    cluster { due_at: Millis [Asc], org: OrgId [Asc], job_id: JobId [Asc] }
    values { decision_id: DecisionId }
}

table! {
    /// The oldest minute that a shard's scanner still has to look at.
    Fact DecisionCursor in "decision_cursors" ttl None;
    partition { shard: i64 }
    cluster {}
    values {
        minute: i64,
        /// Write time of this row, in microseconds: the next write comes after it, whatever the clock says.
        written: Option<i64>,
    }
}
