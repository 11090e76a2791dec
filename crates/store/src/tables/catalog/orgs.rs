//! The organisations.
//!
//! It does not make them; `tidegate-catalog` does.

use tidegate_schemas::ids::{Millis, OrgId};

use crate::table;

table! {
    /// An organisation. While it is disabled its keys open nothing.
    Versioned Org in "orgs" ttl None;
    partition { org: OrgId }
    values { name: String, created_at: Millis, disabled_at: Option<Millis> }
}
