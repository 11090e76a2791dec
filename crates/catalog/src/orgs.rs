//! Creates, lists and disables organisations. The admin API authorizes its callers.

use async_recursion::async_recursion as boxed;
use tidegate_schemas::{
    documents::is_key,
    ids::{ConfigVersion, Millis, OrgId},
};
use tidegate_store::{
    ReplaceOutcome, Split, Store,
    tables::catalog::{configs::ConfigHead, orgs::Org},
};

use crate::{Error, content::Content, snapshots};

/// Error of creating or changing an organisation.
#[derive(Debug, thiserror::Error)]
pub enum OrgError {
    #[error(
        "an organisation's id begins with a letter or digit and has at most 64 letters, digits, `_`, `.` and `-`"
    )]
    BadId,
    #[error(transparent)]
    Catalog(#[from] Error),
}

impl OrgError {
    pub fn tag(&self) -> &'static str {
        match self {
            Self::BadId => "org_bad_id",
            Self::Catalog(error) => error.tag(),
        }
    }
}

impl From<tidegate_store::Error> for OrgError {
    fn from(error: tidegate_store::Error) -> Self {
        Self::Catalog(error.into())
    }
}

/// Creates an organisation with an empty configuration; returns `false` if it existed. Repeating a call that
/// crashed completes it.
#[boxed]
pub async fn create(store: &Store, org: &OrgId, name: &str, now: Millis) -> Result<bool, OrgError> {
    if !is_key(org.as_str()) {
        return Err(OrgError::BadId);
    }
    let row = Org { org: org.clone(), name: name.to_owned(), created_at: now, disabled_at: None, version: 0 };
    let is_new = store.insert_new(&row).await?.is_new();
    // Checked separately from the row: an earlier call may have crashed between the two.
    if snapshots::load_head(store, org).await?.is_none() {
        let version = ConfigVersion(1);
        let author = "tidegate";
        let text = Content::default().encode();
        let snapshot_id = snapshots::write_snapshot(store, org, version, &text, author, now).await?;
        let head = ConfigHead {
            org: org.clone(),
            config_version: version,
            snapshot_id,
            changed_at: now,
            author: author.to_owned(),
            version: 0,
        };
        // A concurrent call may have inserted a head. The result is the same, as both snapshots are empty.
        store.insert_new(&head).await?;
        snapshots::bump_epoch(store, now).await?;
    }
    Ok(is_new)
}

#[boxed]
pub async fn get(store: &Store, org: &OrgId) -> Result<Option<Org>, Error> {
    Ok(store.get::<Org>(&Org::key(org.clone())).await?)
}

#[boxed]
pub async fn list(store: &Store) -> Result<Vec<Org>, Error> {
    let mut orgs = store.scan_all::<Org>(&Split::whole_table()).all().await?;
    orgs.sort_by(|left, right| (left.created_at, &left.org).cmp(&(right.created_at, &right.org)));
    Ok(orgs)
}

/// Disables or enables an organisation. The keys of a disabled organisation grant no access. Processes notice
/// within the time for which they cache keys.
#[boxed]
pub async fn set_disabled(store: &Store, org: &OrgId, disabled_at: Option<Millis>) -> Result<(), Error> {
    let no_such_org = || Error::NoSuchOrg(org.clone());
    let mut row = get(store, org).await?.ok_or_else(no_such_org)?;
    loop {
        let updated_row = Org { disabled_at, ..row.clone() };
        match store.replace(&updated_row, row.version).await? {
            ReplaceOutcome::Done => return Ok(()),
            ReplaceOutcome::Conflict(newer) => row = newer,
            ReplaceOutcome::Missing => return Err(no_such_org()),
        }
    }
}
