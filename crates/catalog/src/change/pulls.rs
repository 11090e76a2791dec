//! Cache of the current documents of organisations as files, serialised once per snapshot.

use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use bytes::Bytes;
use tidegate_schemas::ids::OrgId;

use super::{PulledConfig, render};
use crate::{
    Error, Settings,
    contents::{Contents, CurrentConfig},
    recent::Recent,
};

type Write = dyn Fn(&OrgId, PulledConfig) -> Vec<u8> + Send + Sync;

/// Serialises the documents that organisations pull. Concurrent pulls of one snapshot share the result.
pub struct Pulls {
    contents: Contents,
    write: Arc<Write>,
    cache: Arc<Recent<Bytes>>,
}

impl Pulls {
    pub(super) fn new(contents: Contents, write: Arc<Write>, settings: &Settings) -> Self {
        Self { contents, write, cache: Arc::new(Recent::new(settings.cached_configuration_bytes / 2)) }
    }

    /// Returns the current documents, serialised by `write`.
    #[boxed]
    pub async fn get(&self, org: &OrgId) -> Result<Bytes, Error> {
        let head = self.contents.load_head(org).await?;
        if let Some(serialized) = self.cache.get(org, head.snapshot_id) {
            return Ok(serialized);
        }
        let current = self.contents.load_current(org).await?;
        let permit = self.contents.work().acquire(org).await?;
        // A request before this one may have serialised the snapshot.
        if let Some(serialized) = self.cache.get(org, current.head.snapshot_id) {
            return Ok(serialized);
        }
        let (org, cache, write) = (org.clone(), Arc::clone(&self.cache), Arc::clone(&self.write));
        let (snapshot_id, text_bytes) = (current.head.snapshot_id, current.text_bytes);
        // Cached by the task itself, so that the result serves the next caller even if this one is cancelled.
        let serialize = move || {
            let serialized = Bytes::from(write(&org, pulled_config(current)));
            cache.insert(&org, snapshot_id, serialized.clone(), serialized.len());
            serialized
        };
        let (serialized, _permit) = permit.run(text_bytes, serialize).await?;
        Ok(serialized)
    }
}

/// Renders the documents in their canonical form, one file per kind.
pub(super) fn pulled_config(current: CurrentConfig) -> PulledConfig {
    let CurrentConfig { head, content, .. } = current;
    PulledConfig {
        version: head.config_version,
        changed_at: head.changed_at,
        author: head.author,
        files: render::render_files(&content),
    }
}
