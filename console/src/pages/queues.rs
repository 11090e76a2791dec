//! Page of the review queues with their waiting, opened and closed jobs.

use axum::{Router, extract::State, response::Response, routing::get};
use maud::{Markup, html};
use serde::Deserialize;
use tidegate_schemas::ids::QueueId;
use tidegate_web::{Problem, Query};

use crate::{
    admin::jobs::queues::{self, FlowResponse, QueueResponse},
    api::Api,
    html::{self, Section, code, pager, text, time},
    signin::PageSession,
};

pub(super) fn routes() -> Router<Api> {
    Router::new().route("/queues", get(show_queues))
}

#[derive(Deserialize)]
struct PageQuery {
    cursor: Option<String>,
}

async fn show_queues(
    State(api): State<Api>,
    session: PageSession,
    Query(query): Query<PageQuery>,
) -> Result<Response, Problem> {
    let page = queues::load_page(&api, &session.caller, None, query.cursor).await?;
    let body = html! {
        @if page.items.is_empty() {
            p.none { "No queues on this page." }
        } @else {
            table {
                thead {
                    tr {
                        th scope="col" { "Queue" }
                        th.number scope="col" { "Open" }
                        th.number scope="col" { "Claimed" }
                        th scope="col" { "Oldest" }
                        th scope="col" { "Target" }
                        th.number scope="col" { "Last hour" }
                        th.number scope="col" { "Last day" }
                    }
                }
                tbody { @for queue in &page.items { (queue_row(queue)) } }
            }
        }
        (pager("/queues", &[], page.next.as_deref()))
        p.hint { "Last hour and last day: jobs opened / closed." }
    };
    Ok(html::render_page(session.frame(), Some(Section::Queues), "Queues", &body))
}

/// Returns the path of the page with the queue's jobs.
pub(super) fn jobs_link(queue: &QueueId) -> String {
    html::link("/jobs", [("queue", queue.as_str())])
}

fn queue_row(queue: &QueueResponse) -> Markup {
    let link = jobs_link(&queue.key);
    html! {
        tr {
            th scope="row" {
                a href=(link) { (text(&queue.name)) } " "
                (code(&queue.key))
                @if queue.removed { " " span.badge.bad { "removed" } }
                @if let Some(description) = &queue.description { p.hint dir="auto" { (description) } }
            }
            td.number data-label="Open" { (format_count(queue.open)) }
            td.number data-label="Claimed" { (format_count(queue.claimed)) }
            td data-label="Oldest" {
                span {
                    @match (&queue.oldest_at, queue.oldest_age_seconds) {
                        (Some(at), Some(age)) => { (time(at)) " (" (format_period(age.unsigned_abs())) ")" }
                        _ if queue.open.is_none() => { (UNKNOWN) }
                        _ => { "none" }
                    }
                }
            }
            td data-label="Target" {
                span {
                    @match (queue.target_age_seconds, queue.within_target) {
                        (Some(target), Some(true)) => { span.badge.good { "within " (format_period(target)) } }
                        (Some(target), Some(false)) => { span.badge.bad { "over " (format_period(target)) } }
                        (Some(target), None) => { (format_period(target)) }
                        _ => { "none" }
                    }
                }
            }
            td.number data-label="Last hour" { (format_flow(queue.last_hour.as_ref())) }
            td.number data-label="Last day" { (format_flow(queue.last_day.as_ref())) }
        }
    }
}

/// Shown instead of a number that the caller may not see.
const UNKNOWN: &str = "–";

fn format_count(number: Option<impl ToString>) -> String {
    number.map_or_else(|| UNKNOWN.to_owned(), |number| number.to_string())
}

fn format_flow(flow: Option<&FlowResponse>) -> String {
    flow.map_or_else(|| UNKNOWN.to_owned(), |flow| format!("{} / {}", flow.opened, flow.closed))
}

/// Formats a period in its two largest units: `2 d 3 h`.
fn format_period(seconds: u64) -> String {
    let units = [(86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")];
    let largest = units.iter().position(|(unit, _)| seconds >= *unit).unwrap_or(units.len() - 1);
    let (unit, name) = units[largest];
    let smaller = units.get(largest + 1).map(|(smaller_unit, name)| (seconds % unit / smaller_unit, name));
    match smaller {
        Some((count, smaller_name)) if count > 0 => {
            format!("{} {name} {count} {smaller_name}", seconds / unit)
        }
        _ => format!("{} {name}", seconds / unit),
    }
}

#[cfg(test)]
mod tests {
    use super::format_period;

    #[test]
    fn period_has_at_most_two_units() {
        for (seconds, text) in [
            (0, "0 s"),
            (59, "59 s"),
            (60, "1 min"),
            (3_661, "1 h 1 min"),
            (86_400, "1 d"),
            (97_200, "1 d 3 h"),
        ] {
            assert_eq!(format_period(seconds), text);
        }
    }
}
