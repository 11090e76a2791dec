//! Keeps items of child safety from callers without its scope, and records whoever sees them.

use std::collections::HashSet;

use tidegate_moderation::review::child_safety::restricted;
use tidegate_schemas::{
    ids::{ItemKey, JobId},
    records::JobClass,
};
use tidegate_store::tables::review::{
    jobs::{Job, JobState},
    partial_requests::PartialRequest,
};
use tidegate_web::Problem;

use super::{Api, audit, caller::Caller, faults};

/// Returns those of the items that the caller may not see.
pub(super) async fn hidden(
    api: &Api,
    caller: &Caller,
    items: &[ItemKey],
) -> Result<HashSet<ItemKey>, Problem> {
    if caller.may_child_safety() {
        return Ok(HashSet::new());
    }
    restricted(&api.deps.moderation.store, &caller.org, items).await.map_err(faults::moderation)
}

/// Refuses callers without the scope if one of the items has a child-safety job. Otherwise the view is in the audit before
/// they are shown.
pub(super) async fn check_and_record(
    api: &Api,
    caller: &Caller,
    items: &[ItemKey],
    route: &str,
    object: String,
) -> Result<(), Problem> {
    let store = &api.deps.moderation.store;
    if restricted(store, &caller.org, items).await.map_err(faults::moderation)?.is_empty() {
        return Ok(());
    }
    caller.needs_child_safety()?;
    audit::record_view(api, caller, route, object).await
}

/// Keeps the requests for items that the caller may see: neither made for a child-safety job, nor naming an item that has
/// one.
pub(super) async fn visible_requests(
    api: &Api,
    caller: &Caller,
    requests: Vec<PartialRequest>,
) -> Result<Vec<PartialRequest>, Problem> {
    if caller.may_child_safety() {
        return Ok(requests);
    }
    // A list that cannot be read names no item, so the caller may not see it.
    let items = |request: &PartialRequest| serde_json::from_str::<Vec<ItemKey>>(&request.asked).ok();
    let asked: Vec<ItemKey> = requests.iter().filter_map(items).flatten().collect();
    let hidden = hidden(api, caller, &asked).await?;
    let keys: Vec<_> = requests.iter().filter_map(|it| Some((caller.org.clone(), it.job_id?))).collect();
    let jobs = api.deps.moderation.store.get_many::<Job>(&keys).await.map_err(faults::store)?;
    let closed_to_caller = |job: &Job| job.class == JobClass::ChildSafety && job.state != JobState::Moved;
    let hidden_jobs: HashSet<JobId> =
        jobs.into_iter().flatten().filter(closed_to_caller).map(|job| job.job_id).collect();
    let is_visible = |request: &PartialRequest| {
        request.job_id.is_none_or(|job| !hidden_jobs.contains(&job))
            && items(request).is_some_and(|items| items.iter().all(|item| !hidden.contains(item)))
    };
    Ok(requests.into_iter().filter(is_visible).collect())
}
