//! `/admin/v1/jobs/{id}/comments` and `/escalate`: what moderators say about a job before it is decided.

use axum::{
    Extension, Json, Router,
    extract::State,
    http::StatusCode,
    routing::{get, post},
};
use serde::Deserialize;
use serde_json::{Value, json};
use tidegate_moderation::review::{
    comments::{self, Comment},
    escalation::{self, Escalation},
};
use tidegate_schemas::ids::{JobId, Millis};
use tidegate_store::Cursor;
use tidegate_web::{Path, Problem, Query};

use super::{
    Api, List,
    audit::AuditDetail,
    caller::Caller,
    extract::{Body, Page, id, invalid},
    faults, job_list,
    jobs::{known, no_such_job, reviewer_of, shown},
};

pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/jobs/{id}/comments", get(list).post(add))
        .route("/jobs/{id}/escalate", post(escalate))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NewComment {
    text: String,
    #[serde(default)]
    reviewer: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Escalate {
    reason: String,
    #[serde(default)]
    reviewer: Option<String>,
}

async fn list(
    State(api): State<Api>,
    caller: Caller,
    Path(job): Path<String>,
    Query(page): Query<Page>,
) -> Result<Json<List<Comment>>, Problem> {
    let job: JobId = id(&job)?;
    let after: Option<Cursor> = page.after()?;
    let limit = job_list::limit(&api, page.limit)?;
    shown(&api, &caller, job).await?;
    let found = comments::list(&api.deps.moderation.store, &caller.org, job, after, limit).await;
    let (items, next) = found.map_err(faults::moderation)?;
    Ok(Json(List { items, next: next.map(|cursor| cursor.to_string()) }))
}

async fn add(
    State(api): State<Api>,
    caller: Caller,
    Path(job): Path<String>,
    Body(said): Body<NewComment>,
) -> Result<(StatusCode, Extension<AuditDetail>, Json<Comment>), Problem> {
    let job: JobId = id(&job)?;
    check_text(&api, "/text", &said.text)?;
    let author = reviewer_of(&api, &caller, said.reviewer)?.name;
    let class = known(&api, &caller, job).await?.class;
    let store = &api.deps.moderation.store;
    let added = comments::add(store, &caller.org, job, &author, &said.text, Millis::now()).await;
    let comment = added.map_err(faults::moderation)?;
    let detail = AuditDetail::of_job(class, json!({ "reviewer": comment.author, "comment": comment.id }));
    Ok((StatusCode::CREATED, Extension(detail), Json(comment)))
}

/// 200: the child-safety job has the escalation as a cause. It needs no scope, so that every moderator can escalate.
async fn escalate(
    State(api): State<Api>,
    caller: Caller,
    Path(job): Path<String>,
    Body(said): Body<Escalate>,
) -> Result<(Extension<AuditDetail>, Json<Value>), Problem> {
    let job: JobId = id(&job)?;
    check_text(&api, "/reason", &said.reason)?;
    let by = reviewer_of(&api, &caller, said.reviewer)?.name;
    let now = Millis::now();
    let done = escalation::escalate(&api.deps.moderation, &caller.org, job, &by, &said.reason, now).await;
    match done.map_err(faults::moderation)? {
        Escalation::To(opened) => {
            let detail = AuditDetail(json!({ "reviewer": by, "childSafetyJob": opened }));
            Ok((Extension(detail), Json(json!({ "jobId": opened }))))
        }
        Escalation::NotFound => Err(no_such_job()),
        Escalation::AlreadyThere => Err(Problem::conflict("The job is one of child safety already.")),
    }
}

pub(super) fn check_text(api: &Api, pointer: &str, text: &str) -> Result<(), Problem> {
    let longest = api.settings.reason_bytes;
    if text.trim().is_empty() {
        return Err(invalid(pointer, "A text is needed."));
    }
    if text.len() > longest {
        return Err(invalid(pointer, format!("At most {longest} bytes (review.reason_bytes).")));
    }
    Ok(())
}
