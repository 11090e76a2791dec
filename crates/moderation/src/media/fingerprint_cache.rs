//! Cache of fingerprints by content: in memory, and in the store for other processes and after a restart.
//!
//! Bank matches are not cached, because they change with every bank entry.

use std::sync::Arc;

use parking_lot::Mutex;
use serde::Deserialize as _;
use tidegate_media::{Digests, Fingerprint, State};
use tidegate_schemas::{hex, ids::Millis};
use tidegate_store::{Store, WriteTime, tables::items::media_prints::MediaPrint};

use super::lru::LruCache;
use crate::metrics;

#[derive(Clone)]
pub(super) struct FingerprintCache {
    store: Store,
    memory: Arc<Mutex<LruCache<[u8; 32], Arc<Fingerprint>>>>,
}

impl FingerprintCache {
    pub(super) fn new(store: Store, capacity: usize) -> Self {
        Self { store, memory: Arc::new(Mutex::new(LruCache::new(capacity))) }
    }

    /// Returns the fingerprint of these bytes if the present hashing version made it. An unreadable store counts as a
    /// miss, which costs one decoding instead of the item.
    pub(super) async fn find(&self, digests: &Digests) -> Option<Arc<Fingerprint>> {
        let cached = self.memory.lock().get(&digests.sha256);
        if cached.is_some() {
            metrics::fingerprint_lookup("memory");
            return cached;
        }
        let Some(print) = load_print(&self.store, digests).await.ok().flatten().map(Arc::new) else {
            metrics::fingerprint_lookup("miss");
            return None;
        };
        metrics::fingerprint_lookup("store");
        self.memory.lock().insert(digests.sha256, Arc::clone(&print));
        Some(print)
    }

    pub(super) async fn insert(&self, print: &Arc<Fingerprint>) {
        // A content beyond the present limits may be accepted under other limits, so a refusal is not cached.
        if !matches!(print.state, State::Ok | State::LowQuality | State::TooSmall) {
            return;
        }
        self.memory.lock().insert(print.digests.sha256, Arc::clone(print));
        let Ok(text) = serde_json::to_string(&**print) else { return };
        let row = MediaPrint { sha256: hex(&print.digests.sha256), print: text };
        // Equal bytes have equal hashes, so the order of writers does not matter.
        if let Err(error) = self.store.put_rows(WriteTime::from_append(Millis::now(), 0), &[row]).await {
            tracing::debug!(tag = error.tag(), "the fingerprint of a content cannot be stored: {error}");
        }
    }
}

/// Loads the fingerprint of these bytes if the present hashing version made it.
pub(super) async fn load_print(
    store: &Store,
    digests: &Digests,
) -> Result<Option<Fingerprint>, tidegate_store::Error> {
    let row = store.get::<MediaPrint>(&(hex(&digests.sha256),)).await?;
    let print = row.and_then(|row| parse_print(&row.print));
    Ok(print.filter(|print| print.digests == *digests))
}

/// Returns `None` for a fingerprint of another hashing version, so that it is made again.
fn parse_print(text: &str) -> Option<Fingerprint> {
    // Through `Value`, because some fields are static texts and cannot borrow from the input.
    let value: serde_json::Value = serde_json::from_str(text).ok()?;
    Fingerprint::deserialize(value).ok()
}
