//! Page of the review jobs.

use axum::{Router, extract::State, response::Response, routing::get};
use maud::{Markup, html};
use serde::Deserialize;
use tidegate_moderation::review::job_view::Summary;
use tidegate_schemas::ids::QueueId;
use tidegate_web::{Problem, Query};

use super::job_page;
use crate::{
    admin::{
        Api,
        job_list::{self, ListJobsQuery},
    },
    html::{self, Section, code, filter_value, pager, text, time},
    signin::PageCaller,
};

pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/jobs", get(list))
        .route("/jobs/{id}", get(job_page::one))
        .route("/jobs/{id}/causes", get(job_page::causes))
        .route("/jobs/{id}/partial-items", get(job_page::partial_items))
}

const STATES: [&str; 5] = ["open", "decided", "closed", "moved", "all"];

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Asked {
    queue: String,
    state: String,
    type_id: String,
    item_id: String,
    cursor: Option<String>,
}

async fn list(
    State(api): State<Api>,
    signed: PageCaller,
    Query(asked): Query<Asked>,
) -> Result<Response, Problem> {
    let wanted = ListJobsQuery {
        queue: filter_value(&asked.queue).map(QueueId::from),
        state: filter_value(&asked.state),
        type_id: filter_value(&asked.type_id),
        item_id: filter_value(&asked.item_id),
        cursor: asked.cursor.clone(),
        ..ListJobsQuery::default()
    };
    let found = job_list::load_page(&api, &signed.caller, &wanted).await?;
    let query = [
        ("queue", &*asked.queue),
        ("state", &*asked.state),
        ("typeId", &*asked.type_id),
        ("itemId", &*asked.item_id),
    ];
    let state = if asked.state.is_empty() { STATES[0] } else { &asked.state };
    let body = html! {
        form.filters method="get" action="/jobs" {
            div { label for="queue" { "Queue" } input #queue type="text" name="queue" value=(asked.queue); }
            div {
                label for="state" { "State" }
                select #state name="state" {
                    @for known in STATES { option value=(known) selected[known == state] { (known) } }
                }
            }
            div { label for="type" { "Item type" } input #type type="text" name="typeId" value=(asked.type_id); }
            div { label for="item" { "Item" } input #item type="text" name="itemId" value=(asked.item_id); }
            button type="submit" { "Show" }
        }
        @if found.items.is_empty() {
            p.none { @if found.next.is_some() { "No such job on this page." } @else { "No such jobs." } }
        } @else {
            table {
                thead {
                    tr {
                        th scope="col" { "Item" }
                        th scope="col" { "Queue" }
                        th scope="col" { "State" }
                        th.number scope="col" { "Priority" }
                        th scope="col" { "Opened" }
                        th scope="col" { "Claimed by" }
                    }
                }
                tbody { @for job in &found.items { (row(job)) } }
            }
        }
        (pager("/jobs", &query, found.next.as_deref()))
    };
    Ok(html::page(signed.frame(), Some(Section::Jobs), "Jobs", &body))
}

fn row(job: &Summary) -> Markup {
    html! {
        tr {
            th scope="row" {
                a href=(format!("/jobs/{}", job.id)) { (code(&job.item.type_id)) " " (code(&job.item.id)) }
            }
            td data-label="Queue" { (code(&job.queue)) }
            td data-label="State" { (job.state) }
            td.number data-label="Priority" { (job.priority) }
            td data-label="Opened" { (time(&job.created_at)) }
            td.name data-label="Claimed by" { span { (text(job.claimed_by.as_deref().unwrap_or("nobody"))) } }
        }
    }
}
