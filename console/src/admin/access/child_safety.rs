//! Withholds child-safety items from callers without its scope, and records every view of them in the audit.

use std::collections::HashSet;
pub(crate) use tidegate_moderation::child_safety::HELD_REASON;
use tidegate_moderation::child_safety::{Clearance, find_restricted};
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

use super::audit;
use crate::{
    admin::request::{Caller, faults},
    api::Api,
};

/// Returns the items to withhold from the caller.
pub(crate) async fn find_withheld_items(
    api: &Api,
    caller: &Caller,
    items: &[ItemKey],
) -> Result<HashSet<ItemKey>, Problem> {
    let withheld = caller.clearance().withheld_items(&api.deps.moderation.store, &caller.org, items).await;
    withheld.map_err(faults::moderation_problem)
}

/// Returns the items to withhold from the caller. For a caller with the scope, none are withheld, and the view of items with a
/// child-safety job is in the audit before they are shown.
pub(crate) async fn withhold_or_record_view(
    api: &Api,
    caller: &Caller,
    items: &[ItemKey],
    route: &str,
    object: String,
) -> Result<HashSet<ItemKey>, Problem> {
    let store = &api.deps.moderation.store;
    let restricted_items = find_restricted(store, &caller.org, items).await.map_err(faults::store_problem)?;
    if restricted_items.is_empty() || !caller.may_see_child_safety() {
        return Ok(restricted_items);
    }
    // Recorded before the items are returned: if the audit cannot be written, no item is shown.
    audit::record_view(api, caller, format!("GET {route}"), object).await?;
    Ok(HashSet::new())
}

/// Authorizes a view of items. Callers without the scope are refused if one of the items has a child-safety job; with the
/// scope, the view is in the audit before the items are shown.
pub(crate) async fn authorize_items_view(
    api: &Api,
    caller: &Caller,
    items: &[ItemKey],
    route: &str,
    object: String,
) -> Result<(), Problem> {
    authorize_items_as(api, caller, items, format!("GET {route}"), object).await
}

/// Authorizes a view of the item of an explanation, which the request names in its body.
pub(crate) async fn authorize_explained_item(
    api: &Api,
    caller: &Caller,
    item: &ItemKey,
    route: &str,
) -> Result<(), Problem> {
    let object = format!("{route}?typeId={}&id={}", item.type_id, item.id);
    authorize_items_as(api, caller, std::slice::from_ref(item), format!("POST {route}"), object).await
}

/// Authorizes a view of a callback. Callers without the scope are refused if it concerns child-safety material; with the
/// scope, the view is in the audit before the callback is shown.
pub(crate) async fn authorize_event_view(
    api: &Api,
    caller: &Caller,
    delivery: &Delivery,
) -> Result<(), Problem> {
    // Asked without clearance: the answer must not depend on the caller's scope.
    if is_withheld_event(api, caller, Clearance::None, delivery).await? {
        caller.require_child_safety()?;
        let object = format!("/deliveries/{}", delivery.event_id);
        audit::record_view(api, caller, "GET /deliveries/{id}".to_owned(), object).await?;
    }
    Ok(())
}

/// Refuses callers without the scope if the callback concerns child-safety material.
pub(crate) async fn require_event_clearance(
    api: &Api,
    caller: &Caller,
    delivery: &Delivery,
) -> Result<(), Problem> {
    match is_withheld_event(api, caller, caller.clearance(), delivery).await? {
        true => Err(Caller::missing_child_safety_scope()),
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
    Ok(!withheld.map_err(faults::moderation_problem)?.is_empty())
}

async fn authorize_items_as(
    api: &Api,
    caller: &Caller,
    items: &[ItemKey],
    action: String,
    object: String,
) -> Result<(), Problem> {
    let store = &api.deps.moderation.store;
    // Only views of restricted items are recorded.
    if find_restricted(store, &caller.org, items).await.map_err(faults::store_problem)?.is_empty() {
        return Ok(());
    }
    caller.require_child_safety()?;
    audit::record_view(api, caller, action, object).await
}

/// Returns the requests for items that the caller may see. Without the scope, requests of a child-safety job and requests that
/// name an item with one are left out; with the scope, their view is in the audit before they are shown.
pub(crate) async fn find_visible_requests(
    api: &Api,
    caller: &Caller,
    mut requests: Vec<PartialRequest>,
    route: &str,
    object: String,
) -> Result<Vec<PartialRequest>, Problem> {
    let store = &api.deps.moderation.store;
    let requested_items =
        |request: &PartialRequest| serde_json::from_str::<Vec<ItemKey>>(&request.asked).ok();
    let items: Vec<ItemKey> = requests.iter().filter_map(requested_items).flatten().collect();
    let restricted_items =
        find_restricted(store, &caller.org, &items).await.map_err(faults::store_problem)?;
    let keys: Vec<_> =
        requests.iter().filter_map(|request| Some((caller.org.clone(), request.job_id?))).collect();
    let jobs = store.get_many::<Job>(&keys).await.map_err(faults::store_problem)?.into_iter().flatten();
    // A job that was moved to another class no longer restricts its items.
    let jobs = jobs.filter(|job| job.class == JobClass::ChildSafety && job.state != JobState::Moved);
    let restricted_jobs: HashSet<JobId> = jobs.map(|job| job.job_id).collect();
    let is_restricted = |request: &PartialRequest| {
        request.job_id.is_some_and(|job| restricted_jobs.contains(&job))
            // An unreadable list could name any item, so it counts as restricted.
            || requested_items(request).is_none_or(|items| items.iter().any(|item| restricted_items.contains(item)))
    };
    if !caller.may_see_child_safety() {
        requests.retain(|request| !is_restricted(request));
    } else if requests.iter().any(is_restricted) {
        audit::record_view(api, caller, format!("GET {route}"), object).await?;
    }
    Ok(requests)
}
