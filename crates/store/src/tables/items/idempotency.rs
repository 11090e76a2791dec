//! Idempotency keys of requests, each bound to the first body sent with it.

use bytes::Bytes;
use tidegate_schemas::ids::{Millis, OrgId};

use crate::table;

table! {
    /// Owner of an idempotency key on one route: the first body sent with it, by the digest of its key-sorted JSON.
    Versioned IdempotencyClaim in "idempotency_claims" ttl Some(3 days);
    partition { org: OrgId, route: String, key: String }
    cluster {}
    values { digest: Bytes, claimed_at: Millis }
}
