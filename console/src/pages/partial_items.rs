//! Pages of partial items: the endpoint as the operator configured it, what it was asked for, and what went wrong.

use axum::{Router, extract::State, response::Response, routing::get};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::value::RawValue;
use tidegate_moderation::partial_items::views::RequestView;
use tidegate_schemas::ids::ItemKey;
use tidegate_store::tables::review::partial_requests::{PartialState, PartialTrigger};
use tidegate_web::{Path, Problem, Query};

use crate::{
    admin::{
        Api,
        partial_items::{self, ListRequestsQuery},
    },
    html::{self, Section, block, code, filter_value, pager, time},
    signin::PageCaller,
};

pub(super) fn settings_routes() -> Router<Api> {
    Router::new().route("/settings/partial-items", get(endpoint))
}

pub(super) fn routes() -> Router<Api> {
    Router::new().route("/partial-requests", get(list)).route("/partial-requests/{id}", get(one))
}

/// Errors of requests, with what the platform can do about each.
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

async fn endpoint(State(api): State<Api>, signed: PageCaller) -> Response {
    let found = partial_items::find_endpoint(&api, &signed.caller);
    let body = html! {
        p {
            "The service asks the platform for items at this endpoint. The operator sets it in the settings of the service, under "
            code dir="auto" { "partial_items." (signed.caller.org) }
            "; it cannot be changed here."
        }
        @if let Some(endpoint) = found {
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
    html::page(signed.frame(), Some(Section::PartialItems), "Partial items", &body)
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Asked {
    state: String,
    trigger: String,
    error: String,
    cursor: Option<String>,
}

async fn list(
    State(api): State<Api>,
    signed: PageCaller,
    Query(asked): Query<Asked>,
) -> Result<Response, Problem> {
    let wanted = ListRequestsQuery {
        state: filter_value(&asked.state),
        trigger: filter_value(&asked.trigger),
        error: filter_value(&asked.error),
        cursor: asked.cursor.clone(),
        ..ListRequestsQuery::default()
    };
    let found = partial_items::load_page(&api, &signed.caller, &wanted).await?;
    let query = [("state", &*asked.state), ("trigger", &*asked.trigger), ("error", &*asked.error)];
    let body = html! {
        p { "Requests of the last 30 days for items that reports, appeals, claims or an administrator needed." }
        form.filters method="get" action="/partial-requests" {
            (choice("state", "State", PartialState::ALL.iter().map(|it| (it.as_str(), it.as_str())), &asked.state))
            (choice("trigger", "Asked for by", PartialTrigger::ALL.iter().map(|it| (it.as_str(), it.as_str())), &asked.trigger))
            (choice("error", "Error", ERRORS.iter().map(|(name, _)| (*name, *name)), &asked.error))
            button type="submit" { "Show" }
        }
        @if found.items.is_empty() {
            p.none {
                @if found.next.is_some() { "No such request on this page." } @else { "No such requests." }
            }
        } @else {
            table {
                thead {
                    tr {
                        th scope="col" { "Requested" }
                        th scope="col" { "State" }
                        th scope="col" { "Asked for by" }
                        th scope="col" { "Items" }
                        th scope="col" { "Error" }
                    }
                }
                tbody { @for request in &found.items { (row(request)) } }
            }
        }
        (pager("/partial-requests", &query, found.next.as_deref()))
    };
    Ok(html::page(signed.frame(), Some(Section::PartialRequests), "Partial-items requests", &body))
}

fn choice<'a>(
    name: &str,
    label: &str,
    values: impl Iterator<Item = (&'a str, &'a str)>,
    chosen: &str,
) -> Markup {
    html! {
        div {
            label for=(name) { (label) }
            select id=(name) name=(name) {
                option value="" { "any" }
                @for (value, text) in values { option value=(value) selected[value == chosen] { (text) } }
            }
        }
    }
}

fn row(request: &RequestView) -> Markup {
    html! {
        tr {
            th scope="row" { a href=(format!("/partial-requests/{}", request.id)) { (time(&request.requested_at)) } }
            td data-label="State" { (state(request.state)) }
            td data-label="Asked for by" { (request.trigger) }
            td data-label="Items" {
                span {
                    (count(&request.asked)) " asked, " (count(&request.found)) " found, " (count(&request.missing)) " missing"
                    @if count(&request.invalid) > 0 { ", " (count(&request.invalid)) " invalid" }
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

fn state(state: &str) -> Markup {
    let class = match state {
        "done" => "badge good",
        "failed" => "badge bad",
        _ => "badge warn",
    };
    html! { span class=(class) { (state) } }
}

fn count(list: &RawValue) -> usize {
    serde_json::from_str::<Vec<&RawValue>>(list.get()).map_or(0, |list| list.len())
}

async fn one(
    State(api): State<Api>,
    signed: PageCaller,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let request = partial_items::load_request(&api, &signed.caller, &id).await?;
    let body = html! {
        @if let Some(error) = &request.error {
            div.alert {
                p { strong { (error.name) } }
                @if !error.detail.is_empty() { (block(&error.detail)) }
            }
            @if let Some((_, help)) = ERRORS.iter().find(|(name, _)| *name == error.name) { p { (help) } }
        }
        dl.facts {
            dt { "State" } dd { (state(request.state)) }
            dt { "Asked for by" }
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
            dt { "Discarded" } dd { (request.dropped) " entries that nobody asked for" }
        }
        (items("Asked for", &request.asked))
        (items("Found", &request.found))
        (items("Missing", &request.missing))
        (items("Invalid", &request.invalid))
        p { a href="/partial-requests" { "All requests" } }
    };
    Ok(html::page(signed.frame(), Some(Section::PartialRequests), "Partial-items request", &body))
}

/// An entry of a list of items, with what does not fit its type.
#[derive(Deserialize)]
struct Entry {
    #[serde(flatten)]
    key: ItemKey,
    #[serde(default)]
    faults: Vec<String>,
}

fn items(title: &str, list: &RawValue) -> Markup {
    let entries: Vec<Entry> = serde_json::from_str(list.get()).unwrap_or_default();
    html! {
        h2 { (title) " (" (count(list)) ")" }
        @if entries.is_empty() && count(list) > 0 {
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
