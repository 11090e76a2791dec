//! Comments of moderators on jobs.

use tidegate_schemas::ids::{JobId, Millis, OrgId};
use uuid::Uuid;

use crate::table;

table! {
    /// A comment. The comment of an escalation has the escalation's cause as its id.
    Fact JobComment in "job_comments" ttl None;
    partition { org: OrgId, job_id: JobId }
    cluster { at: Millis [Asc], comment_id: Uuid [Asc] }
    values { author: String, text: String }
}
