//! Moves of a job as its row stores them.

use serde::{Deserialize, Serialize};
use tidegate_schemas::ids::{JobId, Millis, QueueId};
use tidegate_store::tables::review::jobs::Job;

use crate::Error;

/// A move of a job to another queue. The events of the queues' counts have the same instant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JobMove {
    pub(crate) at: Millis,
    pub(crate) from: QueueId,
    pub(crate) to: QueueId,
    /// Review job that has the causes, if the job left child safety.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) job: Option<JobId>,
    /// True if the routing list moved the job, and not a person.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) routed: bool,
}

/// Returns the moves of a job, the oldest first.
pub(crate) fn of(job: &Job) -> Result<Vec<JobMove>, Error> {
    let moves = job.moves.as_deref().map(serde_json::from_str).transpose();
    Ok(moves.map_err(Error::corrupt("job"))?.unwrap_or_default())
}
