//! The current documents of orgs as files, written out for whoever asks, and kept until they change.

use std::sync::Arc;

use bytes::Bytes;
use tidegate_schemas::ids::OrgId;

use super::{Pulled, render};
use crate::{
    Error, Settings,
    contents::{Contents, Current},
    recent::Recent,
};

type Write = dyn Fn(&OrgId, Pulled) -> Vec<u8> + Send + Sync;

/// Writes out what orgs pull. One snapshot of an org is written once, however many ask for it at once.
pub struct Pulls {
    contents: Contents,
    write: Arc<Write>,
    kept: Arc<Recent<Bytes>>,
}

impl Pulls {
    pub(super) fn new(contents: Contents, write: Arc<Write>, settings: &Settings) -> Self {
        Self { contents, write, kept: Arc::new(Recent::new(settings.cached_configuration_bytes / 2)) }
    }

    /// Returns the current documents as `write` wrote them.
    pub async fn get(&self, org: &OrgId) -> Result<Bytes, Error> {
        let head = self.contents.head(org).await?;
        if let Some(written) = self.kept.get(org, head.snapshot_id) {
            return Ok(written);
        }
        let current = self.contents.current(org).await?;
        let turn = self.contents.work().turn(org).await?;
        if let Some(written) = self.kept.get(org, current.head.snapshot_id) {
            return Ok(written);
        }
        let (org, kept, write) = (org.clone(), Arc::clone(&self.kept), Arc::clone(&self.write));
        let (snapshot_id, bytes) = (current.head.snapshot_id, current.bytes);
        let work = move || {
            let written = Bytes::from(write(&org, pulled(current)));
            kept.put(&org, snapshot_id, written.clone(), written.len());
            written
        };
        let (written, _turn) = turn.run(bytes, work).await?;
        Ok(written)
    }
}

/// The documents in their canonical form, one file a kind.
pub(super) fn pulled(current: Current) -> Pulled {
    let Current { head, content, .. } = current;
    Pulled {
        version: head.config_version,
        changed_at: head.changed_at,
        author: head.author,
        files: render::files(&content),
    }
}
