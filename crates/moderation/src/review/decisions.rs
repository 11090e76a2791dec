//! Decisions of moderators, from the request to their effects.
//!
//! The console writes a due row, then the job's row with the decision `pending`. A crash in between leaves a due row
//! without a decision, which is dropped later. When the time to undo is over, a processor's scanner calls `release`: it
//! replaces `pending` by `released`, appends the decision to the log, and marks it `appended`. A scanner that crashes in
//! between leaves `released`, which is appended again after its lease: the ids are the same, so the effects happen once.

use std::{
    collections::{BTreeMap, HashSet},
    hash::Hash,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tidegate_catalog::Compiled;
use tidegate_schemas::{
    documents::Event,
    ids::{
        ActionId, CauseId, ConfigVersion, DecisionId, EventId, ItemKey, JobId, Kind, Millis, OrgId, PolicyId,
        derive,
    },
    records::{self, JobClass, Record as _, Verdict},
};
use tidegate_store::{
    At, Replaced, WriteTime,
    tables::{
        items::{rules::Finding, strikes::ActionByItem},
        review::{
            appeals::Appeal,
            decisions::{Decision, DecisionDue},
            jobs::{DecisionState, Job, JobCause, JobState},
            queue_counts::QueueChange,
        },
    },
};
use tidegate_stream::{Record, Topic};

pub use super::decision_events::Parameters;
use super::{appeals, decision_events};
use crate::{
    Deps, Error,
    effects::{
        self, ActionInput, Plan, PlannedCallback, PlannedFinding, PlannedStrike,
        events::{self, DecisionRef},
    },
    items::stored,
    queue_counts, reporters,
    rules::stats::RuleHit,
};

/// A moderator's decision as requested. An action or a policy that is named twice counts once.
#[derive(Clone, Debug)]
pub struct DecisionRequest {
    pub verdict: Verdict,
    pub actions: Vec<ActionId>,
    /// Values of the actions' parameters.
    pub parameters: Parameters,
    pub policies: Vec<PolicyId>,
    pub reason: Option<String>,
    pub decided_by: String,
    /// Epoch of the claim under which it is made.
    pub epoch: i64,
}

/// Reason why a decision is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    NotFound,
    AlreadyDecided,
    /// The claim expired or is another reviewer's.
    NotYours {
        claimed_by: Option<String>,
    },
    Invalid {
        pointer: String,
        detail: String,
    },
}

/// A decision as the job's row carries it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredDecision {
    pub decision_id: DecisionId,
    pub config_version: ConfigVersion,
    pub verdict: Verdict,
    pub actions: Vec<ActionId>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: Parameters,
    pub policies: Vec<PolicyId>,
    pub reason: Option<String>,
    pub decided_by: String,
    pub decided_at: Millis,
    pub release_at: Millis,
}

/// Stores the decision. Its effects follow when the time to undo it is over.
pub async fn decide(
    deps: &Deps,
    org: &OrgId,
    job_id: JobId,
    request: &DecisionRequest,
    undo: Duration,
    now: Millis,
) -> Result<Result<StoredDecision, Refusal>, Error> {
    let Some(mut job) = deps.store.get::<Job>(&(org.clone(), job_id)).await? else {
        return Ok(Err(Refusal::NotFound));
    };
    // Checked before anything is written, so that a request without a claim leaves no due row.
    if let Some(refusal) = not_open_to(&job, request) {
        return Ok(Err(refusal));
    }
    let config = deps.live.latest(org).await?;
    if let Err(refusal) = check(&config, &job, request) {
        return Ok(Err(refusal));
    }
    let decided = StoredDecision {
        decision_id: decision_id(job_id, request.epoch),
        config_version: config.version(),
        verdict: request.verdict,
        actions: each_once(&request.actions),
        parameters: request.parameters.clone(),
        policies: each_once(&request.policies),
        reason: request.reason.clone(),
        decided_by: request.decided_by.clone(),
        decided_at: now,
        release_at: now.plus(undo),
    };
    put_due(deps, &job, &decided, now).await?;
    loop {
        if let Some(refusal) = not_open_to(&job, request) {
            return Ok(Err(refusal));
        }
        let next = Job {
            state: JobState::Decided,
            decision: Some(serde_json::to_string(&decided).map_err(Error::corrupt("decision"))?),
            decision_state: Some(DecisionState::Pending),
            lease_until: None,
            ..job.clone()
        };
        match deps.store.replace(&next, job.version).await? {
            Replaced::Yes => return Ok(Ok(decided)),
            Replaced::No(current) => job = current,
            Replaced::Gone => return Ok(Err(Refusal::NotFound)),
        }
    }
}

