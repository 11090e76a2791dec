//! Decisions that were carried out, and due rows of decisions that can still be undone.
//!
//! The scanner of the decisions topic releases them.

use tidegate_schemas::{
    ids::{DecisionId, ItemKey, JobId, Millis, OrgId},
    records::{JobClass, Verdict},
};

use crate::{string_column, table};

string_column!(Verdict);

table! {
    /// Event of a decision, written once when it is carried out.
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
        /// Time of the decision's history event; absent in rows of earlier versions, which wrote none.
        recorded_at: Option<Millis>,
    }
}

table! {
    /// A job with a decision to release at the end of its undo time. `shard` is the partition of the decisions topic;
    /// its owner reads the rows.
    Fact DecisionDue in "decision_due" ttl Some(40 days);
    partition { shard: i64, minute: i64 }
    cluster { due_at: Millis [Asc], org: OrgId [Asc], job_id: JobId [Asc] }
    values { decision_id: DecisionId }
}

table! {
    /// Oldest minute that the scanner of a shard has not finished.
    Fact DecisionCursor in "decision_cursors" ttl None;
    partition { shard: i64 }
    cluster {}
    values {
        minute: i64,
        /// Write time of this row, in microseconds: the next write uses a later one, even if the clock went back.
        written: Option<i64>,
    }
}
