//! Page that lists review jobs, with filters.

use axum::{Router, extract::State, response::Response, routing::get};
use maud::{Markup, html};
use serde::Deserialize;
use tidegate_moderation::{jobs::summary::JobSummaryResponse, review::job_search::ALL_STATES};
use tidegate_schemas::ids::QueueId;
use tidegate_store::tables::review::jobs::JobState;
use tidegate_web::{Problem, Query};

use super::job_page;
use crate::{
    admin::jobs::job_list::{self, ListJobsQuery},
    api::Api,
    html::{self, Section, code, filter_value, pager, text, time},
    signin::PageSession,
};

pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/jobs", get(show_jobs))
        .route("/jobs/{id}", get(job_page::show_job))
        .route("/jobs/{id}/causes", get(job_page::show_causes))
        .route("/jobs/{id}/partial-items", get(job_page::show_partial_items))
}

/// Filters of the page's form. The form sends an empty string for an empty field.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct JobFilters {
    queue: String,
    state: String,
    type_id: String,
    item_id: String,
    cursor: Option<String>,
}

async fn show_jobs(
    State(api): State<Api>,
    session: PageSession,
    Query(filters): Query<JobFilters>,
) -> Result<Response, Problem> {
    let query = ListJobsQuery {
        queue: filter_value(&filters.queue).map(QueueId::from),
        state: filter_value(&filters.state),
        type_id: filter_value(&filters.type_id),
        item_id: filter_value(&filters.item_id),
        cursor: filters.cursor.clone(),
        ..ListJobsQuery::default()
    };
    let page = job_list::load_page(&api, &session.caller, &query).await?;
    let link_query = [
        ("queue", &*filters.queue),
        ("state", &*filters.state),
        ("typeId", &*filters.type_id),
        ("itemId", &*filters.item_id),
    ];
    // The form shows the state that the list uses by default.
    let selected_state = if filters.state.is_empty() { JobState::Open.as_str() } else { &filters.state };
    let states = JobState::ALL.iter().map(|state| state.as_str()).chain([ALL_STATES]);
    let body = html! {
        form.filters method="get" action="/jobs" {
            div { label for="queue" { "Queue" } input #queue type="text" name="queue" value=(filters.queue); }
            div {
                label for="state" { "State" }
                select #state name="state" {
                    @for state in states { option value=(state) selected[state == selected_state] { (state) } }
                }
            }
            div { label for="type" { "Item type" } input #type type="text" name="typeId" value=(filters.type_id); }
            div { label for="item" { "Item" } input #item type="text" name="itemId" value=(filters.item_id); }
            button type="submit" { "Show" }
        }
        @if page.items.is_empty() {
            p.none { @if page.next.is_some() { "No such job on this page." } @else { "No such jobs." } }
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
                tbody { @for job in &page.items { (job_row(job)) } }
            }
        }
        (pager("/jobs", &link_query, page.next.as_deref()))
    };
    Ok(html::render_page(session.frame(), Some(Section::Jobs), "Jobs", &body))
}

fn job_row(job: &JobSummaryResponse) -> Markup {
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