fn decision_id(job_id: JobId, epoch: i64) -> DecisionId {
    derive(Kind::Decision, &[job_id.as_bytes(), &epoch.to_be_bytes()])
}

/// Returns each value once, in the order of first mention.
fn each_once<T: Clone + Eq + Hash>(named: &[T]) -> Vec<T> {
    let mut seen = HashSet::new();
    named.iter().filter(|one| seen.insert(*one)).cloned().collect()
}

fn not_open_to(job: &Job, request: &DecisionRequest) -> Option<Refusal> {
    if job.state != JobState::Open {
        return Some(Refusal::AlreadyDecided);
    }
    let yours = job.claimed_by.as_deref() == Some(&request.decided_by) && job.epoch == request.epoch;
    (!yours).then(|| Refusal::NotYours { claimed_by: job.claimed_by.clone() })
}

fn check(config: &Compiled, job: &Job, request: &DecisionRequest) -> Result<(), Refusal> {
    let invalid =
        |pointer: &str, detail: String| Err(Refusal::Invalid { pointer: pointer.to_owned(), detail });
    let appeal = job.class == JobClass::Appeal;
    let fits = match request.verdict {
        Verdict::Accept | Verdict::Reject => appeal,
        Verdict::Ignore | Verdict::Act => !appeal,
    };
    if !fits {
        let wanted = if appeal { "accept or reject" } else { "ignore or act" };
        return invalid("/verdict", format!("a job of class {} takes {wanted}", job.class));
    }
    if request.verdict == Verdict::Act && request.actions.is_empty() {
        return invalid("/actions", "to act, name at least one action".to_owned());
    }
    if request.verdict != Verdict::Act && !request.actions.is_empty() {
        return invalid("/actions", format!("{} takes no actions", request.verdict.as_str()));
    }
    let queue = config.queue(&job.queue).map(|queue| &queue.document);
    let required = queue.map(|queue| queue.require).unwrap_or_default();
    if required.reason && request.reason.as_deref().is_none_or(|reason| reason.trim().is_empty()) {
        return invalid("/reason", format!("decisions on jobs of the queue {} need a reason", job.queue));
    }
    if required.policy && request.verdict == Verdict::Act && request.policies.is_empty() {
        let detail =
            format!("decisions on jobs of the queue {} that act name at least one policy", job.queue);
        return invalid("/policies", detail);
    }
    for (index, action) in request.actions.iter().enumerate() {
        if queue.is_some_and(|queue| queue.hidden_actions.contains(action)) {
            let detail = format!("the action {action} is not for jobs of the queue {}", job.queue);
            return invalid(&format!("/actions/{index}"), detail);
        }
        let Some(known) = config.action(action) else {
            return invalid(&format!("/actions/{index}"), format!("there is no action {action}"));
        };
        let given = request.parameters.get(action).cloned().unwrap_or_default().into_iter().collect();
        if let Some(fault) = known.check_parameters(&given).into_iter().next() {
            return invalid(&format!("/actions/{index}/parameters"), fault);
        }
    }
    for (index, policy) in request.policies.iter().enumerate() {
        if config.policy(policy).is_none() {
            return invalid(
                &format!("/policies/{index}"),
                format!("there is no policy with the id {policy}"),
            );
        }
    }
    Ok(())
}

async fn put_due(deps: &Deps, job: &Job, decided: &StoredDecision, now: Millis) -> Result<(), Error> {
    let shard = deps.log.partition(Topic::Decisions, &job.item.log_key(&job.org)).index;
    let due = DecisionDue {
        shard: i64::from(shard),
        minute: decided.release_at.minute(),
        due_at: decided.release_at,
        org: job.org.clone(),
        job_id: job.job_id,
        decision_id: decided.decision_id,
    };
    deps.store.put(WriteTime::of(now, 0), &[due]).await?;
    Ok(())
}

