//! Decides which of the matched rules act, and why the others do not; pure.
//!
//! Limits are not taken here: `claims` returns what to ask of them, and `Evaluated::refused` holds the answers.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use tidegate_catalog::{ActionKind, Compiled};
use tidegate_rules::{ActionUse, Enforcement, Match, OnError, Outcome, RuleFailure, RuleHead, Status};
use tidegate_schemas::{
    ids::{ActionId, EventId, ItemKey, Kind, Millis, OrgId, PolicyId, RuleId, SubmissionId, derive},
    wire::answers::Media,
};

use crate::rules::stats::Suppressed;

/// An evaluated submission.
#[derive(Debug)]
pub struct Evaluated<'a> {
    pub org: &'a OrgId,
    pub submission_id: SubmissionId,
    pub item: &'a ItemKey,
    /// The user who receives strikes: the item's creator, or the user that the item is.
    pub user: Option<&'a ItemKey>,
    pub append_ms: Millis,
    pub outcome: &'a Outcome,
    /// Reason for opening no reviews, if another part of the service handles them.
    pub no_reviews: Option<&'static str>,
    /// Rules that their limits refused.
    pub refused: &'a Refused,
    /// Set if the submission repeats an earlier one.
    pub again: Option<Again<'a>>,
    pub media: &'a [Media],
}

impl Evaluated<'_> {
    /// True if the action was taken before, on the submission that this one repeats.
    pub(super) fn is_done(&self, action: &ActionId) -> bool {
        self.again.is_some_and(|again| again.taken.contains(&event_id(self, action)))
    }
}

/// The earlier submission that a submission repeats.
#[derive(Clone, Copy, Debug)]
pub struct Again<'a> {
    /// The repetition has the same event ids, so no event is sent twice.
    pub original: SubmissionId,
    /// Events of the actions that were taken on the item.
    pub taken: &'a HashSet<EventId>,
}

/// The rules whose limits refused them.
pub type Refused = HashMap<RuleId, Suppressed>;

/// Request to the limits of a rule before it acts; without limits, only its match is counted for the alarm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub rule: RuleId,
    pub per_day: Option<i64>,
    /// User and duration of the cooldown.
    pub cooldown: Option<(ItemKey, Duration)>,
    /// Alarm of the rule.
    pub alarm: Option<Watch>,
}

/// Alarm of a rule version, which stops acting once it has matched more often in an hour than expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watch {
    pub version: String,
    pub expected: Expected,
    /// True if this match counts. Repeated submissions do not, because many of them come at once.
    pub counts: bool,
}

/// Highest number of matches an hour that raises no alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Set by the author of the rule.
    Said(i64),
    /// Measured by the last backtest, if there was one.
    Measured,
}

/// A rule that matched, or whose failure counts as a match.
pub(super) struct RuleMatch<'a> {
    pub(super) rule: &'a RuleId,
    pub(super) version: &'a str,
    pub(super) name: &'a str,
    pub(super) policies: &'a [PolicyId],
    pub(super) actions: &'a [ActionUse],
    pub(super) life: Option<&'a Enforcement>,
    pub(super) suppressed: Option<Suppressed>,
}

impl<'a> RuleMatch<'a> {
    fn of_match(config: &'a Compiled, evaluated: &Evaluated<'_>, found: &'a Match) -> Self {
        let life = config.rule(&found.rule).map(|head| &head.enforcement);
        Self {
            rule: &found.rule,
            version: &found.version,
            name: &found.name,
            policies: &found.policies,
            actions: &found.actions,
            life,
            suppressed: suppressed(evaluated, &found.rule, found.status, life),
        }
    }

    fn of_head(evaluated: &Evaluated<'_>, head: &'a RuleHead) -> Self {
        Self {
            rule: &head.rule,
            version: &head.version,
            name: &head.name,
            policies: &head.policies,
            actions: &head.actions,
            life: Some(&head.enforcement),
            suppressed: suppressed(evaluated, &head.rule, head.status, Some(&head.enforcement)),
        }
    }

    pub(super) fn acts(&self) -> bool {
        self.suppressed.is_none()
    }
}

fn suppressed(
    evaluated: &Evaluated<'_>,
    rule: &RuleId,
    status: Status,
    life: Option<&Enforcement>,
) -> Option<Suppressed> {
    if status != Status::Live {
        return Some(Suppressed::Background);
    }
    let refused = evaluated.refused.get(rule).copied();
    let is_out = life.is_some_and(|life| !life.includes(rule, evaluated.item, evaluated.user));
    // The refusal comes first: an alarm stops a rule for all items. Limits are not asked for items outside the rollout.
    refused.or(is_out.then_some(Suppressed::Rollout))
}

