//! Page of the review queues: what waits in each, and how much came and went.

use axum::{Router, extract::State, response::Response, routing::get};
use maud::{Markup, html};
use serde::Deserialize;
use tidegate_schemas::ids::QueueId;
use tidegate_web::{Problem, Query};

use crate::{
    admin::{
        Api,
        queues::{self, FlowView, QueueView},
    },
    html::{self, Section, code, pager, text, time},
    signin::PageCaller,
};

pub(super) fn routes() -> Router<Api> {
    Router::new().route("/queues", get(list))
}

#[derive(Deserialize)]
struct Asked {
    cursor: Option<String>,
}

async fn list(
    State(api): State<Api>,
    signed: PageCaller,
    Query(asked): Query<Asked>,
) -> Result<Response, Problem> {
    let found = queues::load_page(&api, &signed.caller, None, asked.cursor).await?;
    let body = html! {
        @if found.items.is_empty() {
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
                tbody { @for queue in &found.items { (row(queue)) } }
            }
        }
        (pager("/queues", &[], found.next.as_deref()))
        p.hint { "Last hour and last day: jobs opened / closed." }
    };
    Ok(html::page(signed.frame(), Some(Section::Queues), "Queues", &body))
}

/// The page of the jobs of a queue.
pub(super) fn jobs_link(queue: &QueueId) -> String {
    html::link("/jobs", [("queue", queue.as_str())])
}

fn row(queue: &QueueView) -> Markup {
    let link = jobs_link(&queue.key);
    html! {
        tr {
            th scope="row" {
                a href=(link) { (text(&queue.name)) } " "
                (code(&queue.key))
                @if queue.removed { " " span.badge.bad { "removed" } }
                @if let Some(description) = &queue.description { p.hint dir="auto" { (description) } }
            }
            td.number data-label="Open" { (count(queue.open)) }
            td.number data-label="Claimed" { (count(queue.claimed)) }
            td data-label="Oldest" {
                span {
                    @match (&queue.oldest_at, queue.oldest_age_seconds) {
                        (Some(at), Some(age)) => { (time(at)) " (" (period(age.unsigned_abs())) ")" }
                        _ if queue.open.is_none() => { (UNKNOWN) }
                        _ => { "none" }
                    }
                }
            }
            td data-label="Target" {
                span {
                    @match (queue.target_age_seconds, queue.within_target) {
                        (Some(target), Some(true)) => { span.badge.good { "within " (period(target)) } }
                        (Some(target), Some(false)) => { span.badge.bad { "over " (period(target)) } }
                        (Some(target), None) => { (period(target)) }
                        _ => { "none" }
                    }
                }
            }
            td.number data-label="Last hour" { (flow(queue.last_hour.as_ref())) }
            td.number data-label="Last day" { (flow(queue.last_day.as_ref())) }
        }
    }
}

/// Text in the place of a number that the caller may not see.
const UNKNOWN: &str = "–";

fn count(number: Option<impl ToString>) -> String {
    number.map_or_else(|| UNKNOWN.to_owned(), |number| number.to_string())
}

fn flow(flow: Option<&FlowView>) -> String {
    flow.map_or_else(|| UNKNOWN.to_owned(), |flow| format!("{} / {}", flow.opened, flow.closed))
}

/// A period in its two largest units: `2 d 3 h`.
fn period(seconds: u64) -> String {
    let units = [(86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")];
    let first = units.iter().position(|(unit, _)| seconds >= *unit).unwrap_or(units.len() - 1);
    let (unit, name) = units[first];
    let rest = units.get(first + 1).map(|(next, name)| (seconds % unit / next, name));
    match rest {
        Some((more, next)) if more > 0 => format!("{} {name} {more} {next}", seconds / unit),
        _ => format!("{} {name}", seconds / unit),
    }
}

#[cfg(test)]
mod tests {
    use super::period;

    #[test]
    fn a_period_has_at_most_two_units() {
        for (seconds, text) in [
            (0, "0 s"),
            (59, "59 s"),
            (60, "1 min"),
            (3_661, "1 h 1 min"),
            (86_400, "1 d"),
            (97_200, "1 d 3 h"),
        ] {
            assert_eq!(period(seconds), text);
        }
    }
}