/// Next step for a due row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// The row is done with.
    Settled,
    /// The row is to be released again at this instant.
    Again(Millis),
}

/// Time for which a due row without a decision is kept: the console may still be writing, and its clock may be minutes
/// behind.
const DECISION_FOLLOWS: Duration = Duration::from_secs(3_600);
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Appends a decision whose time to undo is over, or whose release has outlived its lease. Only the owner of the shard may
/// call it.
pub async fn release(deps: &Deps, due: &DecisionDue, lease: Duration, now: Millis) -> Result<Release, Error> {
    let Some(job) = deps.store.get::<Job>(&(due.org.clone(), due.job_id)).await? else {
        return Ok(Release::Settled);
    };
    let decided: Option<StoredDecision> =
        job.decision.as_deref().map(serde_json::from_str).transpose().map_err(Error::corrupt("decision"))?;
    let Some(decided) = decided.filter(|decided| decided.decision_id == due.decision_id) else {
        // The decision may still follow only while the claim that it was made under is the job's present one.
        let may_follow = job.state == JobState::Open && decision_id(job.job_id, job.epoch) == due.decision_id;
        let is_new = now < due.due_at.plus(DECISION_FOLLOWS);
        return Ok(if may_follow && is_new {
            Release::Again(now.plus(LOOK_AGAIN))
        } else {
            Release::Settled
        });
    };
    match job.decision_state {
        Some(DecisionState::Pending) if now < decided.release_at => Ok(Release::Again(decided.release_at)),
        Some(DecisionState::Released) if job.lease_until.is_some_and(|lease| now < lease) => {
            Ok(Release::Again(job.lease_until.unwrap_or(now)))
        }
        Some(DecisionState::Pending | DecisionState::Released) => {
            append(deps, job, &decided, now.plus(lease), now).await
        }
        _ => Ok(Release::Settled),
    }
}

async fn append(
    deps: &Deps,
    job: Job,
    decided: &StoredDecision,
    lease: Millis,
    now: Millis,
) -> Result<Release, Error> {
    let closed_at = job.closed_at.unwrap_or(now);
    if job.closed_at.is_none() {
        queue_counts::announce(&deps.store, &job, QueueChange::Closed, closed_at).await?;
    }
    let job = Job { closed_at: Some(closed_at), ..job };
    let released =
        Job { decision_state: Some(DecisionState::Released), lease_until: Some(lease), ..job.clone() };
    if !deps.store.replace(&released, job.version).await?.is_done() {
        // The decision was undone, or another scanner was faster.
        return Ok(Release::Again(now));
    }
    tidegate_stream::failpoint!("after_due_release");
    let key = job.item.log_key(&job.org);
    let record = record(&job, decided);
    let partition = deps.log.partition(Topic::Decisions, &key);
    deps.log.append(&[(partition, Record::new(&key, record.to_datum()))]).await?;
    let marked = Job { decision_state: Some(DecisionState::Appended), lease_until: None, ..job.clone() };
    if deps.store.replace(&marked, job.version + 1).await?.is_done() {
        return Ok(Release::Settled);
    }
    Ok(Release::Again(lease))
}

fn record(job: &Job, decided: &StoredDecision) -> records::Decision {
    records::Decision {
        org: job.org.clone(),
        config_version: decided.config_version,
        decision_id: decided.decision_id,
        job_id: job.job_id,
        class: job.class,
        item: job.item.clone(),
        appeal_id: job.appeal_id.clone(),
        decided_at: decided.decided_at,
        decided_by: decided.decided_by.clone(),
        verdict: decided.verdict,
        actions: decided.actions.clone(),
        policies: decided.policies.clone(),
        reason: decided.reason.clone(),
        parameters: (!decided.parameters.is_empty())
            .then(|| serde_json::json!(decided.parameters).to_string()),
        reported_items: Vec::new(),
    }
}

