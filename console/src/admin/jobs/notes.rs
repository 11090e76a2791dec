//! `/admin/v1/jobs/{id}/comments` and `/escalate`: comments on a job, and its escalation to child safety.

use axum::{
    Extension, Json, Router,
    extract::State,
    http::StatusCode,
    routing::{get, post},
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tidegate_moderation::{
    child_safety::{AuthorizedJob, JobRefusal},
    review::{
        comments::{self, CommentResponse},
        escalation::{self, Escalation},
    },
};
use tidegate_schemas::ids::{JobId, Millis};
use tidegate_store::Cursor;
use tidegate_web::{Path, Problem, Query};

use super::{
    authorization::{job_problem, load_authorized_job, load_viewable_job},
    refusals::no_such_job,
    reviewers::resolve_reviewer,
};
use crate::{
    admin::{
        access::audit::AuditDetail,
        request::{Body, Caller, PageQuery, faults, invalid, page_limit, parse_id},
    },
    api::{Api, ListResponse},
};

pub(crate) fn routes() -> Router<Api> {
    Router::new()
        .route("/jobs/{id}/comments", get(list_comments).post(add_comment))
        .route("/jobs/{id}/escalate", post(escalate))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct CommentRequest {
    text: String,
    #[serde(default)]
    reviewer: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct EscalateRequest {
    reason: String,
    #[serde(default)]
    reviewer: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EscalateResponse {
    /// Child-safety job of the item.
    job_id: JobId,
}

async fn list_comments(
    State(api): State<Api>,
    caller: Caller,
    Path(job): Path<String>,
    Query(page): Query<PageQuery>,
) -> Result<Json<ListResponse<CommentResponse>>, Problem> {
    let job: JobId = parse_id(&job)?;
    let after: Option<Cursor> = page.parse_cursor()?;
    let limit = page_limit(&api, page.limit)?;
    let job = load_viewable_job(&api, &caller, job).await?;
    let page = comments::list_comments(&api.deps.moderation.store, &job, after, limit).await;
    let (items, next) = page.map_err(faults::moderation_problem)?;
    Ok(Json(ListResponse { items, next: next.map(|cursor| cursor.to_string()) }))
}

async fn add_comment(
    State(api): State<Api>,
    caller: Caller,
    Path(job): Path<String>,
    Body(request): Body<CommentRequest>,
) -> Result<(StatusCode, Extension<AuditDetail>, Json<CommentResponse>), Problem> {
    let job: JobId = parse_id(&job)?;
    validate_text(&api, "/text", &request.text)?;
    let author = resolve_reviewer(&api, &caller, request.reviewer)?.name;
    let job = load_authorized_job(&api, &caller, job).await?;
    let store = &api.deps.moderation.store;
    let result = comments::add_comment(store, &job, &author, &request.text, Millis::now()).await;
    let comment = result.map_err(faults::moderation_problem)?;
    let detail =
        AuditDetail::of_job(job.class(), json!({ "reviewer": comment.author, "comment": comment.id }));
    Ok((StatusCode::CREATED, Extension(detail), Json(comment)))
}

/// Opens or joins the child-safety job of the item. Requires no scope: every moderator must be able to escalate.
async fn escalate(
    State(api): State<Api>,
    caller: Caller,
    Path(job): Path<String>,
    Body(request): Body<EscalateRequest>,
) -> Result<(Extension<AuditDetail>, Json<EscalateResponse>), Problem> {
    let job: JobId = parse_id(&job)?;
    validate_text(&api, "/reason", &request.reason)?;
    let reviewer = resolve_reviewer(&api, &caller, request.reviewer)?.name;
    let deps = &api.deps.moderation;
    let job = AuthorizedJob::load(&deps.store, &caller.org, job, caller.clearance()).await;
    let job = match job.map_err(faults::moderation_problem)? {
        Ok(job) => job,
        // Only jobs of child safety are withheld from a caller, so this one need not be escalated.
        Err(JobRefusal::NotCleared) => return Err(already_escalated()),
        Err(refusal) => return Err(job_problem(refusal)),
    };
    let result = escalation::escalate(deps, &job, &reviewer, &request.reason, Millis::now()).await;
    match result.map_err(faults::moderation_problem)? {
        Escalation::To(job_id) => {
            let detail = AuditDetail(json!({ "reviewer": reviewer, "childSafetyJob": job_id }));
            Ok((Extension(detail), Json(EscalateResponse { job_id })))
        }
        Escalation::NotFound => Err(no_such_job()),
        Escalation::AlreadyThere => Err(already_escalated()),
    }
}

fn already_escalated() -> Problem {
    Problem::conflict("The job is one of child safety already.")
}

pub(super) fn validate_text(api: &Api, pointer: &str, text: &str) -> Result<(), Problem> {
    let max_bytes = api.settings.reason_bytes;
    if text.trim().is_empty() {
        return Err(invalid(pointer, "The text is empty."));
    }
    if text.len() > max_bytes {
        return Err(invalid(pointer, format!("At most {max_bytes} bytes (review.reason_bytes).")));
    }
    Ok(())
}
