//! Cache of model answers, so that a replay or another process need not ask again.
//!
//! A row holds the scores, the returned text if a document asks for it, and a digest of the request. The reader decides
//! how old an answer may be.

use tidegate_schemas::ids::{Millis, OrgId, SignalId};

use crate::table;

table! {
    /// Answer of a model to the request with this digest.
    Fact SignalScore in "signal_scores" ttl Some(30 days);
    partition { org: OrgId, signal: SignalId, digest: String }
    cluster {}
    values { scores: String, asked_at: Millis }
}
