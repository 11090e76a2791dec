//! Closes jobs that stay unclaimed beyond the maximum age of their queue, without a decision about the item.
//!
//! The queue's entries find these jobs, so a changed `auto_close_after` applies to open jobs immediately. A crash or
//! a concurrent pass is harmless: one `replace` of the job's row closes it, and an unconfirmed count event is
//! ignored.

use async_recursion::async_recursion as boxed;
use serde_json::json;
use tidegate_catalog::Compiled;
use tidegate_schemas::{
    documents::{Period, QueueClass},
    ids::{CauseId, Millis, QueueId},
    records::JobClass,
};
use tidegate_store::{
    Store, WriteTime,
    tables::{
        catalog::audit::AuditEntry,
        review::{
            jobs::{Job, JobState},
            queue_counts::QueueChange,
        },
    },
};

use super::queues;
use crate::{
    Error,
    jobs::{has_cause, queue_counts},
    metrics,
};

/// Actor and action of the audit entries of closed jobs.
pub const ACTOR: &str = "service";
pub const ACTION: &str = "auto_closed";

/// Statuses of audit entries: the job was closed, or another change was first.
const CLOSED: i64 = 200;
const NOT_CLOSED: i64 = 409;

/// Result of one pass over the queues of an org.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClosingPass {
    pub closed: usize,
    /// True if another pass would close more jobs.
    pub has_more: bool,
}

/// Lists the queues with automatic closing, and the age at which they close jobs.
pub fn queues(config: &Compiled) -> impl Iterator<Item = (&QueueId, Period)> {
    let review_queues = config.queues().iter().filter(|queue| queue.document.class() == QueueClass::Review);
    review_queues.filter_map(|queue| Some((&queue.key, queue.document.auto_close_after?)))
}

/// Closes up to `limit` jobs of each queue.
#[boxed]
pub async fn close_old(
    store: &Store,
    config: &Compiled,
    limit: usize,
    now: Millis,
) -> Result<ClosingPass, Error> {
    let mut pass = ClosingPass::default();
    // A queue with a changed class may still hold child-safety jobs, which must not end unseen.
    let is_unclaimed =
        |job: &Job| job.class == JobClass::Review && job.lease_until.is_none_or(|until| until <= now);
    for (queue, age) in queues(config) {
        let (queue_key, end) = ((config.org(), queue), now.minus(age.duration()));
        let old_jobs = queues::list_waiting_since(store, queue_key, end, limit, now, is_unclaimed).await?;
        let mut closed_count = 0;
        for job in &old_jobs {
            closed_count += usize::from(close_job(store, job, age, now).await?);
        }
        pass.closed += closed_count;
        // If no job was closed, another pass would find the same jobs.
        pass.has_more |= closed_count > 0 && old_jobs.len() >= limit;
    }
    Ok(pass)
}

/// Closes the job unless it changed meanwhile, for example by a claim. The next pass sees it again.
async fn close_job(store: &Store, job: &Job, age: Period, now: Millis) -> Result<bool, Error> {
    // The opener crashed before the cause's row. The replay of its record expects an open job.
    if !has_cause(store, &job.org, job.job_id).await? {
        return Ok(false);
    }
    let mut entry = AuditEntry {
        org: job.org.clone(),
        day: now.day(),
        at: now,
        entry_id: CauseId::random().0,
        actor: ACTOR.to_owned(),
        action: ACTION.to_owned(),
        object: format!("/jobs/{}", job.job_id),
        request_id: String::new(),
        status: None,
        detail: Some(
            json!({ "queue": job.queue, "autoCloseAfter": age, "createdAt": job.created_at.iso() })
                .to_string(),
        ),
    };
    // Before the change, so that no job is closed without an audit entry.
    store.put_rows(WriteTime::from_append(now, 0), std::slice::from_ref(&entry)).await?;
    queue_counts::put_event(store, job, QueueChange::Closed, now).await?;
    let closed_job = Job {
        state: JobState::Closed,
        claimed_by: None,
        lease_until: None,
        closed_at: Some(now),
        ..job.clone()
    };
    let is_closed = store.replace(&closed_job, job.version).await?.is_done();
    if is_closed {
        metrics::job_auto_closed();
    }
    entry.status = Some(if is_closed { CLOSED } else { NOT_CLOSED });
    tracing::info!(
        target: "audit", org = %entry.org, by = ACTOR, action = ACTION, object = entry.object, status = entry.status,
        detail = entry.detail, "audited"
    );
    store.put_rows(WriteTime::from_append(now, 1), &[entry]).await?;
    Ok(is_closed)
}
