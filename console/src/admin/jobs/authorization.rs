//! Loads jobs for callers: checks the scope of the job's class, and records views of child-safety jobs in the audit.

use tidegate_moderation::child_safety::{AuthorizedJob, JobRefusal};
use tidegate_schemas::{ids::JobId, records::JobClass};
use tidegate_web::Problem;

use super::refusals::no_such_job;
use crate::{
    admin::{
        access::audit,
        request::{Caller, faults},
    },
    api::Api,
};

/// Loads the job and checks the caller's scope for its class.
pub(super) async fn load_authorized_job(
    api: &Api,
    caller: &Caller,
    job: JobId,
) -> Result<AuthorizedJob, Problem> {
    let store = &api.deps.moderation.store;
    let result = AuthorizedJob::load(store, &caller.org, job, caller.clearance()).await;
    result.map_err(faults::moderation_problem)?.map_err(job_problem)
}

/// Loads the job for display. The view of a child-safety job is in the audit before this returns.
pub(super) async fn load_viewable_job(
    api: &Api,
    caller: &Caller,
    job: JobId,
) -> Result<AuthorizedJob, Problem> {
    let job = load_authorized_job(api, caller, job).await?;
    record_job_view(api, caller, &job).await?;
    Ok(job)
}

/// Records the view of a child-safety job in the audit.
pub(super) async fn record_job_view(api: &Api, caller: &Caller, job: &AuthorizedJob) -> Result<(), Problem> {
    // Only child-safety material needs a record of its views.
    if job.class() != JobClass::ChildSafety {
        return Ok(());
    }
    audit::record_view(api, caller, "GET /jobs/{id}".to_owned(), format!("/jobs/{}", job.id())).await
}

pub(super) fn job_problem(refusal: JobRefusal) -> Problem {
    match refusal {
        JobRefusal::NotFound => no_such_job(),
        JobRefusal::NotCleared => Caller::missing_child_safety_scope(),
    }
}
