//! `/admin/v1/partial-items` and `/admin/v1/partial-requests`: the platform's endpoint as the operator configured it, what
//! it was asked for, and what came of it. A refresh of an item is asked for here and made by the role `process`.

use axum::{
    Json, Router,
    extract::State,
    http::StatusCode,
    routing::{get, post},
};
use serde::{Deserialize, Serialize};
use tidegate_moderation::partial_items::{
    requests::{self, NewRequest},
    views::{self, RequestView},
};
use tidegate_schemas::ids::{ItemKey, JobId, Millis};
use tidegate_store::{
    At, Cursor, Row as _,
    tables::review::partial_requests::{PartialRequest, PartialState, PartialTrigger},
};
use tidegate_web::{Path, Problem, Query};

use super::{
    Api, List,
    caller::Caller,
    child_safety,
    extract::{WholeList, invalid, not_a_cursor},
    faults,
    job_list::limit,
    jobs,
};
use crate::day_place::DayPlace;

/// Routes of the endpoint's settings.
pub(super) fn settings_routes() -> Router<Api> {
    Router::new().route("/partial-items", get(endpoint)).route("/partial-items/secret/reveal", post(reveal))
}

pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/partial-requests", get(list))
        .route("/partial-requests/{id}", get(one))
        .route("/items/{type}/{id}/refresh", post(refresh))
}

#[derive(Serialize)]
pub(crate) struct EndpointView {
    /// URL without its query, which may carry a secret.
    pub(crate) url: String,
    pub(crate) headers: Vec<HeaderView>,
}

#[derive(Serialize)]
pub(crate) struct HeaderView {
    pub(crate) name: String,
    pub(crate) value: &'static str,
}

