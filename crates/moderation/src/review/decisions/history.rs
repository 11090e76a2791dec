//! History event of a decision.

use tidegate_schemas::{
    history::{ActionSource, DecidedJob, DecisionEvent, RelatedAction},
    ids::JobId,
    records,
};
use tidegate_store::{
    Store,
    tables::review::jobs::{Job, JobCause},
};

use crate::{Error, jobs::reviewed_policies::load_reviewed_policies};

/// Loads the facts about the decided job; `None` for actions that the platform took itself.
pub(super) async fn load_decided_job(
    store: &Store,
    decision: &records::Decision,
    causes: &[JobCause],
) -> Result<Option<DecidedJob>, Error> {
    if decision.job_id == JobId::NONE {
        return Ok(None);
    }
    let job = store.get::<Job>(&(decision.org.clone(), decision.job_id)).await?;
    let reviewed_policies = load_reviewed_policies(store, &decision.org, causes).await?;
    Ok(Some(DecidedJob {
        job_id: decision.job_id,
        class: decision.class,
        queue: job.as_ref().map(|job| job.queue.clone()),
        created_at: job.as_ref().map(|job| job.created_at),
        reviewed_policies,
    }))
}

/// Builds the event. Without `job` it names the decided job only, as decisions of earlier versions do.
pub(super) fn decision_event(decision: &records::Decision, job: Option<DecidedJob>) -> DecisionEvent {
    let is_platform = decision.job_id == JobId::NONE;
    let job = job.or_else(|| {
        (!is_platform).then(|| DecidedJob {
            job_id: decision.job_id,
            class: decision.class,
            queue: None,
            created_at: None,
            reviewed_policies: Vec::new(),
        })
    });
    let related = decision.related.iter().flat_map(|related| {
        let action = |action: &tidegate_schemas::ids::ActionId| RelatedAction {
            item: related.item.clone(),
            action: action.clone(),
        };
        related.actions.iter().map(action)
    });
    DecisionEvent {
        source: if is_platform { ActionSource::Platform } else { ActionSource::Moderator },
        decided_by: decision.decided_by.clone(),
        decided_at: decision.decided_at,
        verdict: decision.verdict,
        job,
        appeal_id: decision.appeal_id.clone(),
        actions: decision.actions.clone(),
        policies: decision.policies.clone(),
        reason: decision.reason.clone(),
        related: related.collect(),
    }
}
