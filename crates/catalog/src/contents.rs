//! Reads the current configurations for requests, and keeps those that were read last.
//!
//! `live` reads those that run by itself.

use std::sync::Arc;

use tidegate_schemas::ids::OrgId;
use tidegate_store::{Store, tables::catalog::configs::ConfigHead};

use crate::{Error, OrgWork, Settings, content::Content, recent::Recent, snapshots};

/// Memory that a decoded configuration takes, as a multiple of its text.
const DECODED: usize = 4;

/// Clones share what is kept.
#[derive(Clone)]
pub(crate) struct Contents {
    store: Store,
    work: OrgWork,
    kept: Arc<Recent<(Arc<Content>, usize)>>,
}

/// The current configuration of an org.
pub(crate) struct Current {
    pub(crate) head: ConfigHead,
    pub(crate) content: Arc<Content>,
    /// Length of its text, by which work with it is judged.
    pub(crate) bytes: usize,
}

impl Contents {
    pub(crate) fn new(store: Store, settings: &Settings) -> Self {
        let kept = Arc::new(Recent::new(settings.cached_configuration_bytes / 2));
        Self { store, work: OrgWork::new(settings), kept }
    }

    pub(crate) fn work(&self) -> &OrgWork {
        &self.work
    }

    pub(crate) async fn head(&self, org: &OrgId) -> Result<ConfigHead, Error> {
        snapshots::head(&self.store, org).await?.ok_or_else(|| Error::NoSuchOrg(org.clone()))
    }

    pub(crate) async fn current(&self, org: &OrgId) -> Result<Current, Error> {
        let head = self.head(org).await?;
        if let Some(current) = self.kept(&head) {
            return Ok(current);
        }
        let turn = self.work.turn(org).await?;
        // Read again: it may have changed meanwhile, and been read by the one before.
        let head = self.head(org).await?;
        if let Some(current) = self.kept(&head) {
            return Ok(current);
        }
        let text = snapshots::read(&self.store, &head).await?;
        let (kept, org, snapshot_id) = (Arc::clone(&self.kept), org.clone(), head.snapshot_id);
        let (version, bytes) = (head.config_version, text.len());
        // Kept by the work itself, so that what a client began that left is of use to the next one.
        let decode = move || {
            let content = Arc::new(Content::decode(&text, version)?);
            kept.put(&org, snapshot_id, (Arc::clone(&content), bytes), DECODED * bytes);
            Ok::<_, String>(content)
        };
        let (decoded, _turn) = turn.run(bytes, decode).await?;
        let unreadable = |reason| Error::Unreadable { org: head.org.clone(), version, reason };
        let content = decoded.map_err(unreadable)?;
        Ok(Current { head, content, bytes })
    }

    fn kept(&self, head: &ConfigHead) -> Option<Current> {
        let (content, bytes) = self.kept.get(&head.org, head.snapshot_id)?;
        Some(Current { head: head.clone(), content, bytes })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use tidegate_schemas::ids::Millis;
    use tidegate_store::embedded;

    use super::*;
    use crate::orgs;

    #[tokio::test]
    async fn one_snapshot_is_decoded_once() {
        let folder = tempfile::tempdir().unwrap();
        let db = fjall::Database::builder(folder.path().join("db")).open().unwrap();
        let store = Store::open_embedded(&db, embedded::Settings::default()).unwrap();
        let (first, second) = (OrgId::new("first"), OrgId::new("second"));
        for org in [&first, &second] {
            orgs::create(&store, org, "Org", Millis(1)).await.unwrap();
        }
        let contents = Contents::new(store, &Settings::default());
        let (one, two) = tokio::join!(contents.current(&first), contents.current(&first));
        let (one, two) = (one.unwrap().content, two.unwrap().content);
        assert!(Arc::ptr_eq(&one, &two), "who waited finds what was read");
        assert!(Arc::ptr_eq(&one, &contents.current(&first).await.unwrap().content));
        assert!(!Arc::ptr_eq(&one, &contents.current(&second).await.unwrap().content));
    }
}
