//! `/admin/v1/partial-items` and `/admin/v1/partial-requests`: shows the org's partial-items endpoint and the requests sent to
//! it, and queues refreshes of items. The role `process` makes the requests.

use axum::{
    Json, Router,
    extract::State,
    http::StatusCode,
    routing::{get, post},
};
use serde::{Deserialize, Serialize};
use tidegate_moderation::partial_items::{
    requests::{self, NewRequest},
    views::{self, PartialRequestResponse},
};
use tidegate_schemas::ids::{ItemKey, JobId, Millis};
use tidegate_store::{
    Cursor, DayCursor, Row as _, RowRange,
    tables::review::partial_requests::{PartialRequest, PartialState, PartialTrigger},
};
use tidegate_web::{Path, Problem, Query};

use crate::{
    admin::{
        access::child_safety,
        request::{Caller, UnpagedQuery, faults, invalid, load_config, not_a_cursor, page_limit},
    },
    api::{Api, ListResponse},
};

/// Routes of the endpoint's settings.
pub(crate) fn settings_routes() -> Router<Api> {
    Router::new()
        .route("/partial-items", get(get_endpoint))
        .route("/partial-items/secret/reveal", post(reveal_secret))
}

pub(crate) fn routes() -> Router<Api> {
    Router::new()
        .route("/partial-requests", get(list_requests))
        .route("/partial-requests/{id}", get(get_request))
        .route("/items/{type}/{id}/refresh", post(request_refresh))
}

#[derive(Serialize)]
pub(crate) struct EndpointResponse {
    /// URL without its query, which may carry a secret.
    pub(crate) url: String,
    pub(crate) headers: Vec<HeaderResponse>,
}

#[derive(Serialize)]
pub(crate) struct HeaderResponse {
    pub(crate) name: String,
    pub(crate) value: &'static str,
}

#[derive(Serialize)]
struct RevealSecretResponse {
    secret: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RefreshResponse {
    request_id: String,
}

async fn get_endpoint(
    State(api): State<Api>,
    caller: Caller,
    Query(_): Query<UnpagedQuery>,
) -> Result<Json<EndpointResponse>, Problem> {
    find_endpoint(&api, &caller).map(Json).ok_or_else(no_endpoint)
}

/// Returns the endpoint that the operator configured for the org.
pub(crate) fn find_endpoint(api: &Api, caller: &Caller) -> Option<EndpointResponse> {
    let endpoint = api.deps.moderation.partial_items.get(&caller.org)?;
    // Values are masked because they contain the platform's credentials.
    let headers = endpoint.header_names().map(|name| HeaderResponse { name: name.to_owned(), value: "***" });
    Some(EndpointResponse { url: endpoint.shown_url().to_owned(), headers: headers.collect() })
}

async fn reveal_secret(
    State(api): State<Api>,
    caller: Caller,
) -> Result<Json<RevealSecretResponse>, Problem> {
    if !api.deps.moderation.partial_items.has_endpoint(&caller.org) {
        return Err(no_endpoint());
    }
    let secret = api.deps.secrets.for_partial_items(&caller.org).await.map_err(faults::secret_problem)?;
    Ok(Json(RevealSecretResponse { secret: secret.expose().to_owned() }))
}

/// Queues a refresh of an item. 202: the role `process` makes the request and stores its outcome in the request's row.
async fn request_refresh(
    State(api): State<Api>,
    caller: Caller,
    Path((type_id, id)): Path<(String, String)>,
) -> Result<(StatusCode, Json<RefreshResponse>), Problem> {
    let moderation = &api.deps.moderation;
    if !moderation.partial_items.has_endpoint(&caller.org) {
        return Err(no_endpoint());
    }
    let item = ItemKey::new(type_id, id);
    let config = load_config(&api, &caller).await?;
    if config.item_type(&item.type_id).is_none() {
        return Err(Problem::not_found("There is no such item type."));
    }
    // Checked now because the caller could not see the outcome.
    if !child_safety::find_withheld_items(&api, &caller, std::slice::from_ref(&item)).await?.is_empty() {
        return Err(Caller::missing_child_safety_scope());
    }
    let (at, request_id) = (Millis::now(), JobId::random().0);
    let request = NewRequest {
        org: caller.org.clone(),
        id: request_id,
        trigger: PartialTrigger::Refresh,
        job_id: None,
        subject: item.clone(),
        items: vec![item],
        at,
    };
    requests::store_request(moderation, request).await.map_err(faults::moderation_problem)?;
    Ok((StatusCode::ACCEPTED, Json(RefreshResponse { request_id: views::public_id(at, request_id) })))
}

async fn get_request(
    State(api): State<Api>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<PartialRequestResponse>, Problem> {
    load_request(&api, &caller, &id).await.map(Json)
}

/// Loads the request with this id, if the caller may see it.
pub(crate) async fn load_request(
    api: &Api,
    caller: &Caller,
    id: &str,
) -> Result<PartialRequestResponse, Problem> {
    let result = views::find_request(&api.deps.moderation.store, &caller.org, id).await;
    let row = result.map_err(faults::moderation_problem)?;
    let request = row.ok_or_else(|| Problem::not_found("There is no such request."))?;
    let object = format!("/partial-requests/{id}");
    // Also for a single request: its items can be restricted although its job is not.
    let visible =
        child_safety::find_visible_requests(api, caller, vec![request], "/partial-requests/{id}", object);
    let row = visible.await?.pop().ok_or_else(Caller::missing_child_safety_scope)?;
    views::request_view(row).map_err(faults::moderation_problem)
}

/// Filters and page of a list of requests.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListRequestsQuery {
    /// `pending`, `done` or `failed`.
    pub(crate) state: Option<String>,
    /// `report`, `appeal`, `claim` or `refresh`.
    pub(crate) trigger: Option<String>,
    /// Name of an error.
    pub(crate) error: Option<String>,
    pub(crate) limit: Option<usize>,
    pub(crate) cursor: Option<String>,
    #[serde(rename = "org")]
    pub(crate) _org: Option<String>,
}

struct RequestFilter<'a> {
    state: Option<PartialState>,
    trigger: Option<PartialTrigger>,
    error: Option<&'a str>,
}

