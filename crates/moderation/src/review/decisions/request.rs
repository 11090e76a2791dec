//! Decision request, and its checks against job, queue and configuration.

use std::{collections::HashSet, hash::Hash};

use tidegate_catalog::{ActionKind, Compiled};
use tidegate_schemas::{
    documents::{DecisionRequirements, Queue},
    ids::{ActionId, ItemKey, PolicyId},
    records::{JobClass, Verdict},
};
use tidegate_store::tables::review::jobs::{Job, JobState};

use crate::jobs::stored_decision::Parameters;

/// Maximum number of actions on related items. Each adds a callback per endpoint to one stored plan.
const MOST_RELATED_ACTIONS: usize = 100;

/// Decision requested by a moderator. Repeated actions or policies count once.
#[derive(Clone, Debug)]
pub struct DecisionRequest {
    pub verdict: Verdict,
    pub actions: Vec<ActionId>,
    /// Values of the actions' parameters.
    pub parameters: Parameters,
    /// Ids or keys.
    pub policies: Vec<PolicyId>,
    /// Actions on related items.
    pub related: Vec<RelatedRequest>,
    pub reason: Option<String>,
    pub decided_by: String,
    /// Epoch of the claim under which the decision is made.
    pub epoch: i64,
}

/// Requested actions on a related item.
#[derive(Clone, Debug)]
pub struct RelatedRequest {
    pub item: ItemKey,
    pub actions: Vec<ActionId>,
    /// Values of the actions' parameters.
    pub parameters: Parameters,
    pub policies: Vec<PolicyId>,
}

/// Reason why a decision is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecisionRefusal {
    NotFound,
    AlreadyDecided,
    /// The claim has expired or belongs to another reviewer.
    NotYours {
        claimed_by: Option<String>,
    },
    Invalid {
        pointer: String,
        detail: String,
    },
}

pub(super) fn find_claim_refusal(job: &Job, request: &DecisionRequest) -> Option<DecisionRefusal> {
    if job.state != JobState::Open {
        return Some(DecisionRefusal::AlreadyDecided);
    }
    let has_claim = job.claimed_by.as_deref() == Some(&request.decided_by) && job.epoch == request.epoch;
    (!has_claim).then(|| DecisionRefusal::NotYours { claimed_by: job.claimed_by.clone() })
}

/// Checks the request against the configuration and the job's queue.
pub(super) fn check_request(
    config: &Compiled,
    job: &Job,
    request: &DecisionRequest,
) -> Result<(), DecisionRefusal> {
    let is_appeal = job.class == JobClass::Appeal;
    let is_valid_verdict = match request.verdict {
        Verdict::Accept | Verdict::Reject => is_appeal,
        Verdict::Ignore | Verdict::Act => !is_appeal,
    };
    if !is_valid_verdict {
        let expected_verdicts = if is_appeal { "accept or reject" } else { "ignore or act" };
        return refuse("/verdict", format!("a job of class {} takes {expected_verdicts}", job.class));
    }
    if request.verdict == Verdict::Act && request.actions.is_empty() {
        return refuse("/actions", "to act, name at least one action".to_owned());
    }
    if request.verdict != Verdict::Act && !request.actions.is_empty() {
        return refuse("/actions", format!("{} takes no actions", request.verdict.as_str()));
    }
    if is_appeal && !request.related.is_empty() {
        let detail = "an answer to an appeal takes no actions on related items".to_owned();
        return refuse("/related", detail);
    }
    // A queue that is no longer configured has no requirements.
    let checks = Checks { config, job, queue: config.queue(&job.queue).map(|queue| &queue.document) };
    if checks.requirements().reason && request.reason.as_deref().is_none_or(|reason| reason.trim().is_empty())
    {
        return refuse("/reason", format!("decisions on jobs of the queue {} need a reason", job.queue));
    }
    if request.verdict == Verdict::Act {
        checks.require_policy("", &request.policies)?;
    }
    checks.check_actions("", &request.actions, &request.parameters)?;
    checks.check_escalation(&request.actions)?;
    checks.check_policies("", &request.policies)?;
    checks.check_related(&request.related)
}

fn refuse(pointer: &str, detail: String) -> Result<(), DecisionRefusal> {
    Err(DecisionRefusal::Invalid { pointer: pointer.to_owned(), detail })
}

