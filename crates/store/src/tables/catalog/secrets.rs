//! The signing secrets of callback endpoints, sealed, and the name of the key that opens them.
//!
//! It holds no key that opens them.

use bytes::Bytes;
use tidegate_schemas::ids::{EndpointId, Millis, OrgId};

use crate::table;

table! {
    /// `sealed` is a nonce and what was encrypted under the master key that `master_key` names.
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
