//! Stores a decision with its job, and releases it to the log after the undo period.

use std::time::Duration;

use async_recursion::async_recursion as boxed;
use tidegate_schemas::{
    ids::{DecisionId, JobId, Kind, Millis, derive},
    records::{self, Record as _},
};
use tidegate_store::{
    ReplaceOutcome, WriteTime,
    tables::review::{
        decisions::DecisionDue,
        jobs::{DecisionState, Job, JobState},
        queue_counts::QueueChange,
    },
};
use tidegate_stream::{Record, Topic};

use super::{
    related,
    request::{self, DecisionRefusal, DecisionRequest},
};
use crate::{
    Deps, Error,
    child_safety::AuthorizedJob,
    jobs::{
        queue_counts,
        stored_decision::{Parameters, StoredDecision, StoredRelated},
    },
};

/// Stores the decision. Its effects start after the undo period.
#[boxed]
pub async fn decide(
    deps: &Deps,
    job: &AuthorizedJob,
    request: &DecisionRequest,
    undo: Duration,
    now: Millis,
) -> Result<Result<StoredDecision, DecisionRefusal>, Error> {
    let Some(mut job) = deps.store.get::<Job>(&job.key()).await? else {
        return Ok(Err(DecisionRefusal::NotFound));
    };
    // Checked before the first write, so that a request without a claim leaves no due row.
    if let Some(refusal) = request::find_claim_refusal(&job, request) {
        return Ok(Err(refusal));
    }
    let config = deps.live.load_latest(&job.org).await?;
    if let Err(refusal) = request::check_request(&config, &job, request) {
        return Ok(Err(refusal));
    }
    let related = match related::resolve(deps, &config, &job, &request.related).await? {
        Ok(related) => related,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let decision = StoredDecision {
        decision_id: decision_id(job.job_id, request.epoch),
        config_version: config.version(),
        verdict: request.verdict,
        actions: request::distinct(&request.actions),
        parameters: request.parameters.clone(),
        policies: config.policy_ids(&request.policies),
        related,
        reason: request.reason.clone(),
        decided_by: request.decided_by.clone(),
        decided_at: now,
        release_at: now.plus(undo),
    };
    // Before the job's row: a pending decision without a due row would never be released.
    put_due(deps, &job, &decision, now).await?;
    loop {
        if let Some(refusal) = request::find_claim_refusal(&job, request) {
            return Ok(Err(refusal));
        }
        let next = Job {
            state: JobState::Decided,
            decision: Some(serde_json::to_string(&decision).map_err(Error::corrupt("decision"))?),
            decision_state: Some(DecisionState::Pending),
            lease_until: None,
            ..job.clone()
        };
        match deps.store.replace(&next, job.version).await? {
            ReplaceOutcome::Done => return Ok(Ok(decision)),
            ReplaceOutcome::Conflict(current) => job = current,
            ReplaceOutcome::Missing => return Ok(Err(DecisionRefusal::NotFound)),
        }
    }
}

fn decision_id(job_id: JobId, epoch: i64) -> DecisionId {
    derive(Kind::Decision, &[job_id.as_bytes(), &epoch.to_be_bytes()])
}

async fn put_due(deps: &Deps, job: &Job, decision: &StoredDecision, now: Millis) -> Result<(), Error> {
    // The owner of the item's partition releases the decision, so each due row has one scanner.
    let shard = deps.log.partition(Topic::Decisions, &job.item.log_key(&job.org)).index;
    let due = DecisionDue {
        shard: i64::from(shard),
        minute: decision.release_at.minute(),
        due_at: decision.release_at,
        org: job.org.clone(),
        job_id: job.job_id,
        decision_id: decision.decision_id,
    };
    deps.store.put_rows(WriteTime::from_append(now, 0), &[due]).await?;
    Ok(())
}

/// Next step for a due row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DueRowStep {
    /// The row is finished.
    Finished,
    /// The row is due again at this time.
    RetryAt(Millis),
}

/// Lifetime of a due row without a decision: the console may still be writing it, and its clock may be minutes
/// behind.
const DECISION_GRACE: Duration = Duration::from_secs(3_600);
const RETRY_PAUSE: Duration = Duration::from_secs(5);

