//! `/admin/v1/jobs/{id}/move` and `/skip`: a job that somebody else is to decide.

use axum::{Extension, Json, Router, extract::State, http::StatusCode, routing::post};
use serde::Deserialize;
use serde_json::{Value, json};
use tidegate_moderation::review::{
    moves::{self, MoveRequest, Refusal},
    skips,
};
use tidegate_schemas::ids::{JobId, Millis, QueueId};
use tidegate_web::{Path, Problem};

use super::{
    Api,
    audit::AuditDetail,
    caller::Caller,
    extract::{Body, id, invalid},
    faults,
    job_notes::check_text,
    jobs::{check_access, config, decided_already, known, no_such_job, not_your_claim, reviewer_of},
};

pub(super) fn routes() -> Router<Api> {
    Router::new().route("/jobs/{id}/move", post(move_job)).route("/jobs/{id}/skip", post(skip))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Move {
    queue: QueueId,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    reviewer: Option<String>,
    /// Roles of the reviewer, for queues whose access names roles.
    #[serde(default)]
    roles: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Skip {
    /// Epoch of the claim, as its answer named it.
    epoch: i64,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    reviewer: Option<String>,
}

/// 200: the named job waits in the queue.
async fn move_job(
    State(api): State<Api>,
    caller: Caller,
    Path(job): Path<String>,
    Body(said): Body<Move>,
) -> Result<(Extension<AuditDetail>, Json<Value>), Problem> {
    let job: JobId = id(&job)?;
    if let Some(reason) = &said.reason {
        check_text(&api, "/reason", reason)?;
    }
    let who = reviewer_of(&api, &caller, said.reviewer)?;
    let row = known(&api, &caller, job).await?;
    check_access(&*config(&api, &caller).await?, &row.queue, &who, &said.roles)?;
    let request = MoveRequest { queue: said.queue, by: who.name, reason: said.reason };
    let done = moves::move_job(&api.deps.moderation, &caller.org, job, &request, Millis::now()).await;
    match done.map_err(faults::moderation)? {
        Ok(moved) => {
            let detail =
                json!({ "reviewer": request.by, "from": row.queue, "to": request.queue, "job": moved });
            Ok((
                Extension(AuditDetail::of_job(row.class, detail)),
                Json(json!({ "jobId": moved, "queue": request.queue })),
            ))
        }
        Err(Refusal::NotFound) => Err(no_such_job()),
        Err(Refusal::Closed) => Err(decided_already()),
        Err(Refusal::Claimed { by, until }) => {
            Err(Problem::conflict(format!("The job is claimed by {by} until {}.", until.iso())))
        }
        Err(Refusal::Opening) => {
            Err(Problem::conflict("The job is still being opened: try again in a moment."))
        }
        Err(Refusal::TooManyMoves { most }) => {
            Err(Problem::conflict(format!("The job was moved {most} times: decide it where it is.")))
        }
        Err(Refusal::Invalid { pointer, detail }) => Err(invalid(pointer, detail)),
    }
}

/// 204: the job is free, and the reviewer gets it again only when the queue has no other.
async fn skip(
    State(api): State<Api>,
    caller: Caller,
    Path(job): Path<String>,
    Body(said): Body<Skip>,
) -> Result<(StatusCode, Extension<AuditDetail>), Problem> {
    let job: JobId = id(&job)?;
    if let Some(reason) = &said.reason {
        check_text(&api, "/reason", reason)?;
    }
    let who = caller.reviewer(said.reviewer);
    let class = known(&api, &caller, job).await?.class;
    let (store, reason) = (&api.deps.moderation.store, said.reason.as_deref());
    let skipped = skips::skip(store, &caller.org, job, said.epoch, &who, reason, Millis::now()).await;
    if skipped.map_err(faults::moderation)? {
        let detail = AuditDetail::of_job(class, json!({ "reviewer": who }));
        return Ok((StatusCode::NO_CONTENT, Extension(detail)));
    }
    Err(not_your_claim())
}
