//! Finds the items that only callers with the scope `child_safety` may see.

use std::collections::HashSet;

use tidegate_schemas::{
    ids::{ItemKey, OrgId},
    records::JobClass,
};
use tidegate_store::{
    Store,
    tables::review::jobs::{Job, JobState, SubjectJob},
};

use crate::Error;

/// Returns those of the items that have or had a child-safety job. An item whose newest child-safety job was moved to a
/// review queue is not among them.
pub async fn restricted(store: &Store, org: &OrgId, items: &[ItemKey]) -> Result<HashSet<ItemKey>, Error> {
    let class = JobClass::ChildSafety.as_str();
    let keys: Vec<_> = items
        .iter()
        .map(|item| (org.clone(), class.to_owned(), item.type_id.clone(), item.id.clone()))
        .collect();
    let pointers: Vec<_> = store.get_many::<SubjectJob>(&keys).await?.into_iter().flatten().collect();
    let jobs: Vec<_> = pointers.iter().map(|pointer| (org.clone(), pointer.job_id)).collect();
    let jobs = store.get_many::<Job>(&jobs).await?;
    // A pointer is written before its job, which is about to follow.
    let restricted = pointers
        .into_iter()
        .zip(jobs)
        .filter(|(_, job)| job.as_ref().is_none_or(|job| job.state != JobState::Moved))
        .map(|(pointer, _)| ItemKey { type_id: pointer.type_id, id: pointer.item_id });
    Ok(restricted.collect())
}

/// True if only callers with the scope `child_safety` may see the item.
pub async fn is_restricted(store: &Store, org: &OrgId, item: &ItemKey) -> Result<bool, Error> {
    Ok(!restricted(store, org, std::slice::from_ref(item)).await?.is_empty())
}
