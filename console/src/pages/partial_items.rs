//! Pages of partial items: the configured endpoint, and the requests to it with their errors.

use axum::{Router, extract::State, response::Response, routing::get};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::value::RawValue;
use tidegate_moderation::partial_items::views::PartialRequestResponse;
use tidegate_schemas::ids::ItemKey;
use tidegate_store::tables::review::partial_requests::{PartialState, PartialTrigger};
use tidegate_web::{Path, Problem, Query};

use crate::{
    admin::items::partial_items::{self, ListRequestsQuery},
    api::Api,
    html::{self, Section, block, code, filter_value, pager, time},
    signin::PageSession,
};

pub(super) fn settings_routes() -> Router<Api> {
    Router::new().route("/settings/partial-items", get(show_endpoint))
}

pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/partial-requests", get(show_requests))
        .route("/partial-requests/{id}", get(show_request))
}

/// Errors of requests with their usual causes and remedies.
const ERRORS: [(&str, &str); 3] = [
    (
        "PartialItemsEndpointResponseError",
        "The platform's endpoint answered with a status other than 2xx. Look for the request in its log: the usual causes are a \
         missing authentication header, a wrong address, and an error of the endpoint itself.",
    ),
    (
        "PartialItemsInvalidResponseError",
        "The body is no JSON, or it lacks items, id, typeId or data. Two usual causes: middleware writes a body twice (null, and \
         then the object), and a tunnel answers with its own HTML page.",
    ),
    (
        "PartialItemsEndpointUnreachableError",
        "There was no connection or no answer in time, or the endpoint rests after failures in a row. Check that it runs and that \
         its address is public.",
    ),
];

async fn show_endpoint(State(api): State<Api>, session: PageSession) -> Response {
    let configured_endpoint = partial_items::find_endpoint(&api, &session.caller);
    let body = html! {
        p {
            "The service asks the platform for items at this endpoint. The operator sets it in the settings of the service, under "
            code dir="auto" { "partial_items." (session.caller.org) }
            "; it cannot be changed here."
        }
        @if let Some(endpoint) = configured_endpoint {
            dl.facts {
                dt { "URL" }
                dd { (code(&endpoint.url)) p.hint { "A query is not shown: it may carry a secret." } }
            }
            h2 { "Headers" }
            @if endpoint.headers.is_empty() {
                p.none { "No header beside the content type and the signature." }
            } @else {
                table {
                    thead { tr { th scope="col" { "Name" } th scope="col" { "Value" } } }
                    tbody {
                        @for header in &endpoint.headers {
                            tr { th scope="row" { code { (header.name) } } td data-label="Value" { code { (header.value) } } }
                        }
                    }
                }
            }
            p { a href="/partial-requests" { "Requests to this endpoint" } }
        } @else {
            p.none { "The organisation has no partial items endpoint." }
        }
    };
    html::render_page(session.frame(), Some(Section::PartialItems), "Partial items", &body)
}

/// Filters of the page's form. The form sends an empty string for an empty field.
#[derive(Default, Deserialize)]
#[serde(default)]
struct RequestFilters {
    state: String,
    trigger: String,
    error: String,
    cursor: Option<String>,
}

async fn show_requests(
    State(api): State<Api>,
    session: PageSession,
    Query(filters): Query<RequestFilters>,
) -> Result<Response, Problem> {
    let query = ListRequestsQuery {
        state: filter_value(&filters.state),
        trigger: filter_value(&filters.trigger),
        error: filter_value(&filters.error),
        cursor: filters.cursor.clone(),
        ..ListRequestsQuery::default()
    };
    let page = partial_items::load_page(&api, &session.caller, &query).await?;
    let link_query = [("state", &*filters.state), ("trigger", &*filters.trigger), ("error", &*filters.error)];
    let body = html! {
        p { "Requests of the last 30 days for items that reports, appeals, claims or an administrator needed." }
        form.filters method="get" action="/partial-requests" {
            (select_field("state", "State", PartialState::ALL.iter().map(|value| (value.as_str(), value.as_str())), &filters.state))
            (select_field("trigger", "Trigger", PartialTrigger::ALL.iter().map(|value| (value.as_str(), value.as_str())), &filters.trigger))
            (select_field("error", "Error", ERRORS.iter().map(|(name, _)| (*name, *name)), &filters.error))
            button type="submit" { "Show" }
        }
        @if page.items.is_empty() {
            p.none {
                @if page.next.is_some() { "No such request on this page." } @else { "No such requests." }
            }
        } @else {
            table {
                thead {
                    tr {
                        th scope="col" { "Requested" }
                        th scope="col" { "State" }
                        th scope="col" { "Trigger" }
                        th scope="col" { "Items" }
                        th scope="col" { "Error" }
                    }
                }
                tbody { @for request in &page.items { (request_row(request)) } }
            }
        }
        (pager("/partial-requests", &link_query, page.next.as_deref()))
    };
    Ok(html::render_page(session.frame(), Some(Section::PartialRequests), "Partial-items requests", &body))
}