/// Returns the matched rules in their order, then those whose failure counts as a match.
pub(super) fn rule_matches<'a>(config: &'a Compiled, evaluated: &Evaluated<'a>) -> Vec<RuleMatch<'a>> {
    let outcome = evaluated.outcome;
    let matched = outcome.matched.iter().map(|found| RuleMatch::of_match(config, evaluated, found));
    let failed = outcome.errored.iter().filter_map(|failed| config.rule(&failed.rule));
    let failed = failed.filter(|head| head.enforcement.on_error == OnError::Matched);
    matched.chain(failed.map(|head| RuleMatch::of_head(evaluated, head))).collect()
}

/// Returns the failed rules whose failure moderators are to review.
pub(super) fn for_review<'a>(config: &'a Compiled, evaluated: &Evaluated<'_>) -> Vec<&'a RuleHead> {
    let failed = evaluated.outcome.errored.iter().filter_map(|failed| config.rule(&failed.rule));
    let wanted = failed.filter(|head| {
        head.enforcement.on_error == OnError::Review
            && suppressed(evaluated, &head.rule, head.status, Some(&head.enforcement)).is_none()
    });
    wanted.collect()
}

/// Returns how a failure is listed, if it counts as something.
pub(super) fn counts_as(config: &Compiled, failed: &RuleFailure) -> Option<OnError> {
    let on_error = config.rule(&failed.rule)?.enforcement.on_error;
    (on_error != OnError::NotMatched).then_some(on_error)
}

/// Returns the requests to limits that the plan needs. Only rules that are about to act use up limits, but every match
/// of a live rule counts for its alarm, because backtests count all matches, too.
pub fn claims(config: &Compiled, evaluated: &Evaluated<'_>) -> Vec<Claim> {
    if evaluated.outcome.matched.is_empty() && evaluated.outcome.errored.is_empty() {
        return Vec::new();
    }
    let live = rule_matches(config, evaluated)
        .into_iter()
        .filter(|it| it.suppressed != Some(Suppressed::Background));
    let claim = |it: RuleMatch<'_>| {
        let head = config.rule(it.rule)?;
        let limits = head.enforcement.limits;
        let asks = it.acts() && it.actions.iter().any(|action| is_open(config, evaluated, &action.id));
        let span = limits.per_user_cooldown.map(|span| Duration::from_millis(span.millis().unsigned_abs()));
        let cooldown = evaluated.user.cloned().zip(span).filter(|_| asks);
        let alarm = Watch {
            version: head.version.clone(),
            expected: limits.alarm_per_hour.map_or(Expected::Measured, Expected::Said),
            counts: evaluated.again.is_none(),
        };
        let per_day = limits.actions_per_day.filter(|_| asks);
        Some(Claim { rule: it.rule.clone(), per_day, cooldown, alarm: Some(alarm) })
    };
    live.filter_map(claim).collect()
}

/// True if the action is taken once a rule may act.
fn is_open(config: &Compiled, evaluated: &Evaluated<'_>, action: &ActionId) -> bool {
    refused(config, evaluated, action).is_none() && !evaluated.is_done(action)
}

/// Returns the reason why an action is not taken, whichever rule asks for it.
pub(super) fn refused(
    config: &Compiled,
    evaluated: &Evaluated<'_>,
    action: &ActionId,
) -> Option<&'static str> {
    let Some(action) = config.action(action) else { return Some("unknown_action") };
    match action.kind {
        ActionKind::EnqueueReview { .. } => evaluated.no_reviews,
        // A report of child safety opens that job by itself, and the rule adds its hit to it.
        ActionKind::Callback { .. } | ActionKind::EnqueueChildSafety { .. } => None,
    }
}

pub(super) fn event_id(evaluated: &Evaluated<'_>, action: &ActionId) -> EventId {
    event_of(evaluated.again.map_or(evaluated.submission_id, |again| again.original), action)
}

/// Returns the id of the event of an action that rules take on a submission.
pub(crate) fn event_of(submission: SubmissionId, action: &ActionId) -> EventId {
    derive(Kind::ActionEvent, &[submission.as_bytes(), action.as_str().as_bytes()])
}
