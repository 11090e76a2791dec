//! First stored plan of each cause. `tidegate-moderation` carries it out.

use tidegate_schemas::{
    ids::{Millis, OrgId},
    string_enum,
};
use uuid::Uuid;

use crate::{OpenEnum, string_column, table};

string_enum! {
    /// Kind of a plan's cause.
    pub enum PlanKind {
        Item = "item",
        Decision = "decision",
        Threshold = "threshold",
    }
}

string_column!(PlanKind);

table! {
    /// Effects of a submission or a decision, with every id, body, strike and job.
    Versioned Plan in "plans" ttl Some(35 days);
    partition { org: OrgId, cause: Uuid }
    cluster {}
    values { kind: OpenEnum<PlanKind>, plan: String, created_at: Millis }
}
