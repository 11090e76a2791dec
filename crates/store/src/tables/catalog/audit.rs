//! Audit: requests to the admin API that changed something, who made them, and how they ended, and jobs that the service
//! closed by itself.

use tidegate_schemas::ids::{Millis, OrgId};
use uuid::Uuid;

use crate::table;

table! {
    /// One request that changes something or shows a secret, or a change that the service makes by itself. The row is
    /// written before the request is carried out and again with its end, so a row without a status is one whose end is not
    /// known.
    Fact AuditEntry in "audit" ttl Some(400 days);
    partition { org: OrgId, day: i64 }
    cluster { at: Millis [Desc], entry_id: Uuid [Asc] }
    values {
        actor: String,
        /// Method and route, such as `POST /keys/{id}/rotate`, or the name of the service's own change.
        action: String,
        /// The path that was called, such as `/keys/k1/rotate`.
        object: String,
        request_id: String,
        status: Option<i64>,
        /// JSON object of what the request did, never a secret or content of users.
        detail: Option<String>,
    }
}
