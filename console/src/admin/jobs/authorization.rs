//! Loads jobs for callers: checks the scope of the job's class, and records views of child-safety jobs in the audit.

use tidegate_schemas::{ids::JobId, records::JobClass};
use tidegate_store::tables::review::jobs::Job;
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
pub(super) async fn load_authorized_job(api: &Api, caller: &Caller, job: JobId) -> Result<Job, Problem> {
    let row = api
        .deps
        .moderation
        .store
        .get::<Job>(&(caller.org.clone(), job))
        .await
        .map_err(faults::store_problem)?;
    let row = row.ok_or_else(no_such_job)?;
    if row.class == JobClass::ChildSafety {
        caller.require_child_safety()?;
    }
    Ok(row)
}

/// Loads the job for display. The view of a child-safety job is in the audit before this returns.
pub(super) async fn load_viewable_job(api: &Api, caller: &Caller, job: JobId) -> Result<Job, Problem> {
    let row = load_authorized_job(api, caller, job).await?;
    authorize_and_record_view(api, caller, &row).await?;
    Ok(row)
}

pub(super) async fn authorize_and_record_view(api: &Api, caller: &Caller, job: &Job) -> Result<(), Problem> {
    if job.class != JobClass::ChildSafety {
        return Ok(());
    }
    caller.require_child_safety()?;
    audit::record_view(api, caller, "GET /jobs/{id}".to_owned(), format!("/jobs/{}", job.job_id)).await
}
