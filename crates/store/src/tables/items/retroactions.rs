//! Runs of rules over stored items, and the submissions that they make.
//!
//! It does not run them; `tidegate-moderation` does.

use tidegate_schemas::ids::{Millis, OrgId, SubmissionId};
use uuid::Uuid;

use crate::table;

table! {
    /// A run, and how far it is. `rules` are JSON: the version of each rule when it began.
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
    /// Submission that another one repeats, and the run that it belongs to. Written before it is sent.
    Fact Repeated in "retroacted_items" ttl Some(100 days), window 4 days;
    partition { org: OrgId, submission_id: SubmissionId }
    cluster {}
    values {
        run: Uuid,
        original: SubmissionId,
        source: String,
        append_ms: Millis,
        offset: i64,
        position: i64,
    }
}
