//! API keys: who may speak for an organisation. Only the hash of a key's secret is kept.
//!
//! It checks no key; `tidegate-catalog` does.

use bytes::Bytes;
use tidegate_schemas::ids::{ApiKeyId, Millis, OrgId};

use crate::table;

table! {
    /// A key. `scopes` are separated by spaces.
    Versioned ApiKey in "api_keys" ttl None;
    partition { key_id: ApiKeyId }
    values {
        org: OrgId,
        name: String,
        env: String,
        hash: Bytes,
        scopes: String,
        created_at: Millis,
        expires_at: Option<Millis>,
        revoked_at: Option<Millis>,
        /// Time at which another key took its place.
        rotated_at: Option<Millis>,
        /// Id of the key that takes its place. Absent for keys that an earlier version rotated.
        rotated_to: Option<ApiKeyId>,
        /// End of the key that takes its place: the end of this key before the rotation shortened it.
        successor_expires_at: Option<Millis>,
    }
}

table! {
    /// The keys of an organisation, for lists; the key's row is the truth.
    Fact KeyOfOrg in "keys_of_org" ttl None;
    partition { org: OrgId }
    cluster { created_at: Millis [Desc], key_id: ApiKeyId [Asc] }
    values { name: String }
}

table! {
    /// Last use of a key, to the minute. Apart from the key, whose row must not change with every use.
    Fact KeyUse in "key_uses" ttl None;
    partition { org: OrgId }
    cluster { key_id: ApiKeyId [Asc] }
    values { last_used_at: Millis }
}
