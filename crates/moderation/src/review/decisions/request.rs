//! The request of a decision, and its checks against job, queue and configuration.

use std::{collections::HashSet, hash::Hash};

use tidegate_catalog::{ActionKind, Compiled};
use tidegate_schemas::{
    documents::{Queue, Required},
    ids::{ActionId, ItemKey, PolicyId},
    records::{JobClass, Verdict},
};
use tidegate_store::tables::review::jobs::{Job, JobState};

use crate::review::decision_events::Parameters;

/// Number of actions on related items in one decision. Each makes a callback for each endpoint, all in one stored plan.
const MOST_RELATED_ACTIONS: usize = 100;

/// A moderator's decision as requested. An action or a policy that is named twice counts once.
#[derive(Clone, Debug)]
pub struct DecisionRequest {
    pub verdict: Verdict,
    pub actions: Vec<ActionId>,
    /// Values of the actions' parameters.
    pub parameters: Parameters,
    /// Ids or keys.
    pub policies: Vec<PolicyId>,
    /// Actions on items that belong to the job.
    pub related: Vec<RelatedRequest>,
    pub reason: Option<String>,
    pub decided_by: String,
    /// Epoch of the claim under which it is made.
    pub epoch: i64,
}

/// Actions on an item that belongs to the job, as requested.
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
    if appeal && !request.related.is_empty() {
        let detail = "an answer to an appeal takes no actions on related items".to_owned();
        return invalid("/related", detail);
    }
    let checks = Checks { config, job, queue: config.queue(&job.queue).map(|queue| &queue.document) };
    if checks.required().reason && request.reason.as_deref().is_none_or(|reason| reason.trim().is_empty()) {
        return invalid("/reason", format!("decisions on jobs of the queue {} need a reason", job.queue));
    }
    if request.verdict == Verdict::Act {
        checks.has_policy("", &request.policies)?;
    }
    checks.actions("", &request.actions, &request.parameters)?;
    checks.no_second_escalation(&request.actions)?;
    checks.policies("", &request.policies)?;
    checks.related(&request.related)
}

fn invalid(pointer: &str, detail: String) -> Result<(), Refusal> {
    Err(Refusal::Invalid { pointer: pointer.to_owned(), detail })
}

/// Job and configuration that the parts of a decision are checked against. `at` is the pointer of the object that holds them.
struct Checks<'a> {
    config: &'a Compiled,
    job: &'a Job,
    queue: Option<&'a Queue>,
}

impl Checks<'_> {
    fn required(&self) -> Required {
        self.queue.map(|queue| queue.require).unwrap_or_default()
    }

    fn has_policy(&self, at: &str, policies: &[PolicyId]) -> Result<(), Refusal> {
        if !self.required().policy || !policies.is_empty() {
            return Ok(());
        }
        let detail =
            format!("decisions on jobs of the queue {} that act name at least one policy", self.job.queue);
        invalid(&format!("{at}/policies"), detail)
    }

    fn actions(&self, at: &str, actions: &[ActionId], parameters: &Parameters) -> Result<(), Refusal> {
        for (index, action) in actions.iter().enumerate() {
            if self.queue.is_some_and(|queue| queue.hidden_actions.contains(action)) {
                let detail = format!("the action {action} is not for jobs of the queue {}", self.job.queue);
                return invalid(&format!("{at}/actions/{index}"), detail);
            }
            let Some(known) = self.config.action(action) else {
                return invalid(&format!("{at}/actions/{index}"), format!("there is no action {action}"));
            };
            let given = parameters.get(action).cloned().unwrap_or_default().into_iter().collect();
            if let Some(fault) = known.check_parameters(&given).into_iter().next() {
                return invalid(&format!("{at}/actions/{index}/parameters"), fault);
            }
        }
        Ok(())
    }

    /// Refuses to send the item of a child-safety job to child safety, which would open its job again.
    fn no_second_escalation(&self, actions: &[ActionId]) -> Result<(), Refusal> {
        if self.job.class != JobClass::ChildSafety {
            return Ok(());
        }
        let opens = |action: &ActionId| {
            let kind = self.config.action(action).map(|action| &action.kind);
            matches!(kind, Some(ActionKind::EnqueueChildSafety { .. }))
        };
        match actions.iter().position(opens) {
            Some(index) => {
                let detail = "the job is one of child safety already: leave the action out".to_owned();
                invalid(&format!("/actions/{index}"), detail)
            }
            None => Ok(()),
        }
    }

    fn policies(&self, at: &str, policies: &[PolicyId]) -> Result<(), Refusal> {
        match policies.iter().position(|policy| self.config.policy(policy).is_none()) {
            Some(index) => {
                let detail = format!("there is no policy with the id or key {}", policies[index]);
                invalid(&format!("{at}/policies/{index}"), detail)
            }
            None => Ok(()),
        }
    }

    fn related(&self, related: &[RelatedRequest]) -> Result<(), Refusal> {
        if related.iter().map(|related| related.actions.len()).sum::<usize>() > MOST_RELATED_ACTIONS {
            let detail = format!("a decision takes at most {MOST_RELATED_ACTIONS} actions on related items");
            return invalid("/related", detail);
        }
        for (index, one) in related.iter().enumerate() {
            let at = format!("/related/{index}");
            if one.item == self.job.item {
                let detail = "this is the job's own item: name its actions in `actions`".to_owned();
                return invalid(&format!("{at}/item"), detail);
            }
            if let Some(earlier) = related[..index].iter().position(|earlier| earlier.item == one.item) {
                let detail = format!("/related/{earlier} names the item already: put its actions there");
                return invalid(&format!("{at}/item"), detail);
            }
            if one.actions.is_empty() {
                return invalid(&format!("{at}/actions"), "name at least one action".to_owned());
            }
            self.has_policy(&at, &one.policies)?;
            self.actions(&at, &one.actions, &one.parameters)?;
            self.policies(&at, &one.policies)?;
        }
        Ok(())
    }
}

/// Returns each value once, in the order of first mention.
pub(super) fn each_once<T: Clone + Eq + Hash>(named: &[T]) -> Vec<T> {
    let mut seen = HashSet::new();
    named.iter().filter(|one| seen.insert(*one)).cloned().collect()
}
