//! The request of a decision, and its checks against job, queue and configuration.

use std::{collections::HashSet, hash::Hash};

use tidegate_catalog::Compiled;
use tidegate_schemas::{
    ids::{ActionId, PolicyId},
    records::{JobClass, Verdict},
};
use tidegate_store::tables::review::jobs::{Job, JobState};

use crate::review::decision_events::Parameters;

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

pub(super) fn not_open_to(job: &Job, request: &DecisionRequest) -> Option<Refusal> {
    if job.state != JobState::Open {
        return Some(Refusal::AlreadyDecided);
    }
    let yours = job.claimed_by.as_deref() == Some(&request.decided_by) && job.epoch == request.epoch;
    (!yours).then(|| Refusal::NotYours { claimed_by: job.claimed_by.clone() })
}

/// Checks the decision against the configuration and the job's queue.
pub(super) fn check(config: &Compiled, job: &Job, request: &DecisionRequest) -> Result<(), Refusal> {
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

/// Returns each value once, in the order of first mention.
pub(super) fn each_once<T: Clone + Eq + Hash>(named: &[T]) -> Vec<T> {
    let mut seen = HashSet::new();
    named.iter().filter(|one| seen.insert(*one)).cloned().collect()
}
