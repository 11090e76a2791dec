//! `/admin/v1/jobs` and `/jobs/{id}`: lists jobs, and shows a job with its causes and fetched items.

use std::collections::HashSet;

use axum::{Json, Router, extract::State, routing::get};
use tidegate_moderation::{
    child_safety::AuthorizedJob,
    items::stored,
    jobs::summary::JobSummaryResponse,
    partial_items::views::{self, ItemLimits, PartialRequestResponse},
    review::{
        job_view::{self, CauseLimits, CauseResponse, JobResponse},
        withheld,
    },
};
use tidegate_schemas::{
    ids::{ItemKey, JobId},
    records::JobClass,
};
use tidegate_store::Cursor;
use tidegate_web::{Path, Problem, Query};

use super::{authorization::load_viewable_job, job_list, refusals::no_such_job};
use crate::{
    admin::{
        access::child_safety,
        request::{Caller, PageQuery, faults, load_config, not_a_cursor, page_limit, parse_id},
    },
    api::{Api, ListResponse},
};

pub(crate) fn routes() -> Router<Api> {
    Router::new()
        .route("/jobs", get(list_jobs))
        .route("/jobs/{id}", get(get_job))
        .route("/jobs/{id}/causes", get(list_causes))
        .route("/jobs/{id}/partial-items", get(list_partial_items))
}

async fn list_jobs(
    State(api): State<Api>,
    caller: Caller,
    Query(query): Query<job_list::ListJobsQuery>,
) -> Result<Json<ListResponse<JobSummaryResponse>>, Problem> {
    job_list::load_page(&api, &caller, &query).await.map(Json)
}

async fn get_job(
    State(api): State<Api>,
    caller: Caller,
    Path(job): Path<String>,
) -> Result<Json<JobResponse>, Problem> {
    load_job_view(&api, &caller, parse_id(&job)?).await.map(Json)
}

/// Loads a job with its causes up to the limits of one answer.
pub(crate) async fn load_job_view(api: &Api, caller: &Caller, job: JobId) -> Result<JobResponse, Problem> {
    let limits = build_cause_limits(api, None)?;
    let config = load_config(api, caller).await?;
    // Authorized and recorded before any cause or item of the job is read.
    let job = load_viewable_job(api, caller, job).await?;
    let loaded_view = job_view::load_view(&api.deps.moderation.store, &config, &job, limits).await;
    let mut view = loaded_view.map_err(faults::moderation_problem)?.ok_or_else(no_such_job)?;
    let mut items = withheld::collect_items(&view.causes).map_err(faults::moderation_problem)?;
    items.insert(job.row().item.clone());
    if let Some(fetched_items) = &view.partial_items {
        items.extend(fetched_items.items.iter().map(item_key));
        items.extend(fetched_items.requests.iter().flat_map(requested_items));
    }
    let withheld_items =
        find_withheld_items(api, caller, &job, items, "/jobs/{id}", format!("/jobs/{}", job.id())).await?;
    withheld::withhold(&mut view.causes, &job.row().item, &withheld_items)
        .map_err(faults::moderation_problem)?;
    if withheld_items.contains(&job.row().item) {
        view.latest_item = None;
    }
    if let Some(fetched_items) = &mut view.partial_items {
        fetched_items.items.retain(|item| !withheld_items.contains(&item_key(item)));
        fetched_items
            .requests
            .retain(|request| !requested_items(request).iter().any(|item| withheld_items.contains(item)));
    }
    view.withheld = withheld_items.into_iter().collect();
    // A set has no order; sorted, so that equal answers are equal texts.
    view.withheld.sort_unstable();
    Ok(view)
}

/// Lists the causes of a job that exceed the limits of its answer.
async fn list_causes(
    State(api): State<Api>,
    caller: Caller,
    Path(job): Path<String>,
    Query(page): Query<PageQuery>,
) -> Result<Json<ListResponse<CauseResponse>>, Problem> {
    let limits = build_cause_limits(&api, page.limit)?;
    load_causes(&api, &caller, parse_id(&job)?, page.parse_cursor()?, limits).await.map(Json)
}

