//! Idempotency keys: a client's name for a request, claimed for one body before anything is appended.
//!
//! Ids of submissions, reports and decisions are derived from key and body where they are made, so a repeated append has its
//! effects once.

use axum::http::StatusCode;
use bytes::Bytes;
use tidegate_schemas::{json::Node, validation_error::tag};
use tidegate_store::{Inserted, tables::items::idempotency::IdempotencyClaim};
use tidegate_web::Problem;

use crate::{Api, admission::Received};

/// Digest of a body as key-sorted JSON.
pub(crate) type Digest = [u8; 32];

impl Received {
    /// Digest of the body with this root, if the request has a key.
    pub(crate) fn digest(&self, root: Node<'_>) -> Option<Digest> {
        self.key.as_ref().map(|_| root.digest())
    }
}

impl Api {
    /// Claims the key of the request for its body, or refuses the request if the key was claimed for another body. A request without a key
    /// costs nothing.
    ///
    /// Called before the append: after a crash in between, the same body is appended by its retry, under the same derived ids.
    pub(crate) async fn claim_key(
        &self,
        received: &Received,
        route: &'static str,
        body: Option<&Digest>,
    ) -> Result<(), Problem> {
        let (Some(key), Some(digest)) = (&received.key, body) else { return Ok(()) };
        let claim = IdempotencyClaim {
            org: received.org.clone(),
            route: route.to_owned(),
            key: String::from_utf8_lossy(key.as_bytes()).into_owned(),
            digest: Bytes::copy_from_slice(digest),
            claimed_at: received.received_at,
            version: 1,
        };
        let inserted =
            self.deps.store.insert_new(&claim).await.map_err(|error| self.store_problem(&error))?;
        match inserted {
            Inserted::New => Ok(()),
            Inserted::Existing(first) if first.digest == digest.as_slice() => Ok(()),
            Inserted::Existing(_) => Err(key_conflict()),
        }
    }
}

fn key_conflict() -> Problem {
    let detail = "Another body was sent under this `Idempotency-Key` before. Repeat a request unchanged, with its items in the \
                  same order, or send the new one under a key of its own.";
    let title = "The Idempotency-Key is in use.";
    let mut problem = Problem::new(StatusCode::CONFLICT, tag::IDEMPOTENCY_KEY_REUSED, title, detail);
    problem.errors[0].tags.push(tag::CONFLICT);
    problem
}
