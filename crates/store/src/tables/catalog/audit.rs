//! Audit of changing requests to the admin API, with actor and outcome, and of jobs that the service closed by itself.

use tidegate_schemas::ids::{Millis, OrgId};
use uuid::Uuid;

use crate::table;

table! {
    /// One request that changes data or shows a secret, or a change made by the service itself. The row is written before
    /// the request runs and again with its outcome, so the outcome of a row without a status is unknown.
    Fact AuditEntry in "audit" ttl Some(400 days);
    partition { org: OrgId, day: i64 }
    cluster { at: Millis [Desc], entry_id: Uuid [Asc] }
    values {
        actor: String,
        /// Method and route, such as `POST /keys/{id}/rotate`, or the name of the service's own change.
        action: String,
        /// Path of the request, such as `/keys/k1/rotate`.
        object: String,
        request_id: String,
        status: Option<i64>,
        /// JSON object with details of the change, never a secret or content of users.
        detail: Option<String>,
    }
}
