//! `/admin/v1/jobs/{id}/claim`, `/release` and `/jobs/claim-next`: gives jobs to reviewers and frees them again.

use axum::{
    Extension, Json, Router,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::post,
};
use serde::Deserialize;
use serde_json::json;
use tidegate_catalog::Compiled;
use tidegate_moderation::{
    child_safety::AuthorizedJob,
    jobs::summary::{self, JobSummaryResponse},
    partial_items::claims,
    review::queues::{self, ClaimOutcome, NextJobRequest},
};
use tidegate_schemas::{
    documents::QueueClass,
    ids::{Millis, QueueId, SubmissionId},
};
use tidegate_store::tables::review::jobs::Job;
use tidegate_web::{Path, Problem, Query};

use super::{
    authorization::{job_problem, load_authorized_job, load_viewable_job, record_job_view},
    refusals::{already_decided, no_such_job, not_your_claim},
    reviewers::{require_named_reviewer, require_queue_access},
};
use crate::{
    admin::{
        access::audit::AuditDetail,
        request::{Body, Caller, faults, load_config, parse_id},
    },
    api::Api,
};

pub(crate) fn routes() -> Router<Api> {
    Router::new()
        .route("/jobs/claim-next", post(claim_next))
        .route("/jobs/{id}/claim", post(claim_job))
        .route("/jobs/{id}/release", post(release_job))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ClaimRequest {
    /// Name of the claiming person. Required of API keys, which several people can share.
    #[serde(default)]
    reviewer: Option<String>,
    /// Roles of the reviewer, for queues that restrict access by role.
    #[serde(default)]
    roles: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ClaimNextRequest {
    queue: QueueId,
    /// Name of the claiming person. Required of API keys, which several people can share.
    #[serde(default)]
    reviewer: Option<String>,
    #[serde(default)]
    roles: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClaimNextQuery {
    /// True if a job already claimed by the reviewer may be returned.
    #[serde(default)]
    held: bool,
    #[serde(rename = "org")]
    _org: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ReleaseRequest {
    epoch: i64,
    #[serde(default)]
    reviewer: Option<String>,
}

async fn claim_job(
    State(api): State<Api>,
    caller: Caller,
    Path(id): Path<String>,
    Body(ClaimRequest { reviewer, roles }): Body<ClaimRequest>,
) -> Result<(Extension<AuditDetail>, Json<JobSummaryResponse>), Problem> {
    let reviewer = require_named_reviewer(&api, &caller, reviewer)?;
    let (store, job_id) = (&api.deps.moderation.store, parse_id(&id)?);
    let job = load_viewable_job(&api, &caller, job_id).await?;
    let config = load_config(&api, &caller).await?;
    // Checked before the claim: a refused reviewer must not hold the job.
    require_queue_access(&config, &job.row().queue, &reviewer, &roles)?;
    let result = queues::claim(store, &job, &reviewer, Millis::now()).await;
    match result.map_err(faults::moderation_problem)? {
        ClaimOutcome::Claimed(row) => {
            request_newer_data(&api, job);
            Ok((claim_detail(&row), summarize(*row)?))
        }
        // The job's first cause is still to be written, so a reviewer would see an empty job.
        ClaimOutcome::Opening => {
            Err(Problem::conflict("The job is still being opened: try again in a moment."))
        }
        ClaimOutcome::HeldByOther { by, until } => {
            Err(Problem::conflict(format!("The job is claimed by {by} until {}.", until.iso())))
        }
        ClaimOutcome::Decided => Err(already_decided()),
        ClaimOutcome::NotFound => Err(no_such_job()),
    }
}

/// Claims the next free job of a queue. 204: the queue has no free job.
async fn claim_next(
    State(api): State<Api>,
    caller: Caller,
    Query(query): Query<ClaimNextQuery>,
    Body(ClaimNextRequest { queue, reviewer, roles }): Body<ClaimNextRequest>,
) -> Result<Response, Problem> {
    // Spreads reviewers over the free jobs, so that they do not all compete for the first one.
    let random = SubmissionId::random().0.as_u128();
    let draw = |free: usize| usize::try_from(random % (free as u128).max(1)).unwrap_or(0);
    let reviewer = require_named_reviewer(&api, &caller, reviewer)?;
    let store = &api.deps.moderation.store;
    let config = load_config(&api, &caller).await?;
    require_queue_access(&config, &queue, &reviewer, &roles)?;
    // Checked by the class of the queue before the claim. `claim_next` checks the class of the claimed job.
    require_queue_class(&config, &caller, &queue)?;
    let order = config.queue(&queue).map(|queue| queue.document.order.clone()).unwrap_or_default();
    let next = NextJobRequest {
        queue: &queue,
        order: &order,
        reviewer: &reviewer,
        clearance: caller.clearance(),
        include_own: query.held,
    };
    let result = queues::claim_next(store, &caller.org, next, Millis::now(), draw).await;
    let claimed_job = result.map_err(faults::moderation_problem)?.map_err(job_problem)?;
    let Some(job) = claimed_job else { return Ok(StatusCode::NO_CONTENT.into_response()) };
    if let Err(problem) = record_job_view(&api, &caller, &job).await {
        // The job was not shown to the reviewer, so the claim is undone.
        let release_result = queues::release(store, &job, job.row().epoch, &reviewer.name).await;
        release_result.map_err(faults::moderation_problem)?;
        return Err(problem);
    }
    // The request for newer data outlives the answer, so it keeps the job.
    let row = job.row().clone();
    request_newer_data(&api, job);
    Ok((claim_detail(&row), summarize(row)?).into_response())
}

/// Details of a claim for the audit.
fn claim_detail(job: &Job) -> Extension<AuditDetail> {
    let Job { job_id, class, queue, claimed_by, epoch, .. } = job;
    let detail = json!({ "reviewer": claimed_by, "job": job_id, "queue": queue, "epoch": epoch });
    Extension(AuditDetail::of_job(*class, detail))
}

/// Requests newer data of a claimed job in the background, so that the claim is answered at once. A look-up that is lost with
/// the process is repeated by the next claim.
fn request_newer_data(api: &Api, job: AuthorizedJob) {
    let deps = &api.deps.moderation;
    // Without an endpoint of the platform, newer data cannot be requested.
    if !deps.partial_items.has_endpoint(job.org()) {
        return;
    }
    let (deps, refresh_after) = (deps.clone(), api.settings.refresh_after());
    tokio::spawn(async move {
        let result = claims::refresh_claimed(&deps, &job, refresh_after, Millis::now()).await;
        if let Err(error) = result {
            tracing::warn!(org = %job.org(), job = %job.id(), tag = error.tag(),
                "cannot request newer data of a claimed job: {error}");
        }
    });
}

async fn release_job(
    State(api): State<Api>,
    caller: Caller,
    Path(id): Path<String>,
    Body(ReleaseRequest { epoch, reviewer }): Body<ReleaseRequest>,
) -> Result<(StatusCode, Extension<AuditDetail>), Problem> {
    let reviewer = caller.reviewer(reviewer);
    let (store, job_id) = (&api.deps.moderation.store, parse_id(&id)?);
    // Without a view in the audit, because the response has no data of the job.
    let job = load_authorized_job(&api, &caller, job_id).await?;
    let result = queues::release(store, &job, epoch, &reviewer).await;
    if result.map_err(faults::moderation_problem)? {
        let detail = AuditDetail::of_job(job.class(), json!({ "reviewer": reviewer }));
        return Ok((StatusCode::NO_CONTENT, Extension(detail)));
    }
    // Also for a decided job, because the decision ended the claim.
    Err(not_your_claim())
}

/// Refuses callers that lack the scope of the queue's class.
fn require_queue_class(config: &Compiled, caller: &Caller, queue: &QueueId) -> Result<(), Problem> {
    match config.queue(queue).map(|queue| queue.document.class()) {
        Some(QueueClass::ChildSafety) => caller.require_child_safety(),
        _ => Ok(()),
    }
}

fn summarize(job: Job) -> Result<Json<JobSummaryResponse>, Problem> {
    summary::summarize(job).map(Json).map_err(faults::moderation_problem)
}