fn select_field<'a>(
    name: &str,
    label: &str,
    values: impl Iterator<Item = (&'a str, &'a str)>,
    selected_value: &str,
) -> Markup {
    html! {
        div {
            label for=(name) { (label) }
            select id=(name) name=(name) {
                option value="" { "any" }
                @for (value, text) in values { option value=(value) selected[value == selected_value] { (text) } }
            }
        }
    }
}

fn request_row(request: &PartialRequestResponse) -> Markup {
    html! {
        tr {
            th scope="row" { a href=(format!("/partial-requests/{}", request.id)) { (time(&request.requested_at)) } }
            td data-label="State" { (state_badge(request.state)) }
            td data-label="Trigger" { (request.trigger) }
            td data-label="Items" {
                span {
                    (count_entries(&request.asked)) " asked, " (count_entries(&request.found)) " found, " (count_entries(&request.missing)) " missing"
                    @if count_entries(&request.invalid) > 0 { ", " (count_entries(&request.invalid)) " invalid" }
                }
            }
            td data-label="Error" {
                span {
                    @if let Some(error) = &request.error { code.whole { (error.name) } } @else { "none" }
                }
            }
        }
    }
}

fn state_badge(state: &str) -> Markup {
    let class = match state {
        "done" => "badge good",
        "failed" => "badge bad",
        _ => "badge warn",
    };
    html! { span class=(class) { (state) } }
}

fn count_entries(list: &RawValue) -> usize {
    serde_json::from_str::<Vec<&RawValue>>(list.get()).map_or(0, |list| list.len())
}

async fn show_request(
    State(api): State<Api>,
    session: PageSession,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let request = partial_items::load_request(&api, &session.caller, &id).await?;
    let body = html! {
        @if let Some(error) = &request.error {
            div.alert {
                p { strong { (error.name) } }
                @if !error.detail.is_empty() { (block(&error.detail)) }
            }
            @if let Some((_, help)) = ERRORS.iter().find(|(name, _)| *name == error.name) { p { (help) } }
        }
        dl.facts {
            dt { "State" } dd { (state_badge(request.state)) }
            dt { "Trigger" }
            dd {
                (request.trigger)
                @if let Some(job) = &request.job_id { ", for " a href=(format!("/jobs/{job}")) { "job " (job) } }
            }
            dt { "Requested" } dd { (time(&request.requested_at)) }
            dt { "Attempts" } dd { (request.attempts) }
            @if let Some(next) = &request.next_attempt_at { dt { "Next attempt" } dd { "after " (time(next)) } }
            @if let Some(settled) = &request.settled_at { dt { "Settled" } dd { (time(settled)) } }
            dt { "Took" } dd { (request.took_ms) " ms" }
            @if let Some(status) = request.http_status { dt { "HTTP status" } dd { (status) } }
            dt { "Discarded" } dd { (request.dropped) " entries that were not requested" }
        }
        (item_section("Requested", &request.asked))
        (item_section("Found", &request.found))
        (item_section("Missing", &request.missing))
        (item_section("Invalid", &request.invalid))
        p { a href="/partial-requests" { "All requests" } }
    };
    Ok(html::render_page(session.frame(), Some(Section::PartialRequests), "Partial-items request", &body))
}

/// Item of a list, with the violations of its type.
#[derive(Deserialize)]
struct ListedItem {
    #[serde(flatten)]
    key: ItemKey,
    #[serde(default)]
    faults: Vec<String>,
}

fn item_section(title: &str, list: &RawValue) -> Markup {
    let entries: Vec<ListedItem> = serde_json::from_str(list.get()).unwrap_or_default();
    html! {
        h2 { (title) " (" (count_entries(list)) ")" }
        @if entries.is_empty() && count_entries(list) > 0 {
            (block(list.get()))
        } @else if entries.is_empty() {
            p.none { "None." }
        } @else {
            table {
                thead { tr { th scope="col" { "Type" } th scope="col" { "Item" } th scope="col" { "Faults" } } }
                tbody {
                    @for entry in &entries {
                        tr {
                            td.name data-label="Type" { (code(&entry.key.type_id)) }
                            td.name data-label="Item" { (code(&entry.key.id)) }
                            td data-label="Faults" {
                                span {
                                    @if entry.faults.is_empty() { "none" }
                                    @for fault in &entry.faults { p dir="auto" { (fault) } }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
