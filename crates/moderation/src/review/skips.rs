//! Skips of jobs: a reviewer gives a claimed job back and gets it again only when no other one is left.

use serde::{Deserialize, Serialize};
use tidegate_schemas::ids::{CauseId, JobId, Millis, OrgId};
use tidegate_store::{
    Replaced, Store,
    tables::review::jobs::{Job, JobState},
};

use super::comments;
use crate::{Error, metrics};

/// Number of reviewers whose skips a job's row keeps, the latest ones.
const REVIEWERS: usize = 100;

/// The last skip of a reviewer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skip {
    pub by: String,
    pub at: Millis,
}

/// Returns the skips of a job, the oldest first.
pub fn of(job: &Job) -> Result<Vec<Skip>, Error> {
    let skips = job.skips.as_deref().map(serde_json::from_str).transpose();
    Ok(skips.map_err(Error::corrupt("job"))?.unwrap_or_default())
}

/// Returns the time at which the reviewer skipped the job, if they did.
pub(super) fn skipped_at(job: &Job, reviewer: &str) -> Option<Millis> {
    // A row that cannot be read hides no job.
    of(job).ok()?.into_iter().find(|skip| skip.by == reviewer).map(|skip| skip.at)
}

/// Gives a claimed job back to its queue and keeps it from the reviewer while others wait. Returns false if the claim was
/// not the reviewer's any more.
pub async fn skip(
    store: &Store,
    org: &OrgId,
    job_id: JobId,
    epoch: i64,
    reviewer: &str,
    reason: Option<&str>,
    now: Millis,
) -> Result<bool, Error> {
    let Some(mut job) = store.get::<Job>(&(org.clone(), job_id)).await? else {
        return Ok(false);
    };
    while job.state == JobState::Open && job.epoch == epoch && job.claimed_by.as_deref() == Some(reviewer) {
        let mut skips = of(&job)?;
        skips.retain(|skip| skip.by != reviewer);
        skips.push(Skip { by: reviewer.to_owned(), at: now });
        let surplus = skips.len().saturating_sub(REVIEWERS);
        skips.drain(..surplus);
        let skips = serde_json::to_string(&skips).map_err(Error::corrupt("job"))?;
        let free = Job { claimed_by: None, lease_until: None, skips: Some(skips), ..job.clone() };
        match store.replace(&free, job.version).await? {
            Replaced::Yes => {
                metrics::job_skipped();
                if let Some(reason) = reason {
                    let text = format!("Skipped: {reason}");
                    comments::put(store, org, job_id, CauseId::random().0, reviewer, &text, now).await?;
                }
                return Ok(true);
            }
            Replaced::No(current) => job = current,
            Replaced::Gone => return Ok(false),
        }
    }
    Ok(false)
}
