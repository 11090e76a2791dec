//! Keeps items of child safety from callers without its scope, and records whoever sees them.

use std::collections::HashSet;
pub(super) use tidegate_moderation::child_safety::HELD_REASON;
use tidegate_moderation::child_safety::{Clearance, restricted};
use tidegate_schemas::{
    ids::{ItemKey, JobId},
    records::JobClass,
};
use tidegate_store::tables::{
    callbacks::deliveries::Delivery,
    review::{
        jobs::{Job, JobState},
        partial_requests::PartialRequest,
    },
};
use tidegate_web::Problem;

use super::{Api, audit, caller::Caller, faults};

/// Returns those of the items that the caller may not see.
pub(super) async fn hidden(
    api: &Api,
    caller: &Caller,
    items: &[ItemKey],
) -> Result<HashSet<ItemKey>, Problem> {
    let withheld = caller.clearance().withheld_items(&api.deps.moderation.store, &caller.org, items).await;
    withheld.map_err(faults::moderation)
}

/// Returns those of the items that the caller may not see. If the caller may see all, the view of those with a child-safety job
/// is in the audit before they are shown.
pub(super) async fn hidden_or_recorded(
    api: &Api,
    caller: &Caller,
    items: &[ItemKey],
    route: &str,
    object: String,
) -> Result<HashSet<ItemKey>, Problem> {
    let store = &api.deps.moderation.store;
    let restricted_items = restricted(store, &caller.org, items).await.map_err(faults::store)?;
    if restricted_items.is_empty() || !caller.may_child_safety() {
        return Ok(restricted_items);
    }
    audit::record_view(api, caller, format!("GET {route}"), object).await?;
    Ok(HashSet::new())
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
    check_and_record_as(api, caller, items, format!("GET {route}"), object).await
}

/// The same for the item of an explanation, whose key is in the body of the request.
pub(super) async fn check_and_record_explained(
    api: &Api,
    caller: &Caller,
    item: &ItemKey,
    route: &str,
) -> Result<(), Problem> {
    let object = format!("{route}?typeId={}&id={}", item.type_id, item.id);
    check_and_record_as(api, caller, std::slice::from_ref(item), format!("POST {route}"), object).await
}

/// Refuses callers without the scope if the callback is about child-safety material. Otherwise its view is in the audit before it
/// is shown.
pub(super) async fn check_and_record_event(
    api: &Api,
    caller: &Caller,
    delivery: &Delivery,
) -> Result<(), Problem> {
    if is_withheld_event(api, caller, Clearance::None, delivery).await? {
        caller.needs_child_safety()?;
        let object = format!("/deliveries/{}", delivery.event_id);
        audit::record_view(api, caller, "GET /deliveries/{id}".to_owned(), object).await?;
    }
    Ok(())
}

/// Refuses callers without the scope if the callback is about child-safety material.
pub(super) async fn check_event(api: &Api, caller: &Caller, delivery: &Delivery) -> Result<(), Problem> {
    match is_withheld_event(api, caller, caller.clearance(), delivery).await? {
        true => Err(Caller::lacks_child_safety()),
        false => Ok(()),
    }
}

async fn is_withheld_event(
    api: &Api,
    caller: &Caller,
    clearance: Clearance,
    delivery: &Delivery,
) -> Result<bool, Problem> {
    let (store, delivery) = (&api.deps.moderation.store, std::slice::from_ref(delivery));
    let withheld = clearance.withheld_events(store, &caller.org, delivery).await;
    Ok(!withheld.map_err(faults::moderation)?.is_empty())
}

async fn check_and_record_as(
    api: &Api,
    caller: &Caller,
    items: &[ItemKey],
    action: String,
    object: String,
) -> Result<(), Problem> {
    let store = &api.deps.moderation.store;
    if restricted(store, &caller.org, items).await.map_err(faults::store)?.is_empty() {
        return Ok(());
    }
    caller.needs_child_safety()?;
    audit::record_view(api, caller, action, object).await
}

/// Returns the requests for items that the caller may see: without the scope neither those made for a child-safety job, nor
/// those that name an item which has one. With the scope, their view is in the audit before they are shown.
pub(super) async fn visible_requests(
    api: &Api,
    caller: &Caller,
    mut requests: Vec<PartialRequest>,
    route: &str,
    object: String,
) -> Result<Vec<PartialRequest>, Problem> {
    let store = &api.deps.moderation.store;
    let asked = |request: &PartialRequest| serde_json::from_str::<Vec<ItemKey>>(&request.asked).ok();
    let items: Vec<ItemKey> = requests.iter().filter_map(asked).flatten().collect();
    let items = restricted(store, &caller.org, &items).await.map_err(faults::store)?;
    let keys: Vec<_> = requests.iter().filter_map(|it| Some((caller.org.clone(), it.job_id?))).collect();
    let jobs = store.get_many::<Job>(&keys).await.map_err(faults::store)?.into_iter().flatten();
    let jobs = jobs.filter(|job| job.class == JobClass::ChildSafety && job.state != JobState::Moved);
    let jobs: HashSet<JobId> = jobs.map(|job| job.job_id).collect();
    let is_restricted = |request: &PartialRequest| {
        request.job_id.is_some_and(|job| jobs.contains(&job))
            // A list that cannot be read may name any item.
            || asked(request).is_none_or(|asked| asked.iter().any(|item| items.contains(item)))
    };
    if !caller.may_child_safety() {
        requests.retain(|request| !is_restricted(request));
    } else if requests.iter().any(is_restricted) {
        audit::record_view(api, caller, format!("GET {route}"), object).await?;
    }
    Ok(requests)
}