/// Loads the causes of a job after a cursor.
async fn load_causes(
    api: &Api,
    caller: &Caller,
    job: JobId,
    after: Option<Cursor>,
    limits: CauseLimits,
) -> Result<ListResponse<CauseResponse>, Problem> {
    let job = load_viewable_job(api, caller, job).await?;
    let config = load_config(api, caller).await?;
    let page = job_view::load_causes(&api.deps.moderation.store, &config, &job, after, limits).await;
    let (mut causes, next) = page.map_err(faults::moderation_problem)?;
    let mut items = withheld::collect_items(&causes).map_err(faults::moderation_problem)?;
    items.insert(job.row().item.clone());
    // The audit tells this list from the view of the job.
    let (route, object) = ("/jobs/{id}/causes", format!("/jobs/{}/causes", job.id()));
    let withheld_items = find_withheld_items(api, caller, &job, items, route, object).await?;
    withheld::withhold(&mut causes, &job.row().item, &withheld_items).map_err(faults::moderation_problem)?;
    Ok(ListResponse { items: causes, next: next.map(|cursor| cursor.to_string()) })
}

/// Loads a page of a job's causes for the console.
pub(crate) async fn load_causes_page(
    api: &Api,
    caller: &Caller,
    job: JobId,
    cursor: Option<&str>,
) -> Result<ListResponse<CauseResponse>, Problem> {
    let after = cursor.map(str::parse).transpose().map_err(|_| not_a_cursor())?;
    load_causes(api, caller, job, after, build_cause_limits(api, None)?).await
}

/// Lists the fetched items of a job that exceed the limits of its answer.
async fn list_partial_items(
    State(api): State<Api>,
    caller: Caller,
    Path(job): Path<String>,
    Query(page): Query<PageQuery>,
) -> Result<Json<ListResponse<stored::ItemResponse>>, Problem> {
    let limits = build_cause_limits(&api, page.limit)?;
    load_partial_items(&api, &caller, parse_id(&job)?, page.parse_cursor()?, limits).await.map(Json)
}

/// Loads the fetched items of a job after a cursor.
async fn load_partial_items(
    api: &Api,
    caller: &Caller,
    job: JobId,
    after: Option<views::ItemCursor>,
    CauseLimits { causes: items, bytes }: CauseLimits,
) -> Result<ListResponse<stored::ItemResponse>, Problem> {
    let job = load_viewable_job(api, caller, job).await?;
    let (store, limits) = (&api.deps.moderation.store, ItemLimits { items, bytes });
    let loaded_page = views::load_items_of_job(store, &job, after, limits).await;
    let page = loaded_page.map_err(faults::moderation_problem)?;
    let (route, object) = ("/jobs/{id}/partial-items", format!("/jobs/{}/partial-items", job.id()));
    let mut items = page.items;
    let withheld_items =
        find_withheld_items(api, caller, &job, items.iter().map(item_key), route, object).await?;
    items.retain(|item| !withheld_items.contains(&item_key(item)));
    Ok(ListResponse { items, next: page.next.map(|cursor| cursor.to_string()) })
}

/// Returns the items to withhold from the caller: without the child-safety scope, those with a child-safety job. With the scope,
/// records the view in the audit before the items are shown.
async fn find_withheld_items(
    api: &Api,
    caller: &Caller,
    job: &AuthorizedJob,
    items: impl IntoIterator<Item = ItemKey>,
    route: &str,
    object: String,
) -> Result<HashSet<ItemKey>, Problem> {
    // The view of a child-safety job's own item is recorded with the job.
    let is_recorded = |item: &ItemKey| job.class() == JobClass::ChildSafety && *item == job.row().item;
    let items: Vec<_> = items.into_iter().filter(|item| !is_recorded(item)).collect();
    child_safety::withhold_or_record_view(api, caller, &items, route, object).await
}

fn item_key(item: &stored::ItemResponse) -> ItemKey {
    ItemKey { type_id: item.type_id.clone(), id: item.id.clone() }
}

fn requested_items(request: &PartialRequestResponse) -> Vec<ItemKey> {
    serde_json::from_str(request.asked.get()).unwrap_or_default()
}

/// Loads a page of a job's fetched items for the console.
pub(crate) async fn load_partial_items_page(
    api: &Api,
    caller: &Caller,
    job: JobId,
    cursor: Option<&str>,
) -> Result<ListResponse<stored::ItemResponse>, Problem> {
    let after = cursor.map(str::parse).transpose().map_err(|_| not_a_cursor())?;
    load_partial_items(api, caller, job, after, build_cause_limits(api, None)?).await
}

fn build_cause_limits(api: &Api, limit: Option<usize>) -> Result<CauseLimits, Problem> {
    Ok(CauseLimits { causes: page_limit(api, limit)?, bytes: api.settings.cause_bytes })
}