#[derive(Serialize)]
struct Revealed {
    secret: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Accepted {
    request_id: String,
}

async fn endpoint(
    State(api): State<Api>,
    caller: Caller,
    Query(_): Query<WholeList>,
) -> Result<Json<EndpointView>, Problem> {
    endpoint_of(&api, &caller).map(Json).ok_or_else(no_endpoint)
}

/// The endpoint that the operator configured for the organisation.
pub(crate) fn endpoint_of(api: &Api, caller: &Caller) -> Option<EndpointView> {
    let found = api.deps.moderation.partial_items.get(&caller.org)?;
    let headers = found.header_names().map(|name| HeaderView { name: name.to_owned(), value: "***" });
    Some(EndpointView { url: found.shown_url().to_owned(), headers: headers.collect() })
}

async fn reveal(State(api): State<Api>, caller: Caller) -> Result<Json<Revealed>, Problem> {
    if !api.deps.moderation.partial_items.has(&caller.org) {
        return Err(no_endpoint());
    }
    let secret = api.deps.secrets.for_partial_items(&caller.org).await.map_err(faults::secret)?;
    Ok(Json(Revealed { secret: secret.expose().to_owned() }))
}

/// 202: the role `process` asks; the request's row says what came of it.
async fn refresh(
    State(api): State<Api>,
    caller: Caller,
    Path((type_id, id)): Path<(String, String)>,
) -> Result<(StatusCode, Json<Accepted>), Problem> {
    let moderation = &api.deps.moderation;
    if !moderation.partial_items.has(&caller.org) {
        return Err(no_endpoint());
    }
    let item = ItemKey::new(type_id, id);
    let config = jobs::config(&api, &caller).await?;
    if config.item_type(&item.type_id).is_none() {
        return Err(Problem::not_found("There is no such item type."));
    }
    // Who asks may not see what came of it.
    if !child_safety::hidden(&api, &caller, std::slice::from_ref(&item)).await?.is_empty() {
        return Err(Caller::lacks_child_safety());
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
    requests::store(moderation, request).await.map_err(faults::moderation)?;
    Ok((StatusCode::ACCEPTED, Json(Accepted { request_id: views::public_id(at, request_id) })))
}

async fn one(
    State(api): State<Api>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<RequestView>, Problem> {
    request(&api, &caller, &id).await.map(Json)
}

/// The request that an id names.
pub(crate) async fn request(api: &Api, caller: &Caller, id: &str) -> Result<RequestView, Problem> {
    let found = views::find(&api.deps.moderation.store, &caller.org, id).await;
    let found = found.map_err(faults::moderation)?;
    let found = found.ok_or_else(|| Problem::not_found("There is no such request."))?;
    let object = format!("/partial-requests/{id}");
    let visible = child_safety::visible_requests(api, caller, vec![found], "/partial-requests/{id}", object);
    let row = visible.await?.pop().ok_or_else(Caller::lacks_child_safety)?;
    views::request(row).map_err(faults::moderation)
}

/// Choice and page of a list of requests.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
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

struct Choice<'a> {
    state: Option<PartialState>,
    trigger: Option<PartialTrigger>,
    error: Option<&'a str>,
}

impl<'a> Choice<'a> {
    fn of(wanted: &'a Wanted) -> Result<Self, Problem> {
        let state = wanted.state.as_deref().map(str::parse).transpose();
        let trigger = wanted.trigger.as_deref().map(str::parse).transpose();
        Ok(Self {
            state: state.map_err(|_| invalid("/state", "`state` is pending, done or failed."))?,
            trigger: trigger
                .map_err(|_| invalid("/trigger", "`trigger` is report, appeal, claim or refresh."))?,
            error: wanted.error.as_deref(),
        })
    }

    fn takes(&self, row: &PartialRequest) -> bool {
        self.state.is_none_or(|state| state == row.state)
            && self.trigger.is_none_or(|trigger| trigger == row.trigger)
            && self.error.is_none_or(|error| row.error.as_deref() == Some(error))
    }
}

async fn list(
    State(api): State<Api>,
    caller: Caller,
    Query(wanted): Query<Wanted>,
) -> Result<Json<List<RequestView>>, Problem> {
    page(&api, &caller, &wanted).await.map(Json)
}

/// Lists requests, the newest first.
pub(crate) async fn page(api: &Api, caller: &Caller, wanted: &Wanted) -> Result<List<RequestView>, Problem> {
    let limit = limit(api, wanted.limit)?;
    let choice = Choice::of(wanted)?;
    let (store, now) = (&api.deps.moderation.store, Millis::now());
    let oldest = now.minus(PartialRequest::TABLE.ttl.unwrap_or_default()).day();
    let from = wanted.cursor.as_deref().map(str::parse::<DayPlace>).transpose();
    // A clock that is ahead may have written for tomorrow.
    let from = from.map_err(|()| not_a_cursor())?;
    let mut place = from.unwrap_or(DayPlace { day: now.day() + 1, after: None });
    place.day = place.day.min(now.day() + 1);
    let mut rows_left = api.settings.rows_per_page;
    let mut items = Vec::new();
    while place.day >= oldest {
        let step = rows_left.min(limit - items.len());
        if step == 0 {
            return Ok(List { items, next: Some(place.to_string()) });
        }
        let range = At::all().limit(step).after(place.after.clone());
        let mut rows = store.scan::<PartialRequest>(&(caller.org.clone(), place.day), range);
        let mut found = rows.all().await.map_err(faults::store)?;
        rows_left -= found.len();
        if let Some(last) = found.last() {
            place.after = Some(Cursor::after(last));
        }
        let read_all = rows.cursor().is_none();
        found.retain(|row| choice.takes(row));
        let route = "/partial-requests";
        for row in child_safety::visible_requests(api, caller, found, route, route.to_owned()).await? {
            items.push(views::request(row).map_err(faults::moderation)?);
        }
        if read_all {
            place = DayPlace { day: place.day - 1, after: None };
        }
    }
    Ok(List { items, next: None })
}

fn no_endpoint() -> Problem {
    Problem::not_found(
        "The organisation has no partial items endpoint: the operator sets it as partial_items.<org> in the settings.",
    )
}
