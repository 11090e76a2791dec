//! Answers of models, so that a replay or another process need not ask again.
//!
//! A row holds numbers, the text that the model returned if a document asks for it, and a digest of what was asked. Who
//! reads it decides how old it may be.

use tidegate_schemas::ids::{Millis, OrgId, SignalId};

use crate::table;

table! {
    /// Answer that a model gave for a request with this digest.
    Fact SignalScore in "signal_scores" ttl Some(30 days);
    partition { org: OrgId, signal: SignalId, digest: String }
    cluster {}
    values { scores: String, asked_at: Millis }
}
