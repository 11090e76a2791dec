//! Read-only page of a review job: its item, causes, partial items, comments and decision.

use axum::{extract::State, response::Response};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};
use tidegate_moderation::{
    jobs::summary::{DecisionResponse, JobSummaryResponse},
    review::job_view::{AppealView, CauseResponse, JobResponse, ReportView, SentItem},
};
use tidegate_schemas::ids::{ItemKey, JobId};
use tidegate_web::{Path, Problem, Query};

use crate::{
    admin::{jobs::views, request::parse_id},
    api::Api,
    html::{self, Section, block, code, code_list, link, pager, text, time},
    signin::PageSession,
};

pub(super) async fn show_job(
    State(api): State<Api>,
    session: PageSession,
    Path(job): Path<String>,
) -> Result<Response, Problem> {
    let view = views::load_job_view(&api, &session.caller, parse_id(&job)?).await?;
    let JobResponse { job, causes, next_cause, comments, latest_item, partial_items, withheld } = &view;
    let more_link = next_cause
        .as_ref()
        .map(|cursor| link(&format!("/jobs/{}/causes", job.id), [("cursor", cursor.as_str())]));
    let body = html! {
        (job_facts(job))
        @if !withheld.is_empty() {
            p.hint {
                "Withheld, because they have a child-safety job, and your key lacks the scope " code { "child_safety" } ": "
                @for (nth, item) in withheld.iter().enumerate() { @if nth > 0 { ", " } (item_name(item)) }
            }
        }
        @if let Some(decision) = &job.decision { (decision_section(decision)) }
        h2 { "Causes" }
        @if causes.is_empty() { p.none { "The reports of this job are not stored yet." } }
        @for cause in causes { (cause_section(cause)) }
        @if let Some(more_link) = more_link { p { a href=(more_link) { "More reports and appeals" } } }
        @if let Some(item) = latest_item {
            h2 { "Latest version of the item" }
            (json(item))
        }
        @if let Some(partial_items) = partial_items {
            h2 { "Partial items" }
            ul {
                @for request in &partial_items.requests {
                    li {
                        a href=(format!("/partial-requests/{}", request.id)) { (time(&request.requested_at)) } " " (request.state)
                        @if let Some(error) = &request.error { ": " code { (error.name) } }
                    }
                }
            }
            @if partial_items.requests_more > 0 { p { (partial_items.requests_more) " older requests" } }
            @for item in &partial_items.items { (json(item)) }
            @if let Some(cursor) = &partial_items.next_item {
                @let more_link = link(&format!("/jobs/{}/partial-items", job.id), [("cursor", cursor.as_str())]);
                p { a href=(more_link) { (partial_items.items_more) " more items" } }
            }
        }
        @if !comments.is_empty() {
            h2 { "Comments" }
            @for comment in comments {
                p { strong { (text(&comment.author)) } ", " (time(&comment.at)) }
                (block(&comment.text))
            }
        }
    };
    Ok(html::render_page(session.frame(), Some(Section::Jobs), "Job", &body))
}

#[derive(Deserialize)]
pub(super) struct PageQuery {
    cursor: Option<String>,
}

/// Shows the causes beyond the limit of the job's page.
pub(super) async fn show_causes(
    State(api): State<Api>,
    session: PageSession,
    Path(job): Path<String>,
    Query(query): Query<PageQuery>,
) -> Result<Response, Problem> {
    let job = parse_id(&job)?;
    let page = views::load_causes_page(&api, &session.caller, job, query.cursor.as_deref()).await?;
    let causes = html! { @for cause in &page.items { (cause_section(cause)) } };
    Ok(render_continuation(
        &session,
        job,
        "causes",
        "Reports and appeals of a job",
        &causes,
        page.next.as_deref(),
    ))
}

/// Shows the fetched items beyond the limit of the job's page.
pub(super) async fn show_partial_items(
    State(api): State<Api>,
    session: PageSession,
    Path(job): Path<String>,
    Query(query): Query<PageQuery>,
) -> Result<Response, Problem> {
    let job = parse_id(&job)?;
    let page = views::load_partial_items_page(&api, &session.caller, job, query.cursor.as_deref()).await?;
    let items = html! { @for item in &page.items { (json(item)) } };
    Ok(render_continuation(
        &session,
        job,
        "partial-items",
        "Partial items of a job",
        &items,
        page.next.as_deref(),
    ))
}

/// Renders a list that continues the job's page.
fn render_continuation(
    session: &PageSession,
    job: JobId,
    list: &str,
    title: &str,
    entries: &Markup,
    next: Option<&str>,
) -> Response {
    let body = html! {
        p { a href=(format!("/jobs/{job}")) { "The job" } }
        (entries)
        (pager(&format!("/jobs/{job}/{list}"), &[], next))
    };
    html::render_page(session.frame(), Some(Section::Jobs), title, &body)
}

fn item_name(item: &ItemKey) -> Markup {
    html! { (code(&item.type_id)) " " (code(&item.id)) }
}

