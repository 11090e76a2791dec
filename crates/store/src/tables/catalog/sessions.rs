//! Sessions of the console. Rows hold the hash of the session token from the cookie; `tidegate-console` checks sessions.

use tidegate_schemas::ids::{ApiKeyId, Millis, OrgId};

use crate::table;

table! {
    /// A session opened with an API key. It ends no later than the key.
    Versioned Session in "sessions" ttl Some(8 days);
    partition { token_hash: String }
    values {
        org: OrgId,
        key_id: ApiKeyId,
        created_at: Millis,
        expires_at: Millis,
        /// Time of the sign-out.
        ended_at: Option<Millis>,
    }
}
