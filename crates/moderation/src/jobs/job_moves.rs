//! Moves of a job in the form of its row.

use serde::{Deserialize, Serialize};
use tidegate_schemas::ids::{JobId, Millis, QueueId};
use tidegate_store::tables::review::jobs::Job;

use crate::Error;

/// Move of a job to another queue. The count events of both queues have the same time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JobMove {
    pub(crate) at: Millis,
    pub(crate) from: QueueId,
    pub(crate) to: QueueId,
    /// Review job with the causes, if the job left child safety.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) job: Option<JobId>,
    /// True if the routing list moved the job instead of a person.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) routed: bool,
}

/// Parses the moves of a job, oldest first.
pub(crate) fn parse_moves(job: &Job) -> Result<Vec<JobMove>, Error> {
    let moves = job.moves.as_deref().map(serde_json::from_str).transpose();
    Ok(moves.map_err(Error::corrupt("job"))?.unwrap_or_default())
}
