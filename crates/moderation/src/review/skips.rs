//! Skips of jobs: a skipped job returns to its reviewer only when no other job is left.

use async_recursion::async_recursion as boxed;
use tidegate_schemas::ids::{CauseId, Millis};
use tidegate_store::{
    ReplaceOutcome, Store,
    tables::review::jobs::{Job, JobState},
};

use super::comments;
use crate::{
    Error,
    child_safety::AuthorizedJob,
    jobs::job_skips::{self, Skip},
    metrics,
};

/// Maximum number of reviewers in a job's skips. The oldest skips are dropped.
const MAX_REVIEWERS: usize = 100;

/// Releases a claimed job and offers it to the reviewer last. Returns false if the claim is no longer the reviewer's.
#[boxed]
pub async fn skip(
    store: &Store,
    job: &AuthorizedJob,
    epoch: i64,
    reviewer: &str,
    reason: Option<&str>,
    now: Millis,
) -> Result<bool, Error> {
    let Some(mut job) = store.get::<Job>(&job.key()).await? else {
        return Ok(false);
    };
    while job.state == JobState::Open && job.epoch == epoch && job.claimed_by.as_deref() == Some(reviewer) {
        let mut skips = job_skips::parse_skips(&job)?;
        // Only the last skip of a reviewer counts.
        skips.retain(|skip| skip.by != reviewer);
        skips.push(Skip { by: reviewer.to_owned(), at: now });
        // Bounded, because each skip rewrites the row. The oldest skips are first.
        let surplus = skips.len().saturating_sub(MAX_REVIEWERS);
        skips.drain(..surplus);
        let skips = serde_json::to_string(&skips).map_err(Error::corrupt("job"))?;
        let unclaimed_job = Job { claimed_by: None, lease_until: None, skips: Some(skips), ..job.clone() };
        match store.replace(&unclaimed_job, job.version).await? {
            ReplaceOutcome::Done => {
                metrics::job_skipped();
                if let Some(reason) = reason {
                    let text = format!("Skipped: {reason}");
                    let id = CauseId::random().0;
                    comments::put_once(store, &job.org, job.job_id, id, reviewer, &text, now).await?;
                }
                return Ok(true);
            }
            ReplaceOutcome::Conflict(current) => job = current,
            ReplaceOutcome::Missing => return Ok(false),
        }
    }
    Ok(false)
}
