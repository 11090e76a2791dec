//! Escalates an item to the child-safety team.

use async_recursion::async_recursion as boxed;
use tidegate_schemas::{
    ids::{JobId, Kind, Millis, derive},
    records::JobClass,
};
use tidegate_store::tables::review::jobs::{CauseKind, Job, JobCause};
use uuid::Uuid;

use super::comments;
use crate::{
    Deps, Error,
    child_safety::AuthorizedJob,
    items::author,
    jobs::{self, BuiltInQueue, Cause, JobRequest, Placement, priority::PrioritySignals},
};

/// Result of an escalation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Escalation {
    /// Child-safety job with the escalation as a cause.
    To(JobId),
    NotFound,
    /// The job belongs to child safety itself.
    AlreadyThere,
}

/// Opens or joins the child-safety job of the job's item and comments the reason. Happens once per job: the cause is
/// derived from the job, and the first reason is kept. The escalated job stays open, because its own decision is
/// still due.
#[boxed]
pub async fn escalate(
    deps: &Deps,
    job: &AuthorizedJob,
    by: &str,
    reason: &str,
    now: Millis,
) -> Result<Escalation, Error> {
    let (org, job_id) = (job.org(), job.id());
    let Some(job) = deps.store.get::<Job>(&job.key()).await? else {
        return Ok(Escalation::NotFound);
    };
    if job.class == JobClass::ChildSafety {
        return Ok(Escalation::AlreadyThere);
    }
    let cause: Uuid = derive(Kind::JobCause, &[b"escalation", job_id.as_bytes()]);
    let signals = PrioritySignals::parse_from(&job)?.unwrap_or_default();
    // Child safety must not wait for a configuration, which only affects the job's priority and user.
    let config = deps.live.org(org);
    let user = match config.as_deref() {
        Some(config) => author::find_author(&deps.store, config, &job.item, None).await?,
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
            policies: Vec::new(),
        },
        placement: Placement { signals, config, user, ..Placement::default() },
    };
    let child_safety_job = jobs::open_or_join(&deps.store, &request, now).await?;
    // The cause's row keeps the time of the first attempt, so a repeated escalation finds the first comment.
    let first_cause = deps.store.get::<JobCause>(&(org.clone(), child_safety_job, cause)).await?;
    let at = first_cause.map_or(now, |first| first.at);
    comments::put_once(&deps.store, org, child_safety_job, cause, by, reason, at).await?;
    Ok(Escalation::To(child_safety_job))
}
