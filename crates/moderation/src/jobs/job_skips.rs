//! Skips of a job in the form of its row.

use serde::{Deserialize, Serialize};
use tidegate_schemas::ids::Millis;
use tidegate_store::tables::review::jobs::Job;

use crate::Error;

/// Last skip of a reviewer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Skip {
    pub(crate) by: String,
    pub(crate) at: Millis,
}

/// Parses the skips of a job, oldest first.
pub(crate) fn parse_skips(job: &Job) -> Result<Vec<Skip>, Error> {
    let skips = job.skips.as_deref().map(serde_json::from_str).transpose();
    Ok(skips.map_err(Error::corrupt("job"))?.unwrap_or_default())
}

/// Returns the time of the reviewer's skip.
pub(crate) fn skipped_at(job: &Job, reviewer: &str) -> Option<Millis> {
    // An unreadable list must not hide the job from its reviewers.
    parse_skips(job).ok()?.into_iter().find(|skip| skip.by == reviewer).map(|skip| skip.at)
}
