//! `/admin/v1/partial-items` and `/admin/v1/partial-requests`: the platform's endpoint as the operator configured it, what
//! it was asked for, and what came of it. A refresh of an item is asked for here and made by the role `process`.

use axum::{
    Json, Router,
    extract::State,
    http::StatusCode,
    routing::{get, post},
};
use serde::Serialize;
use tidegate_moderation::partial_items::{
    requests::{self, NewRequest},
    views::{self, RequestView},
};
use tidegate_schemas::ids::{ItemKey, JobId, Millis};
use tidegate_store::{
    At, Cursor, Row as _,
    tables::review::partial_requests::{PartialRequest, PartialTrigger},
};
use tidegate_web::{Path, Problem, Query};

use super::{
    Api, List,
    caller::Caller,
    child_safety,
    extract::{Page, WholeList},
    faults,
    job_list::limit,
    jobs,
};
use crate::day_place::DayPlace;

pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/partial-items", get(endpoint))
        .route("/partial-items/secret/reveal", post(reveal))
        .route("/partial-requests", get(list))
        .route("/partial-requests/{id}", get(one))
        .route("/items/{type}/{id}/refresh", post(refresh))
}

#[derive(Serialize)]
struct EndpointView<'a> {
    /// URL without its query, which may carry a secret.
    url: &'a str,
    headers: Vec<HeaderView<'a>>,
}

#[derive(Serialize)]
struct HeaderView<'a> {
    name: &'a str,
    value: &'static str,
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
) -> Result<Json<serde_json::Value>, Problem> {
    let found = api.deps.moderation.partial_items.get(&caller.org).ok_or_else(no_endpoint)?;
    let headers = found.header_names().map(|name| HeaderView { name, value: "***" }).collect();
    let view = EndpointView { url: found.shown_url(), headers };
    serde_json::to_value(view).map(Json).map_err(|_| Problem::internal())
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
    let found = views::find(&api.deps.moderation.store, &caller.org, &id).await;
    let found = found.map_err(faults::moderation)?;
    let found = found.ok_or_else(|| Problem::not_found("There is no such request."))?;
    let object = format!("/partial-requests/{id}");
    let visible =
        child_safety::visible_requests(&api, &caller, vec![found], "/partial-requests/{id}", object);
    let row = visible.await?.pop().ok_or_else(Caller::lacks_child_safety)?;
    views::request(row).map(Json).map_err(faults::moderation)
}

/// Lists requests, the newest first.
async fn list(
    State(api): State<Api>,
    caller: Caller,
    Query(page): Query<Page>,
) -> Result<Json<List<RequestView>>, Problem> {
    let limit = limit(&api, page.limit)?;
    let (store, now) = (&api.deps.moderation.store, Millis::now());
    let oldest = now.minus(PartialRequest::TABLE.ttl.unwrap_or_default()).day();
    // A clock that is ahead may have written for tomorrow.
    let mut place = page.after::<DayPlace>()?.unwrap_or(DayPlace { day: now.day() + 1, after: None });
    place.day = place.day.min(now.day() + 1);
    let mut items = Vec::new();
    while place.day >= oldest {
        let range = At::all().limit(limit - items.len()).after(place.after.clone());
        let mut rows = store.scan::<PartialRequest>(&(caller.org.clone(), place.day), range);
        let found = rows.all().await.map_err(faults::store)?;
        if let Some(last) = found.last() {
            place.after = Some(Cursor::after(last));
        }
        let read_all = rows.cursor().is_none();
        let route = "/partial-requests";
        for row in child_safety::visible_requests(&api, &caller, found, route, route.to_owned()).await? {
            items.push(views::request(row).map_err(faults::moderation)?);
        }
        if items.len() >= limit {
            return Ok(Json(List { items, next: Some(place.to_string()) }));
        }
        if read_all {
            place = DayPlace { day: place.day - 1, after: None };
        }
    }
    Ok(Json(List { items, next: None }))
}

fn no_endpoint() -> Problem {
    Problem::not_found(
        "The organisation has no partial items endpoint: the operator sets it as partial_items.<org> in the settings.",
    )
}
