//! API keys of organisations. Rows hold only the hash of a key's secret; `tidegate-catalog` checks keys.

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
        /// Time at which another key replaced this one.
        rotated_at: Option<Millis>,
        /// Id of the replacing key. Absent for keys that an earlier version rotated.
        rotated_to: Option<ApiKeyId>,
        /// Expiry of the replacing key: the expiry of this key before the rotation shortened it.
        successor_expires_at: Option<Millis>,
    }
}

table! {
    /// Keys of an organisation, for lists. The key's row is authoritative.
    Fact KeyOfOrg in "keys_of_org" ttl None;
    partition { org: OrgId }
    cluster { created_at: Millis [Desc], key_id: ApiKeyId [Asc] }
    values { name: String }
}

table! {
    /// Last use of a key, to the minute. A separate table, so that a use does not change the versioned row of the key.
    Fact KeyUse in "key_uses" ttl None;
    partition { org: OrgId }
    cluster { key_id: ApiKeyId [Asc] }
    values { last_used_at: Millis }
}
