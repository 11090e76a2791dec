//! Claims idempotency keys. A key is bound to one body before the append.
//!
//! Ids of submissions, reports and decisions are derived from key and body by their endpoints, so a repeated append has its
//! effects once.

use axum::http::StatusCode;
use bytes::Bytes;
use tidegate_schemas::{json::Node, validation_error::tag};
use tidegate_store::{InsertOutcome, tables::items::idempotency::IdempotencyClaim};
use tidegate_web::Problem;

use crate::{Api, admission::ReceivedRequest};

/// Digest of a body as key-sorted JSON.
pub(crate) type Digest = [u8; 32];

impl ReceivedRequest {
    /// Returns the digest of the body if the request has a key.
    pub(crate) fn digest(&self, root: Node<'_>) -> Option<Digest> {
        self.key.as_ref().map(|_| root.digest())
    }
}

impl Api {
    /// Claims the request's key for its body. Refuses the request if the key belongs to another body. Without a key
    /// there is no claim and no write.
    ///
    /// Called before the append: after a crash in between, a retry appends the same body under the same derived ids.
    pub(crate) async fn claim_key(
        &self,
        request: &ReceivedRequest,
        route: &'static str,
        body: Option<&Digest>,
    ) -> Result<(), Problem> {
        let (Some(key), Some(digest)) = (&request.key, body) else { return Ok(()) };
        // The key is checked to be ASCII, so the conversion below replaces no byte.
        let claim = IdempotencyClaim {
            org: request.org.clone(),
            route: route.to_owned(),
            key: String::from_utf8_lossy(key.as_bytes()).into_owned(),
            digest: Bytes::copy_from_slice(digest),
            claimed_at: request.received_at,
            version: 1,
        };
        let insertion =
            self.deps.store.insert_new(&claim).await.map_err(|error| self.store_problem(&error))?;
        match insertion {
            InsertOutcome::New => Ok(()),
            // The same body: a retry. Its records have the same derived ids, so it is appended again without new effects.
            InsertOutcome::Existing(existing_claim) if existing_claim.digest == digest.as_slice() => Ok(()),
            InsertOutcome::Existing(_) => Err(key_conflict_problem()),
        }
    }
}

fn key_conflict_problem() -> Problem {
    let detail = "This `Idempotency-Key` was used for a different body. Repeat the original request unchanged, with its items in \
                  the same order, or use a new key.";
    let title = "The Idempotency-Key is in use.";
    let mut problem = Problem::new(StatusCode::CONFLICT, tag::IDEMPOTENCY_KEY_REUSED, title, detail);
    problem.errors[0].tags.push(tag::CONFLICT);
    problem
}
