//! Runs of rules over stored items, and the submissions that they create. `tidegate-moderation` runs them.

use tidegate_schemas::{
    ids::{Millis, OrgId, SubmissionId},
    records::Source,
};
use uuid::Uuid;

use crate::{OpenEnum, table};

table! {
    /// A run and its progress. `rules` is JSON: the version of each rule when the run began.
    Versioned Retroaction in "retroactions" ttl Some(400 days);
    partition { org: OrgId }
    cluster { run: Uuid [Asc] }
    values {
        rules: String,
        since: Millis,
        until: Millis,
        dry_run: bool,
        begun_at: Millis,
        begun_by: String,
        place: Option<String>,
        progress: String,
        finished_at: Option<Millis>,
        /// True if the run covers items of child safety.
        child_safety: Option<bool>
    }
}

table! {
    /// Submission created by a run, and the original that it repeats. Written before the submission is sent.
    Fact RetroactedItem in "retroacted_items" ttl Some(100 days), window 4 days;
    partition { org: OrgId, submission_id: SubmissionId }
    cluster {}
    values {
        run: Uuid,
        original: SubmissionId,
        source: OpenEnum<Source>,
        append_ms: Millis,
        offset: i64,
        position: i64,
    }
}