fn job_facts(job: &JobSummaryResponse) -> Markup {
    html! {
        dl.facts {
            dt { "Item" } dd { (item_name(&job.item)) }
            dt { "Queue" }
            dd {
                a href=(super::queues::jobs_link(&job.queue)) { (code(&job.queue)) } ", class " (job.class)
                @if let Some(routed) = &job.routed_by { ", routed by " (code(routed)) }
            }
            dt { "State" }
            dd {
                (job.state)
                @if let Some(by) = &job.claimed_by {
                    ", claimed by " (text(by))
                    @if let Some(until) = &job.lease_until { " until " (time(until)) }
                }
            }
            dt { "Priority" } dd { (job.priority) }
            dt { "Opened" } dd { (time(&job.created_at)) }
            @if let Some(closed) = &job.closed_at { dt { "Closed" } dd { (time(closed)) } }
            @if let Some(appeal) = &job.appeal_id { dt { "Appeal" } dd { (code(appeal)) } }
            @for job_move in &job.moves {
                dt { "Moved" }
                dd { (time(&job_move.at)) " from " (code(&job_move.from)) " to " (code(&job_move.to)) }
            }
            @for skip in &job.skips { dt { "Skipped" } dd { (time(&skip.at)) " by " (text(&skip.by)) } }
        }
    }
}

fn decision_section(decision: &DecisionResponse) -> Markup {
    html! {
        h2 { "Decision" }
        dl.facts {
            dt { "Verdict" } dd { (decision.verdict) }
            dt { "By" } dd { (text(&decision.decided_by)) ", " (time(&decision.decided_at)) }
            @if !decision.actions.is_empty() { dt { "Actions" } dd { (code_list(&decision.actions)) } }
            @if !decision.policies.is_empty() { dt { "Policies" } dd { (code_list(&decision.policies)) } }
            @if let Some(reason) = &decision.reason { dt { "Reason" } dd dir="auto" { (reason) } }
            @if !decision.related.is_empty() { dt { "Related items" } dd { (json(&decision.related)) } }
        }
    }
}

fn cause_section(cause: &CauseResponse) -> Markup {
    html! {
        section.cause {
            h3 { (cause.kind) ", " (time(&cause.at)) }
            @if cause.rules.get() != "[]" { p { "Rules" } (stored_json(&cause.rules)) }
            @if let Some(threshold) = &cause.threshold {
                p {
                    (code(&threshold.id)) ": " (threshold.strikes) " strikes, and the limit is " (threshold.limit)
                }
            }
            @if let Some(report) = &cause.report { (report_section(report)) }
            @if let Some(appeal) = &cause.appeal { (appeal_section(appeal)) }
        }
    }
}

fn report_section(report: &ReportView) -> Markup {
    html! {
        dl.facts {
            dt { "Reported by" }
            dd {
                (item_name(&report.reporter.user.key)) ", " (time(&report.reported_at))
                @if let Some(fault) = &report.reporter.user.fault { p.hint dir="auto" { (fault) } }
            }
            @if let Some(policy) = &report.policy { dt { "Policy" } dd { (stored_json(policy)) } }
            @if let Some(reason) = &report.reason { dt { "Reason" } dd dir="auto" { (reason) } }
            @if report.csam { dt { "Child safety" } dd { "marked in the report" } }
        }
        (item_section("Reported item", &report.reported_item))
        (json_section("Thread", &report.reported_item_thread))
        (json_section("Reported in the thread", &report.reported_items_in_thread))
        (json_section("Additional items", &report.additional_items))
    }
}

fn appeal_section(appeal: &AppealView) -> Markup {
    html! {
        dl.facts {
            dt { "Appealed by" }
            dd {
                (item_name(&appeal.appealed_by.key)) ", " (time(&appeal.appealed_at))
                @if let Some(fault) = &appeal.appealed_by.fault { p.hint dir="auto" { (fault) } }
            }
            @if let Some(reason) = &appeal.reason { dt { "Reason" } dd dir="auto" { (reason) } }
        }
        (json_section("Actions taken", &appeal.actions_taken))
        (unknown_actions(&appeal.actions_taken))
        (json_section("Policies", &appeal.violating_policies))
        (item_section("Item", &appeal.actioned_item))
        (json_section("Additional items", &appeal.additional_items))
    }
}

/// Warns about actions missing from the configuration: an accepted appeal cannot take them back.
fn unknown_actions(actions: &RawValue) -> Markup {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Action {
        id: String,
        known: bool,
        did_you_mean: Option<String>,
    }
    // A list of another form gives no hint. It is shown above as JSON in any case.
    let actions: Vec<Action> = serde_json::from_str(actions.get()).unwrap_or_default();
    html! {
        @for action in actions.iter().filter(|action| !action.known) {
            p.hint {
                "The configuration has no action " (code(&action.id))
                @if let Some(suggestion) = &action.did_you_mean { " (did you mean " (code(suggestion)) "?)" }
                ". If the appeal is accepted, it is taken back only if it was taken on this item before it was removed."
            }
        }
    }
}

fn item_section(title: &str, item: &SentItem) -> Markup {
    html! {
        h4 { (title) ": " (item_name(&item.key)) }
        @if item.withheld { p.hint { "Withheld" } } @else { (stored_json(&item.data)) }
    }
}

fn json_section(title: &str, entries: &RawValue) -> Markup {
    html! { @if entries.get() != "[]" { h4 { (title) } (stored_json(entries)) } }
}

fn json(value: &impl serde::Serialize) -> Markup {
    // Converted to a value first: raw JSON inside of it would otherwise keep its own layout.
    let pretty_json = serde_json::to_value(value)
        .and_then(|value| serde_json::to_string_pretty(&value))
        .unwrap_or_default();
    html! { pre.json tabindex="0" dir="auto" { (pretty_json) } }
}

/// Formats stored JSON with line breaks. Text that is not JSON is shown unchanged.
fn stored_json(value: &RawValue) -> Markup {
    match serde_json::from_str::<Value>(value.get()) {
        Ok(value) => json(&value),
        Err(_) => html! { pre.json tabindex="0" dir="auto" { (value.get()) } },
    }
}
