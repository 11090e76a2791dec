//! The signing secrets of callback endpoints, sealed.
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
