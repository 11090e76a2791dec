//! Organisations. `tidegate-catalog` creates them.

use tidegate_schemas::ids::{Millis, OrgId};

use crate::table;

table! {
    /// An organisation. While it is disabled, all of its keys are refused.
    Versioned Org in "orgs" ttl None;
    partition { org: OrgId }
    values { name: String, created_at: Millis, disabled_at: Option<Millis> }
}