/// Appends a decision if its undo period is over, or if the lease of an earlier release has ended. Only the owner of
/// the shard may call it.
#[boxed]
pub async fn release(
    deps: &Deps,
    due: &DecisionDue,
    lease: Duration,
    now: Millis,
) -> Result<DueRowStep, Error> {
    let Some(job) = deps.store.get::<Job>(&(due.org.clone(), due.job_id)).await? else {
        return Ok(DueRowStep::Finished);
    };
    let stored_decision: Option<StoredDecision> =
        job.decision.as_deref().map(serde_json::from_str).transpose().map_err(Error::corrupt("decision"))?;
    let Some(decision) = stored_decision.filter(|decision| decision.decision_id == due.decision_id) else {
        // The decision can only follow under the claim that it was made with.
        let may_follow = job.state == JobState::Open && decision_id(job.job_id, job.epoch) == due.decision_id;
        let is_new = now < due.due_at.plus(DECISION_GRACE);
        return Ok(if may_follow && is_new {
            DueRowStep::RetryAt(now.plus(RETRY_PAUSE))
        } else {
            DueRowStep::Finished
        });
    };
    match job.decision_state {
        Some(DecisionState::Pending) if now < decision.release_at => {
            Ok(DueRowStep::RetryAt(decision.release_at))
        }
        // Another scanner is appending; its lease bounds the wait after a crash.
        Some(DecisionState::Released) if job.lease_until.is_some_and(|lease| now < lease) => {
            Ok(DueRowStep::RetryAt(job.lease_until.unwrap_or(now)))
        }
        Some(DecisionState::Pending | DecisionState::Released) => {
            append_decision(deps, job, &decision, now.plus(lease), now).await
        }
        _ => Ok(DueRowStep::Finished),
    }
}

async fn append_decision(
    deps: &Deps,
    job: Job,
    decision: &StoredDecision,
    lease: Millis,
    now: Millis,
) -> Result<DueRowStep, Error> {
    let closed_at = job.closed_at.unwrap_or(now);
    if job.closed_at.is_none() {
        // Once, with the time in the row: a repeated release keeps its first `closed_at`.
        queue_counts::put_event(&deps.store, &job, QueueChange::Closed, closed_at).await?;
    }
    let job = Job { closed_at: Some(closed_at), ..job };
    // From here on the decision cannot be undone.
    let released_job =
        Job { decision_state: Some(DecisionState::Released), lease_until: Some(lease), ..job.clone() };
    if !deps.store.replace(&released_job, job.version).await?.is_done() {
        // The decision was undone, or another scanner released it first.
        return Ok(DueRowStep::RetryAt(now));
    }
    tidegate_stream::failpoint!("after_due_release");
    let key = job.item.log_key(&job.org);
    let record = decision_record(&job, decision);
    let partition = deps.log.partition(Topic::Decisions, &key);
    deps.log.append(&[(partition, Record::new(&key, record.to_datum()))]).await?;
    let appended_job =
        Job { decision_state: Some(DecisionState::Appended), lease_until: None, ..job.clone() };
    // After a failure the record is appended again at the end of the lease, with the same ids.
    if deps.store.replace(&appended_job, job.version + 1).await?.is_done() {
        return Ok(DueRowStep::Finished);
    }
    Ok(DueRowStep::RetryAt(lease))
}

fn decision_record(job: &Job, decision: &StoredDecision) -> records::Decision {
    records::Decision {
        org: job.org.clone(),
        config_version: decision.config_version,
        decision_id: decision.decision_id,
        job_id: job.job_id,
        class: job.class,
        item: job.item.clone(),
        appeal_id: job.appeal_id.clone(),
        decided_at: decision.decided_at,
        decided_by: decision.decided_by.clone(),
        verdict: decision.verdict,
        actions: decision.actions.clone(),
        policies: decision.policies.clone(),
        reason: decision.reason.clone(),
        parameters: parameters_to_json(&decision.parameters),
        reported_items: Vec::new(),
        related: decision.related.iter().map(related_record).collect(),
    }
}

fn related_record(related: &StoredRelated) -> records::RelatedActions {
    records::RelatedActions {
        item: related.item.clone(),
        user: related.user.clone(),
        actions: related.actions.clone(),
        policies: related.policies.clone(),
        parameters: parameters_to_json(&related.parameters),
    }
}

/// Serialises parameters for a record. `None` if there are none.
fn parameters_to_json(parameters: &Parameters) -> Option<String> {
    (!parameters.is_empty()).then(|| serde_json::json!(parameters).to_string())
}
