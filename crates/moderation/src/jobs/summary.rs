//! JSON of a job in a list: the contents of its row.

use serde::Serialize;
use tidegate_schemas::{
    ids::{ActionId, AppealId, ConfigVersion, DecisionId, ItemKey, JobId, Millis, PolicyId, QueueId},
    records::{JobClass, Verdict},
};
use tidegate_store::tables::review::jobs::{DecisionState, Job, JobState};

use super::{
    job_moves, job_skips,
    priority::PrioritySignals,
    stored_decision::{Parameters, StoredDecision, StoredRelated},
};
use crate::Error;

/// Job in a list.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JobSummaryResponse {
    pub id: JobId,
    pub class: JobClass,
    pub queue: QueueId,
    pub state: JobState,
    pub item: ItemKey,
    pub generation: i64,
    pub priority: i64,
    /// Severity, reporters and reach: the inputs of the priority.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signals: Option<PrioritySignals>,
    /// Routing list and entry that chose the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routed_by: Option<String>,
    pub created_at: String,
    /// Time at which the decision became final, or the job was closed without a decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub appeal_id: Option<AppealId>,
    pub epoch: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claimed_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_until: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<DecisionResponse>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision_state: Option<DecisionState>,
    /// Moves to other queues, the oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub moves: Vec<MoveView>,
    /// The last skip of each reviewer, the oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skips: Vec<SkipView>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MoveView {
    pub at: String,
    pub from: QueueId,
    pub to: QueueId,
    /// Review job with the causes of a job that left child safety.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_id: Option<JobId>,
    /// True if the routing list moved the job instead of a person.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub routed: bool,
}

#[derive(Debug, Serialize)]
pub struct SkipView {
    pub at: String,
    pub by: String,
}

/// Decision in an answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DecisionResponse {
    pub decision_id: DecisionId,
    pub config_version: ConfigVersion,
    pub verdict: Verdict,
    pub actions: Vec<ActionId>,
    #[serde(skip_serializing_if = "Parameters::is_empty")]
    pub parameters: Parameters,
    pub policies: Vec<PolicyId>,
    /// Actions on related items.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub related: Vec<StoredRelated>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub decided_by: String,
    pub decided_at: String,
    /// Time at which the effects start.
    pub release_at: String,
}

impl From<StoredDecision> for DecisionResponse {
    fn from(stored: StoredDecision) -> Self {
        Self {
            decision_id: stored.decision_id,
            config_version: stored.config_version,
            verdict: stored.verdict,
            actions: stored.actions,
            parameters: stored.parameters,
            policies: stored.policies,
            related: stored.related,
            reason: stored.reason,
            decided_by: stored.decided_by,
            decided_at: stored.decided_at.iso(),
            release_at: stored.release_at.iso(),
        }
    }
}

pub fn summarize(job: Job) -> Result<JobSummaryResponse, Error> {
    let decision: Option<StoredDecision> =
        job.decision.as_deref().map(serde_json::from_str).transpose().map_err(Error::corrupt("job"))?;
    let signals = PrioritySignals::parse_from(&job)?;
    let moves = job_moves::parse_moves(&job)?.into_iter();
    let skips = job_skips::parse_skips(&job)?.into_iter();
    Ok(JobSummaryResponse {
        moves: moves
            .map(|job_move| MoveView {
                at: job_move.at.iso(),
                from: job_move.from,
                to: job_move.to,
                job_id: job_move.job,
                routed: job_move.routed,
            })
            .collect(),
        skips: skips.map(|skip| SkipView { at: skip.at.iso(), by: skip.by }).collect(),
        id: job.job_id,
        class: job.class,
        queue: job.queue,
        state: job.state,
        item: job.item,
        generation: job.generation,
        priority: job.priority,
        signals,
        routed_by: job.routed_by,
        created_at: job.created_at.iso(),
        closed_at: job.closed_at.map(Millis::iso),
        appeal_id: job.appeal_id,
        epoch: job.epoch,
        claimed_by: job.claimed_by,
        lease_until: job.lease_until.map(Millis::iso),
        decision: decision.map(DecisionResponse::from),
        decision_state: job.decision_state,
    })
}
