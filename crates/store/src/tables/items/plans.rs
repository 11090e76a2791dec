//! First stored plan of each cause. `tidegate-moderation` carries it out.

use tidegate_schemas::ids::{Millis, OrgId};
use uuid::Uuid;

use crate::table;

table! {
    /// Effects of a submission or a decision, with every id, body, strike and job.
    Versioned Plan in "plans" ttl Some(35 days);
    partition { org: OrgId, cause: Uuid }
    cluster {}
    values { kind: String, plan: String, created_at: Millis }
}