impl<'a> RequestFilter<'a> {
    fn parse(query: &'a ListRequestsQuery) -> Result<Self, Problem> {
        let state = query.state.as_deref().map(str::parse).transpose();
        let trigger = query.trigger.as_deref().map(str::parse).transpose();
        Ok(Self {
            state: state.map_err(|_| invalid("/state", "`state` is pending, done or failed."))?,
            trigger: trigger
                .map_err(|_| invalid("/trigger", "`trigger` is report, appeal, claim or refresh."))?,
            error: query.error.as_deref(),
        })
    }

    fn matches(&self, row: &PartialRequest) -> bool {
        self.state.is_none_or(|state| state == row.state)
            && self.trigger.is_none_or(|trigger| trigger == row.trigger)
            && self.error.is_none_or(|error| row.error.as_deref() == Some(error))
    }
}

async fn list_requests(
    State(api): State<Api>,
    caller: Caller,
    Query(query): Query<ListRequestsQuery>,
) -> Result<Json<ListResponse<PartialRequestResponse>>, Problem> {
    load_page(&api, &caller, &query).await.map(Json)
}

/// Loads a page of requests, newest first.
pub(crate) async fn load_page(
    api: &Api,
    caller: &Caller,
    query: &ListRequestsQuery,
) -> Result<ListResponse<PartialRequestResponse>, Problem> {
    let limit = page_limit(api, query.limit)?;
    let filter = RequestFilter::parse(query)?;
    let (store, now) = (&api.deps.moderation.store, Millis::now());
    let oldest = now.minus(PartialRequest::TABLE.ttl.unwrap_or_default()).day();
    let cursor = query.cursor.as_deref().map(str::parse::<DayCursor>).transpose();
    let start = cursor.map_err(|_| not_a_cursor())?;
    // Another process's clock can run ahead, so there may be rows for tomorrow.
    let mut place = start.unwrap_or(DayCursor::start_of(now.day() + 1));
    // A cursor with a far later day would cost a read for each day in between.
    place.partition = place.partition.min(now.day() + 1);
    let mut rows_left = api.settings.rows_per_page;
    let mut items = Vec::new();
    while place.partition >= oldest {
        let batch_limit = rows_left.min(limit - items.len());
        if batch_limit == 0 {
            return Ok(ListResponse { items, next: Some(place.to_string()) });
        }
        let range = RowRange::all().limit(batch_limit).after(place.after.clone());
        let mut rows = store.scan::<PartialRequest>(&(caller.org.clone(), place.partition), range);
        let mut batch = rows.all().await.map_err(faults::store_problem)?;
        // All rows read count against the page's cost, also those that the filter drops.
        rows_left -= batch.len();
        // Kept from the unfiltered batch: the next read must not repeat rows that the filter drops.
        if let Some(last) = batch.last() {
            place.after = Some(Cursor::after(last));
        }
        let is_day_complete = rows.cursor().is_none();
        batch.retain(|row| filter.matches(row));
        let route = "/partial-requests";
        for row in child_safety::find_visible_requests(api, caller, batch, route, route.to_owned()).await? {
            items.push(views::request_view(row).map_err(faults::moderation_problem)?);
        }
        if is_day_complete {
            place = DayCursor::start_of(place.partition - 1);
        }
    }
    Ok(ListResponse { items, next: None })
}

fn no_endpoint() -> Problem {
    Problem::not_found(
        "The organisation has no partial items endpoint: the operator sets it as partial_items.<org> in the settings.",
    )
}
