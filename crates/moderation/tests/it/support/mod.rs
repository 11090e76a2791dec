//! Dependencies of moderation on an embedded store and log.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use bytes::Bytes;
use tempfile::TempDir;
use tidegate_catalog::LiveConfigs;
use tidegate_moderation::{
    Deps,
    child_safety::{AuthorizedJob, Clearance},
};
use tidegate_schemas::{
    ids::{ItemKey, JobId, OrgId, SubmissionId},
    records::{ItemEntry, Variant},
};
use tidegate_store::Store;
use tidegate_stream::Log;

pub(crate) async fn fixture() -> (Deps, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let db = fjall::Database::builder(folder.path()).open().unwrap();
    let stream = tidegate_stream::settings::Settings { partitions: Some(1), ..Default::default() };
    let log = Log::open_embedded(db.clone(), &stream).unwrap();
    let store = Store::open_embedded(&db, tidegate_store::embedded::Settings::default()).unwrap();
    let live =
        Arc::new(LiveConfigs::open(store.clone(), tidegate_catalog::Settings::default()).await.unwrap());
    (Deps { log, store, live, partial_items: Arc::default() }, folder)
}

pub(crate) fn org() -> OrgId {
    OrgId::new("acme")
}

/// Loads the job with clearance for all classes.
pub(crate) async fn authorize(store: &Store, job: JobId) -> AuthorizedJob {
    AuthorizedJob::load(store, &org(), job, Clearance::ChildSafety).await.unwrap().unwrap()
}

pub(crate) fn post() -> ItemKey {
    ItemKey::new("post", "p1")
}

/// Entry of the post in a record.
pub(crate) fn item_entry(submission_id: SubmissionId, keyed: bool) -> ItemEntry {
    ItemEntry {
        submission_id,
        type_id: post().type_id,
        id: post().id,
        type_version: None,
        variant: Variant::Original,
        data: Bytes::from_static(b"{}"),
        origin: None,
        keyed,
    }
}
