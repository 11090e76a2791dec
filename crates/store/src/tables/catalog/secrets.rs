//! Sealed signing secrets of callback endpoints, and the name of the master key. The key itself is never stored.

use bytes::Bytes;
use tidegate_schemas::ids::{EndpointId, Millis, OrgId};

use crate::table;

table! {
    /// `sealed` is a nonce and the secret, encrypted with the master key named by `master_key`.
    Versioned EndpointSecret in "endpoint_secrets" ttl None;
    partition { org: OrgId, endpoint: EndpointId }
    values { sealed: Bytes, master_key: String, created_at: Millis }
}

table! {
    /// One row: the master key under which this store's secrets are sealed, by its fingerprint.
    Versioned MasterKeyName in "master_key_names" ttl None;
    partition { name: String }
    values { master_key: String, named_at: Millis }
}

/// The name of the only row of [`MasterKeyName`].
pub const CURRENT: &str = "current";
