//! Reads current configurations for requests, and caches the most recently used. `live` reads the ones that
//! run.

use std::sync::Arc;

use tidegate_schemas::ids::OrgId;
use tidegate_store::{Store, tables::catalog::configs::ConfigHead};

use crate::{Error, OrgWork, Settings, content::Content, recent::Recent, snapshots};

/// Memory of a decoded configuration, as a multiple of its text.
const DECODED_BYTES_PER_TEXT_BYTE: usize = 4;

/// Reader of current configurations. Clones share one cache.
#[derive(Clone)]
pub(crate) struct Contents {
    store: Store,
    work: OrgWork,
    cache: Arc<Recent<(Arc<Content>, usize)>>,
}

/// Current configuration of an organisation.
pub(crate) struct CurrentConfig {
    pub(crate) head: ConfigHead,
    pub(crate) content: Arc<Content>,
    /// Length of the text, used as the cost of work with the configuration.
    pub(crate) text_bytes: usize,
}

impl Contents {
    pub(crate) fn new(store: Store, settings: &Settings) -> Self {
        let cache = Arc::new(Recent::new(settings.cached_configuration_bytes / 2));
        Self { store, work: OrgWork::new(settings), cache }
    }

    pub(crate) fn work(&self) -> &OrgWork {
        &self.work
    }

    pub(crate) async fn load_head(&self, org: &OrgId) -> Result<ConfigHead, Error> {
        snapshots::load_head(&self.store, org).await?.ok_or_else(|| Error::NoSuchOrg(org.clone()))
    }

    pub(crate) async fn load_current(&self, org: &OrgId) -> Result<CurrentConfig, Error> {
        let head = self.load_head(org).await?;
        if let Some(current) = self.cached(&head) {
            return Ok(current);
        }
        let permit = self.work.acquire(org).await?;
        // Read again: another request may have changed or decoded the configuration during the wait.
        let head = self.load_head(org).await?;
        if let Some(current) = self.cached(&head) {
            return Ok(current);
        }
        let text = snapshots::read_snapshot(&self.store, &head).await?;
        let (cache, org, snapshot_id) = (Arc::clone(&self.cache), org.clone(), head.snapshot_id);
        let (version, text_bytes) = (head.config_version, text.len());
        // Cached by the task itself, so that the result serves the next caller even if this one is cancelled.
        let decode = move || {
            let content = Arc::new(Content::decode(&text, version)?);
            cache.insert(
                &org,
                snapshot_id,
                (Arc::clone(&content), text_bytes),
                DECODED_BYTES_PER_TEXT_BYTE * text_bytes,
            );
            Ok::<_, String>(content)
        };
        let (decoded, _permit) = permit.run(text_bytes, decode).await?;
        let unreadable = |reason| Error::Unreadable { org: head.org.clone(), version, reason };
        let content = decoded.map_err(unreadable)?;
        Ok(CurrentConfig { head, content, text_bytes })
    }

    fn cached(&self, head: &ConfigHead) -> Option<CurrentConfig> {
        let (content, text_bytes) = self.cache.get(&head.org, head.snapshot_id)?;
        Some(CurrentConfig { head: head.clone(), content, text_bytes })
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
        let (one, two) = tokio::join!(contents.load_current(&first), contents.load_current(&first));
        let (one, two) = (one.unwrap().content, two.unwrap().content);
        assert!(Arc::ptr_eq(&one, &two), "who waited finds what was read");
        assert!(Arc::ptr_eq(&one, &contents.load_current(&first).await.unwrap().content));
        assert!(!Arc::ptr_eq(&one, &contents.load_current(&second).await.unwrap().content));
    }
}
