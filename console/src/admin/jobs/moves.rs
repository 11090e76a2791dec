//! `/admin/v1/jobs/{id}/move` and `/skip`: hands a job over to another queue or another reviewer.

use axum::{Extension, Json, Router, extract::State, http::StatusCode, routing::post};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tidegate_moderation::review::{
    moves::{self, MoveRefusal, MoveRequest},
    skips,
};
use tidegate_schemas::ids::{JobId, Millis, QueueId};
use tidegate_web::{Path, Problem};

use super::{
    authorization::load_authorized_job,
    notes::validate_text,
    refusals::{already_decided, no_such_job, not_your_claim},
    reviewers::{require_queue_access, resolve_reviewer},
};
use crate::{
    admin::{
        access::audit::AuditDetail,
        request::{Body, Caller, faults, invalid, load_config, parse_id},
    },
    api::Api,
};

pub(crate) fn routes() -> Router<Api> {
    Router::new().route("/jobs/{id}/move", post(move_job)).route("/jobs/{id}/skip", post(skip_job))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct MoveJobRequest {
    queue: QueueId,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    reviewer: Option<String>,
    /// Roles of the reviewer, for queues that restrict access by role.
    #[serde(default)]
    roles: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct MoveJobResponse {
    /// Job that waits in the new queue.
    job_id: JobId,
    queue: QueueId,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SkipRequest {
    /// Epoch from the response of the claim.
    epoch: i64,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    reviewer: Option<String>,
}

async fn move_job(
    State(api): State<Api>,
    caller: Caller,
    Path(job): Path<String>,
    Body(body): Body<MoveJobRequest>,
) -> Result<(Extension<AuditDetail>, Json<MoveJobResponse>), Problem> {
    let job: JobId = parse_id(&job)?;
    // The reason becomes a comment of the job, so it has the length of one.
    if let Some(reason) = &body.reason {
        validate_text(&api, "/reason", reason)?;
    }
    let reviewer = resolve_reviewer(&api, &caller, body.reviewer)?;
    // The scope is checked for the class of the job before any refusal reveals its queue.
    let job = load_authorized_job(&api, &caller, job).await?;
    let config = load_config(&api, &caller).await?;
    require_queue_access(&config, &job.row().queue, &reviewer, &body.roles)?;
    let request = MoveRequest { queue: body.queue, by: reviewer.name, reason: body.reason };
    let result = moves::move_job(&api.deps.moderation, &job, &request, Millis::now()).await;
    match result.map_err(faults::moderation_problem)? {
        Ok(job_id) => {
            let detail = json!({ "reviewer": request.by, "from": job.row().queue, "to": request.queue, "job": job_id });
            Ok((
                Extension(AuditDetail::of_job(job.class(), detail)),
                Json(MoveJobResponse { job_id, queue: request.queue }),
            ))
        }
        Err(MoveRefusal::NotFound) => Err(no_such_job()),
        Err(MoveRefusal::Closed) => Err(already_decided()),
        Err(MoveRefusal::Claimed { by, until }) => {
            Err(Problem::conflict(format!("The job is claimed by {by} until {}.", until.iso())))
        }
        Err(MoveRefusal::Opening) => {
            Err(Problem::conflict("The job is still being opened: try again in a moment."))
        }
        Err(MoveRefusal::TooManyMoves { most }) => {
            Err(Problem::conflict(format!("The job was moved {most} times: decide it where it is.")))
        }
        Err(MoveRefusal::Invalid { pointer, detail }) => Err(invalid(pointer, detail)),
    }
}

/// Frees a claimed job. The reviewer gets it again only when the queue has no other job.
async fn skip_job(
    State(api): State<Api>,
    caller: Caller,
    Path(job): Path<String>,
    Body(body): Body<SkipRequest>,
) -> Result<(StatusCode, Extension<AuditDetail>), Problem> {
    let job: JobId = parse_id(&job)?;
    // Stored as a comment as well.
    if let Some(reason) = &body.reason {
        validate_text(&api, "/reason", reason)?;
    }
    let reviewer = caller.reviewer(body.reviewer);
    let job = load_authorized_job(&api, &caller, job).await?;
    let (store, reason) = (&api.deps.moderation.store, body.reason.as_deref());
    let result = skips::skip(store, &job, body.epoch, &reviewer, reason, Millis::now()).await;
    if result.map_err(faults::moderation_problem)? {
        let detail = AuditDetail::of_job(job.class(), json!({ "reviewer": reviewer }));
        return Ok((StatusCode::NO_CONTENT, Extension(detail)));
    }
    // Also for a decided job, because the decision ended the claim.
    Err(not_your_claim())
}
