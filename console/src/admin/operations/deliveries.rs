//! `/admin/v1/deliveries`: lists and shows callbacks with their attempts, resends and cancels them. Only the view of one
//! delivery contains the body; a list would become too long.

use axum::{
    Json, Router,
    extract::State,
    http::StatusCode,
    routing::{get, post},
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tidegate_egress::Failure;
use tidegate_schemas::{
    documents::Event,
    ids::{EndpointId, EventId, ItemKey, Millis},
    records::Command,
};
use tidegate_store::{OpenEnum, tables::callbacks::deliveries as rows};
use tidegate_web::{Path, Problem, Query};

use super::delivery_rows;
use crate::{
    admin::{
        access::child_safety,
        request::{Caller, faults, invalid, not_a_cursor, page_limit, parse_id},
    },
    api::{Api, ListResponse},
};

pub(crate) fn routes() -> Router<Api> {
    Router::new()
        .route("/deliveries", get(list_deliveries))
        .route("/deliveries/{event}", get(get_delivery))
        .route("/deliveries/{event}/resend", post(resend_delivery))
        .route("/deliveries/{event}/cancel", post(cancel_delivery))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ListDeliveriesQuery {
    /// Name of a `DeliveryState`; left out: all states.
    state: Option<String>,
    event_type: Option<String>,
    endpoint: Option<String>,
    /// Item type of the callbacks to list.
    type_id: Option<String>,
    item_id: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
    #[serde(rename = "org")]
    _org: Option<String>,
}

impl ListDeliveriesQuery {
    fn matches(&self, delivery: &rows::Delivery) -> bool {
        fn matches_filter(filter: Option<&String>, value: &str) -> bool {
            filter.is_none_or(|expected| expected == value)
        }
        matches_filter(self.state.as_ref(), delivery.state.as_str())
            && matches_filter(self.event_type.as_ref(), &delivery.event_type.to_string())
            && matches_filter(
                self.endpoint.as_ref(),
                delivery.endpoint.as_ref().map_or("", |endpoint| endpoint.as_str()),
            )
            && matches_filter(self.type_id.as_ref(), delivery.subject.type_id.as_str())
            && matches_filter(self.item_id.as_ref(), delivery.subject.id.as_str())
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DeliverySummaryResponse {
    event_id: EventId,
    #[serde(rename = "type")]
    event_type: OpenEnum<Event>,
    endpoint: Option<EndpointId>,
    item: ItemKey,
    state: rows::DeliveryState,
    attempts: i64,
    sequence: i64,
    occurred_at: String,
    created_at: String,
    next_at: Option<String>,
    delivered_at: Option<String>,
    held_reason: Option<String>,
    /// Remedy, where the name of the reason does not suggest it.
    #[serde(skip_serializing_if = "Option::is_none")]
    held_detail: Option<&'static str>,
    last_status: Option<i64>,
    last_error: Option<String>,
    /// Remedy, where the name of the error does not suggest it.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error_detail: Option<String>,
}

impl From<&rows::Delivery> for DeliverySummaryResponse {
    fn from(row: &rows::Delivery) -> Self {
        Self {
            event_id: row.event_id,
            event_type: row.event_type.clone(),
            endpoint: row.endpoint.clone(),
            item: row.subject.clone(),
            state: row.state,
            attempts: row.attempts,
            sequence: row.sequence,
            occurred_at: row.occurred_at.iso(),
            created_at: row.created_at.iso(),
            next_at: row.next_at.map(Millis::iso),
            delivered_at: row.delivered_at.map(Millis::iso),
            held_reason: row.held_reason.clone(),
            held_detail: row.held_reason.as_deref().and_then(explain_held),
            last_status: row.last_status,
            last_error: row.last_error.clone(),
            last_error_detail: row.last_error.as_deref().and_then(Failure::explain),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AttemptResponse {
    number: i64,
    at: String,
    took_ms: i64,
    /// Reason for the attempt.
    trigger: rows::AttemptTrigger,
    outcome: String,
    http_status: Option<i64>,
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_detail: Option<String>,
    remote_ip: Option<String>,
    /// Start of the endpoint's response body.
    response_head: String,
}

impl From<rows::Attempt> for AttemptResponse {
    fn from(row: rows::Attempt) -> Self {
        Self {
            number: row.number,
            at: row.at.iso(),
            took_ms: row.took_ms,
            trigger: row.trigger,
            outcome: row.outcome,
            http_status: row.http_status,
            error_detail: row.error.as_deref().and_then(Failure::explain),
            error: row.error,
            remote_ip: row.remote_ip,
            response_head: String::from_utf8_lossy(&row.response_head).into_owned(),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DeliveryResponse {
    #[serde(flatten)]
    delivery: DeliverySummaryResponse,
    body: Option<Box<RawValue>>,
    attempt_list: Vec<AttemptResponse>,
}

async fn list_deliveries(
    State(api): State<Api>,
    caller: Caller,
    Query(filters): Query<ListDeliveriesQuery>,
) -> Result<Json<ListResponse<DeliverySummaryResponse>>, Problem> {
    // An unknown state would match no delivery and look like an empty list.
    if let Some(state) = &filters.state
        && state.parse::<rows::DeliveryState>().is_err()
    {
        let states: Vec<_> = rows::DeliveryState::ALL.iter().map(|state| state.as_str()).collect();
        return Err(invalid("", format!("`state` is one of {}.", states.join(", "))));
    }
    let cursor = filters.cursor.as_deref().map(str::parse).transpose();
    let query = delivery_rows::DeliveryQuery {
        from: cursor.map_err(|_| not_a_cursor())?,
        limit: page_limit(&api, filters.limit)?,
        rows: api.settings.rows_per_page,
        filter: |delivery: &rows::Delivery| filters.matches(delivery),
    };
    let store = &api.deps.moderation.store;
    let page = delivery_rows::load_page(store, &caller.org, query, Millis::now()).await;
    let (rows, next) = page.map_err(faults::store_problem)?;
    // Filtered after the page was read, so a page can be shorter than its limit and still have a next one.
    let withheld = caller.clearance().withheld_events(store, &caller.org, &rows).await;
    let withheld = withheld.map_err(faults::moderation_problem)?;
    let visible_deliveries = rows.iter().filter(|delivery| !withheld.contains(&delivery.event_id));
    let items = visible_deliveries.map(DeliverySummaryResponse::from).collect();
    Ok(Json(ListResponse { items, next: next.map(|place| place.to_string()) }))
}

async fn get_delivery(
    State(api): State<Api>,
    caller: Caller,
    Path(event): Path<String>,
) -> Result<Json<DeliveryResponse>, Problem> {
    let delivery =
        delivery_rows::load_delivery(&api.deps.moderation.store, &caller.org, parse_id(&event)?).await;
    let (row, attempts) = delivery.map_err(faults::store_problem)?.ok_or_else(no_such_delivery)?;
    // Checked after loading, because the restriction depends on the callback's items.
    child_safety::authorize_event_view(&api, &caller, &row).await?;
    Ok(Json(DeliveryResponse {
        delivery: DeliverySummaryResponse::from(&row),
        // A body that is not valid JSON is left out: state and attempts must stay visible.
        body: std::str::from_utf8(&row.body)
            .ok()
            .and_then(|text| RawValue::from_string(text.to_owned()).ok()),
        attempt_list: attempts.into_iter().map(AttemptResponse::from).collect(),
    }))
}

async fn resend_delivery(
    State(api): State<Api>,
    caller: Caller,
    Path(event): Path<String>,
) -> Result<StatusCode, Problem> {
    send_command(&api, &caller, &event, Command::Resend).await
}

async fn cancel_delivery(
    State(api): State<Api>,
    caller: Caller,
    Path(event): Path<String>,
) -> Result<StatusCode, Problem> {
    send_command(&api, &caller, &event, Command::Cancel).await
}

/// Returns the remedy for the reason of a held delivery.
fn explain_held(reason: &str) -> Option<&'static str> {
    (reason == child_safety::HELD_REASON).then_some(
        "The callback is about child-safety material, and its endpoint may not have that. It is sent once the document of the \
         endpoint says `child_safety: true`, which needs a key with the scope `child_safety`; or cancel it.",
    )
}

/// Sends a command to the process that owns the delivery. 202: the command is in the log.
async fn send_command(
    api: &Api,
    caller: &Caller,
    event: &str,
    command: Command,
) -> Result<StatusCode, Problem> {
    let event: EventId = parse_id(event)?;
    let deps = &api.deps.moderation;
    let delivery = deps
        .store
        .get::<rows::Delivery>(&(caller.org.clone(), event))
        .await
        .map_err(faults::store_problem)?;
    let delivery = delivery.ok_or_else(no_such_delivery)?;
    child_safety::require_event_clearance(api, caller, &delivery).await?;
    delivery_rows::send_command(deps, delivery, command).await.map_err(faults::moderation_problem)?;
    Ok(StatusCode::ACCEPTED)
}

fn no_such_delivery() -> Problem {
    Problem::not_found("There is no such delivery.")
}