/// Carries out a decision from the log.
pub async fn accept(deps: &Deps, decision: &records::Decision, written_at: Millis) -> Result<(), Error> {
    let plan = match effects::stored(&deps.store, &decision.org, decision.decision_id.0).await? {
        Some(plan) => plan,
        None => effects::adopt(&deps.store, plan(deps, decision, written_at).await?, Millis::now()).await?,
    };
    deps.store.put(WriteTime::of(decision.decided_at, 0), &[row(decision)?]).await?;
    reporters::record(&deps.store, decision).await?;
    effects::apply(deps, &plan).await
}

fn row(decision: &records::Decision) -> Result<Decision, Error> {
    Ok(Decision {
        org: decision.org.clone(),
        day: decision.decided_at.day(),
        at: decision.decided_at,
        decision_id: decision.decision_id,
        job_id: decision.job_id,
        class: decision.class,
        item: decision.item.clone(),
        verdict: decision.verdict,
        actions: serde_json::to_string(&decision.actions).map_err(Error::corrupt("decision"))?,
        policies: serde_json::to_string(&decision.policies).map_err(Error::corrupt("decision"))?,
        reason: decision.reason.clone(),
        decided_by: decision.decided_by.clone(),
        decided_at: decision.decided_at,
    })
}

async fn plan(deps: &Deps, decision: &records::Decision, written_at: Millis) -> Result<Plan, Error> {
    let config = effects::config(deps, &decision.org, decision.config_version, decision.decided_at).await?;
    let mut plan =
        Plan::empty(&decision.org, decision.decision_id.0, effects::Kind::Decision, config.version());
    match decision.verdict {
        Verdict::Ignore | Verdict::Act => {
            let acts = decision.verdict == Verdict::Act;
            let causes = causes_of_job(deps, decision).await?;
            let hits = hits(causes.iter().filter_map(|cause| cause.hits.as_deref()))?;
            let user = stored::struck_user(deps, &config, decision).await?;
            let about = decision_events::about(&deps.store, &config, decision, &causes).await?;
            let mut parameters = parameters(decision)?;
            let told = decision_events::reference(&config, decision, &parameters);
            if acts {
                for action in &decision.actions {
                    let given = parameters.remove(action).unwrap_or_default();
                    let by = (&told, &about);
                    take(&mut plan, &config, decision, (action, given), by, user.as_ref(), &hits, written_at);
                }
            } else {
                decision_events::tell(&mut plan, &config, decision, (&told, &about), user.as_ref());
            }
            let finding = if acts { Finding::Confirmed } else { Finding::Rejected };
            add_findings(&mut plan, &decision.item, hits, finding, written_at);
        }
        Verdict::Accept | Verdict::Reject => {
            answer_appeal(&mut plan, deps, &config, decision, written_at).await?;
        }
    }
    Ok(plan)
}

/// Returns the parameters that the decision gives to its actions.
fn parameters(decision: &records::Decision) -> Result<Parameters, Error> {
    let given = decision.parameters.as_deref().map(serde_json::from_str).transpose();
    Ok(given.map_err(Error::corrupt("decision"))?.unwrap_or_default())
}

async fn causes_of_job(deps: &Deps, decision: &records::Decision) -> Result<Vec<JobCause>, Error> {
    let partition = (decision.org.clone(), decision.job_id);
    Ok(deps.store.scan::<JobCause>(&partition, At::all()).all().await?)
}

/// Returns each rule version once per day: the first hit stands for equal ones.
fn hits<'a>(texts: impl Iterator<Item = &'a str>) -> Result<Vec<RuleHit>, Error> {
    let mut all: Vec<RuleHit> = Vec::new();
    for text in texts {
        let hits: Vec<RuleHit> = serde_json::from_str(text).map_err(Error::corrupt("hits"))?;
        for hit in hits {
            let same = |other: &RuleHit| {
                (&other.rule, &other.version, other.at.day()) == (&hit.rule, &hit.version, hit.at.day())
            };
            if !all.iter().any(same) {
                all.push(hit);
            }
        }
    }
    Ok(all)
}

fn add_findings(plan: &mut Plan, item: &ItemKey, hits: Vec<RuleHit>, finding: Finding, at: Millis) {
    let planned = |hit| PlannedFinding { hit, item: item.clone(), finding, at };
    plan.verdicts.extend(hits.into_iter().map(planned));
}

