//! Escalates an item to the child-safety team.

use tidegate_schemas::{
    ids::{JobId, Kind, Millis, OrgId, derive},
    records::JobClass,
};
use tidegate_store::tables::review::jobs::{CauseKind, Job, JobCause};
use uuid::Uuid;

use super::comments;
use crate::{
    Deps, Error,
    items::author,
    jobs::{self, BuiltInQueue, Cause, JobRequest, Placement},
    priority::Signals,
};

/// Result of an escalation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Escalation {
    /// The child-safety job that has the escalation as a cause.
    To(JobId),
    NotFound,
    /// The job is one of child safety itself.
    AlreadyThere,
}

/// Opens or joins the child-safety job of the job's item, and comments it with the reason. A job is escalated once: the
/// cause is derived from it, and the first reason stays. The job itself is kept, because its own decision is still due.
pub async fn escalate(
    deps: &Deps,
    org: &OrgId,
    job_id: JobId,
    by: &str,
    reason: &str,
    now: Millis,
) -> Result<Escalation, Error> {
    let Some(job) = deps.store.get::<Job>(&(org.clone(), job_id)).await? else {
        return Ok(Escalation::NotFound);
    };
    if job.class == JobClass::ChildSafety {
        return Ok(Escalation::AlreadyThere);
    }
    let cause: Uuid = derive(Kind::JobCause, &[b"escalation", job_id.as_bytes()]);
    let signals = Signals::of(&job)?.unwrap_or_default();
    // Child safety does not wait for a configuration, on which only the job's priority and its user depend.
    let config = deps.live.org(org);
    let user = match config.as_deref() {
        Some(config) => author::find(&deps.store, config, &job.item, None).await?,
        None => None,
    };
    let request = JobRequest {
        org: org.clone(),
        class: JobClass::ChildSafety,
        subject: job.item,
        queue: BuiltInQueue::ChildSafety.into(),
        cause: Cause {
            id: cause,
            kind: CauseKind::Escalation,
            at: now,
            report_id: None,
            appeal_id: None,
            submission_id: None,
            rules: "[]".to_owned(),
            hits: None,
            threshold: None,
        },
        placement: Placement { signals, config, user, ..Placement::default() },
    };
    let opened = jobs::open_or_join(&deps.store, &request, now).await?;
    // The cause's row has the time of the first attempt: with it, a repeated one finds the comment of the first.
    let first = deps.store.get::<JobCause>(&(org.clone(), opened, cause)).await?;
    let at = first.map_or(now, |first| first.at);
    comments::put(&deps.store, org, opened, cause, by, reason, at).await?;
    Ok(Escalation::To(opened))
}
