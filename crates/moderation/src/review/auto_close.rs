//! Closes jobs that nobody claimed for the longest age of their queue, without a decision about the item.
//!
//! They are found by the entries of the queue, so a changed `auto_close_after` holds for open jobs at once. Whoever runs
//! this may crash at any point or run beside another: one `replace` of the job's row closes it, and an event of the counts
//! that no row confirms is ignored.

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
use crate::{Error, jobs::has_cause, metrics, queue_counts};

/// Actor and action of the audit entries of closed jobs.
pub const ACTOR: &str = "service";
pub const ACTION: &str = "auto_closed";

/// Statuses of audit entries: the job was closed, or somebody else changed it first.
const CLOSED: i64 = 200;
const NOT_CLOSED: i64 = 409;

/// Result of one pass over the queues of an org.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pass {
    pub closed: usize,
    /// True if another pass would find more.
    pub has_more: bool,
}

/// Returns the queues whose jobs are closed by themselves, with the age at which they are.
pub fn queues(config: &Compiled) -> impl Iterator<Item = (&QueueId, Period)> {
    let of_reviews = config.queues().iter().filter(|queue| queue.document.class() == QueueClass::Review);
    of_reviews.filter_map(|queue| Some((&queue.key, queue.document.auto_close_after?)))
}

/// Closes up to `limit` jobs of each queue.
pub async fn close_old(store: &Store, config: &Compiled, limit: usize, now: Millis) -> Result<Pass, Error> {
    let mut pass = Pass::default();
    // A queue whose class was changed may still have jobs of child safety.
    let is_unclaimed =
        |job: &Job| job.class == JobClass::Review && job.lease_until.is_none_or(|until| until <= now);
    for (queue, age) in queues(config) {
        let (place, end) = ((config.org(), queue), now.minus(age.duration()));
        let old = queues::waiting_since(store, place, end, limit, now, is_unclaimed).await?;
        let mut closed = 0;
        for job in &old {
            closed += usize::from(close(store, job, age, now).await?);
        }
        pass.closed += closed;
        pass.has_more |= closed > 0 && old.len() >= limit;
    }
    Ok(pass)
}

/// Closes the job unless it changed meanwhile: a reviewer may have claimed it. The next pass looks at it again.
async fn close(store: &Store, job: &Job, age: Period, now: Millis) -> Result<bool, Error> {
    // The opener crashed before the cause's row. Its record is processed again and expects the job open.
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
    store.put(WriteTime::of(now, 0), std::slice::from_ref(&entry)).await?;
    queue_counts::announce(store, job, QueueChange::Closed, now).await?;
    let closed = Job {
        state: JobState::Closed,
        claimed_by: None,
        lease_until: None,
        closed_at: Some(now),
        ..job.clone()
    };
    let is_closed = store.replace(&closed, job.version).await?.is_done();
    if is_closed {
        metrics::job_auto_closed();
    }
    entry.status = Some(if is_closed { CLOSED } else { NOT_CLOSED });
    tracing::info!(
        target: "audit", org = %entry.org, by = ACTOR, action = ACTION, object = entry.object, status = entry.status,
        detail = entry.detail, "audited"
    );
    store.put(WriteTime::of(now, 1), &[entry]).await?;
    Ok(is_closed)
}