#[allow(clippy::too_many_arguments, reason = "the parts of one input")]
fn take(
    plan: &mut Plan,
    config: &Compiled,
    decision: &records::Decision,
    (id, parameters): (&ActionId, Map<String, Value>),
    (told, about): (&DecisionRef, &Map<String, Value>),
    user: Option<&ItemKey>,
    hits: &[RuleHit],
    written_at: Millis,
) {
    plan.take(
        config,
        &ActionInput {
            action: id,
            event_id: derive(Kind::DecisionEvent, &[decision.decision_id.as_bytes(), id.as_str().as_bytes()]),
            event_type: Event::ModeratorDecision,
            item: &decision.item,
            user,
            at: written_at,
            occurred_at: decision.decided_at,
            policies: &decision.policies,
            rules: Vec::new(),
            rules_more: 0,
            hits: hits.to_vec(),
            reason: decision.reason.clone(),
            parameters,
            conflicts: Vec::new(),
            decision: Some(told),
            about,
            reported_items: &decision.reported_items,
        },
    );
}

async fn answer_appeal(
    plan: &mut Plan,
    deps: &Deps,
    config: &Compiled,
    decision: &records::Decision,
    written_at: Millis,
) -> Result<(), Error> {
    let missing = |detail: &str| Error::Corrupt { what: "appeal", detail: detail.to_owned() };
    let appeal_id = decision.appeal_id.clone().ok_or_else(|| missing("its decision names none"))?;
    let appeal = deps
        .store
        .get::<Appeal>(&(decision.org.clone(), appeal_id.clone()))
        .await?
        .ok_or_else(|| missing("its row is gone"))?;
    let accepted = decision.verdict == Verdict::Accept;
    let against = appeals::against(&deps.store, &appeal).await?;
    let taken_back: &[ActionByItem] = if accepted { &against } else { &[] };
    let listening: Vec<_> = config
        .endpoints_for(Event::AppealDecision.name())
        .map(|endpoint| Some(endpoint.key.clone()))
        .collect();
    // Without an endpoint the event is kept as held rather than lost.
    let endpoints = if listening.is_empty() { vec![None] } else { listening };
    for endpoint in endpoints {
        let name = endpoint.as_ref().map_or("", |endpoint| endpoint.as_str());
        let event_id: EventId =
            derive(Kind::AppealEvent, &[decision.decision_id.as_bytes(), name.as_bytes()]);
        let event = events::AppealEvent {
            id: event_id,
            event_type: Event::AppealDecision,
            occurred_at: decision.decided_at.iso(),
            appeal_id: appeal_id.clone(),
            appealed_by: appeal.appealed_by.clone(),
            appeal_decision: if accepted { "ACCEPT" } else { "REJECT" },
            item: events::item(config, &appeal.item),
            decision_reason: decision.reason.clone(),
            custom: decision_events::answer(config, endpoint.as_ref(), taken_back),
        };
        plan.callbacks.push(PlannedCallback {
            event_id,
            event_type: Event::AppealDecision,
            endpoint,
            subject: appeal.item.clone(),
            occurred_at: decision.decided_at,
            body: events::body(&event),
            counts: None,
        });
    }
    let finding = if accepted { Finding::Overturned } else { Finding::Confirmed };
    let hits = hits(against.iter().filter_map(|row| row.hits.as_deref()))?;
    add_findings(plan, &appeal.item, hits, finding, written_at);
    if accepted {
        plan.strikes = reversals(decision, &appeal, against, written_at);
    }
    Ok(())
}

/// Returns reversals of the strikes that the appealed actions carried.
fn reversals(
    decision: &records::Decision,
    appeal: &Appeal,
    against: Vec<ActionByItem>,
    written_at: Millis,
) -> Vec<PlannedStrike> {
    against
        .into_iter()
        .filter(|row| row.points != 0)
        .filter_map(|row| {
            Some(PlannedStrike {
                user: row.user?,
                cause: derive(Kind::Reversal, &[decision.decision_id.as_bytes(), row.event_id.as_bytes()]),
                at: written_at,
                points: row.points,
                action: row.action,
                item: appeal.item.clone(),
                reverses: Some(CauseId(row.event_id.0)),
            })
        })
        .collect()
}
