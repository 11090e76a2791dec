//! The hashes of contents that were seen before: in memory, and in the store for whoever comes later.
//!
//! It keeps no bytes, and no matches with banks: those change with every entry.

use std::sync::Arc;

use parking_lot::Mutex;
use serde::Deserialize as _;
use tidegate_media::{Digests, Fingerprint, State};
use tidegate_schemas::{hex, ids::Millis};
use tidegate_store::{Store, WriteTime, tables::items::media_prints::MediaPrint};

use super::lru::Keep;

#[derive(Clone)]
pub(super) struct Contents {
    store: Store,
    lately: Arc<Mutex<Keep<[u8; 32], Arc<Fingerprint>>>>,
}

impl Contents {
    pub(super) fn new(store: Store, most: usize) -> Self {
        Self { store, lately: Arc::new(Mutex::new(Keep::new(most))) }
    }

    /// What was made of these bytes before, by this way of hashing. A store that cannot be read costs a decode.
    pub(super) async fn find(&self, digests: &Digests) -> Option<Arc<Fingerprint>> {
        let lately = self.lately.lock().get(&digests.sha256);
        if lately.is_some() {
            counted("memory");
            return lately;
        }
        let Some(found) = stored(&self.store, digests).await.ok().flatten().map(Arc::new) else {
            counted("miss");
            return None;
        };
        counted("store");
        self.lately.lock().put(digests.sha256, Arc::clone(&found));
        Some(found)
    }

    pub(super) async fn keep(&self, print: &Arc<Fingerprint>) {
        // What was refused may be taken under other limits.
        if !matches!(print.state, State::Ok | State::LowQuality | State::TooSmall) {
            return;
        }
        self.lately.lock().put(print.digests.sha256, Arc::clone(print));
        let Ok(text) = serde_json::to_string(&**print) else { return };
        let row = MediaPrint { sha256: hex(&print.digests.sha256), print: text };
        // Equal bytes have equal hashes, so it does not matter which writer comes last.
        if let Err(error) = self.store.put(WriteTime::of(Millis::now(), 0), &[row]).await {
            tracing::debug!(tag = error.tag(), "the hashes of a content are not kept: {error}");
        }
    }
}

/// What was made of these bytes, by this way of hashing.
pub(super) async fn stored(
    store: &Store,
    digests: &Digests,
) -> Result<Option<Fingerprint>, tidegate_store::Error> {
    let row = store.get::<MediaPrint>(&(hex(&digests.sha256),)).await?;
    let found = row.and_then(|row| read(&row.print));
    Ok(found.filter(|found| found.digests == *digests))
}

/// One of another pipeline cannot be read, and is made anew.
fn read(text: &str) -> Option<Fingerprint> {
    // Some of its texts are static, so it is not read from borrowed ones.
    let value: serde_json::Value = serde_json::from_str(text).ok()?;
    Fingerprint::deserialize(value).ok()
}

fn counted(place: &'static str) {
    metrics::counter!("tidegate_media_contents_total", "found" => place).increment(1);
}