/// Checks for the parts of a decision. `at` is the JSON pointer of the enclosing object.
struct Checks<'a> {
    config: &'a Compiled,
    job: &'a Job,
    queue: Option<&'a Queue>,
}

impl Checks<'_> {
    fn requirements(&self) -> DecisionRequirements {
        self.queue.map(|queue| queue.require).unwrap_or_default()
    }

    fn require_policy(&self, at: &str, policies: &[PolicyId]) -> Result<(), DecisionRefusal> {
        if !self.requirements().policy || !policies.is_empty() {
            return Ok(());
        }
        let detail =
            format!("decisions on jobs of the queue {} that act name at least one policy", self.job.queue);
        refuse(&format!("{at}/policies"), detail)
    }

    fn check_actions(
        &self,
        at: &str,
        actions: &[ActionId],
        parameters: &Parameters,
    ) -> Result<(), DecisionRefusal> {
        for (index, action) in actions.iter().enumerate() {
            // Review tools do not offer these actions, but a client can still send their ids.
            if self.queue.is_some_and(|queue| queue.hidden_actions.contains(action)) {
                let detail = format!("the action {action} is not for jobs of the queue {}", self.job.queue);
                return refuse(&format!("{at}/actions/{index}"), detail);
            }
            let Some(configured) = self.config.action(action) else {
                return refuse(&format!("{at}/actions/{index}"), format!("there is no action {action}"));
            };
            let values = parameters.get(action).cloned().unwrap_or_default().into_iter().collect();
            if let Some(fault) = configured.check_parameters(&values).into_iter().next() {
                return refuse(&format!("{at}/actions/{index}/parameters"), fault);
            }
        }
        Ok(())
    }

    /// Refuses child-safety escalation from a child-safety job, which would reopen the job.
    fn check_escalation(&self, actions: &[ActionId]) -> Result<(), DecisionRefusal> {
        if self.job.class != JobClass::ChildSafety {
            return Ok(());
        }
        let opens_child_safety_job = |action: &ActionId| {
            let kind = self.config.action(action).map(|action| &action.kind);
            matches!(kind, Some(ActionKind::EnqueueChildSafety { .. }))
        };
        match actions.iter().position(opens_child_safety_job) {
            Some(index) => {
                let detail = "the job is one of child safety already: leave the action out".to_owned();
                refuse(&format!("/actions/{index}"), detail)
            }
            None => Ok(()),
        }
    }

    fn check_policies(&self, at: &str, policies: &[PolicyId]) -> Result<(), DecisionRefusal> {
        match policies.iter().position(|policy| self.config.policy(policy).is_none()) {
            Some(index) => {
                let detail = format!("there is no policy with the id or key {}", policies[index]);
                refuse(&format!("{at}/policies/{index}"), detail)
            }
            None => Ok(()),
        }
    }

    fn check_related(&self, related: &[RelatedRequest]) -> Result<(), DecisionRefusal> {
        if related.iter().map(|related| related.actions.len()).sum::<usize>() > MOST_RELATED_ACTIONS {
            let detail = format!("a decision takes at most {MOST_RELATED_ACTIONS} actions on related items");
            return refuse("/related", detail);
        }
        for (index, one) in related.iter().enumerate() {
            let at = format!("/related/{index}");
            if one.item == self.job.item {
                let detail = "this is the job's own item: name its actions in `actions`".to_owned();
                return refuse(&format!("{at}/item"), detail);
            }
            // Two entries with different policies would need a rule of precedence.
            if let Some(earlier) = related[..index].iter().position(|earlier| earlier.item == one.item) {
                let detail = format!("/related/{earlier} names the item already: put its actions there");
                return refuse(&format!("{at}/item"), detail);
            }
            if one.actions.is_empty() {
                return refuse(&format!("{at}/actions"), "name at least one action".to_owned());
            }
            self.require_policy(&at, &one.policies)?;
            self.check_actions(&at, &one.actions, &one.parameters)?;
            self.check_policies(&at, &one.policies)?;
        }
        Ok(())
    }
}

/// Returns the distinct values in order of first occurrence.
pub(super) fn distinct<T: Clone + Eq + Hash>(values: &[T]) -> Vec<T> {
    let mut seen_values = HashSet::new();
    values.iter().filter(|value| seen_values.insert(*value)).cloned().collect()
}
