//! Sessions of the console. The token that opens one is in its holder's cookie only; the row has the token's hash.
//!
//! It checks no session; `tidegate-console` does.

use tidegate_schemas::ids::{ApiKeyId, Millis, OrgId};

use crate::table;

table! {
    /// A session that was begun with an API key, and ends with it at the latest.
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
