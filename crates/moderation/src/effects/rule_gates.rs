//! Decides which matched rules act, and why the others do not; pure.
//!
//! Limits are asked elsewhere: `limit_requests` lists the questions, `Evaluated::limit_refusals` holds the answers.

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

use crate::rules::stats::Suppression;

/// An evaluated submission.
#[derive(Debug)]
pub struct EvaluatedSubmission<'a> {
    pub org: &'a OrgId,
    pub submission_id: SubmissionId,
    pub item: &'a ItemKey,
    /// Receives the strikes: the item's creator, or the item itself if it is a user.
    pub user: Option<&'a ItemKey>,
    pub append_ms: Millis,
    pub outcome: &'a Outcome,
    /// Reason for opening no review jobs: a report opens the job itself, for example.
    pub review_suppression: Option<&'static str>,
    /// Rules that are held back by their limits.
    pub limit_refusals: &'a LimitRefusals,
    /// Set if the submission repeats an earlier one, as retroaction does.
    pub repetition: Option<Repetition<'a>>,
    pub media: &'a [Media],
}

impl EvaluatedSubmission<'_> {
    /// True if the original submission took this action already.
    pub(super) fn is_done(&self, action: &ActionId) -> bool {
        self.repetition.is_some_and(|repetition| repetition.taken_events.contains(&event_id(self, action)))
    }
}

/// Original of a repeated submission.
#[derive(Clone, Copy, Debug)]
pub struct Repetition<'a> {
    /// Original submission. Its event ids are reused, so that no event is sent twice.
    pub original: SubmissionId,
    /// Events of the actions taken on the item so far.
    pub taken_events: &'a HashSet<EventId>,
}

/// Rules that were held back by a limit, with the reason.
pub type LimitRefusals = HashMap<RuleId, Suppression>;

/// Question to the limits of a rule before it acts. Without limits, the match only counts for the alarm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleLimitRequest {
    pub rule: RuleId,
    pub per_day: Option<i64>,
    /// User and duration of the cooldown.
    pub cooldown: Option<(ItemKey, Duration)>,
    pub alarm: Option<AlarmCheck>,
}

/// Alarm of a rule version. The version stops acting once its matches in one hour exceed the threshold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlarmCheck {
    pub version: String,
    pub threshold: AlarmThreshold,
    /// True if this match counts. Repeated submissions do not count, because a retroaction sends many at once.
    pub counts: bool,
}

/// Highest number of matches per hour without an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlarmThreshold {
    /// From the rule's document.
    Configured(i64),
    /// From the last recorded backtest, if one exists.
    Measured,
}

/// Rule that matched, or whose failure counts as a match.
pub(super) struct RuleMatch<'a> {
    pub(super) rule: &'a RuleId,
    pub(super) version: &'a str,
    pub(super) name: &'a str,
    pub(super) policies: &'a [PolicyId],
    pub(super) actions: &'a [ActionUse],
    pub(super) enforcement: Option<&'a Enforcement>,
    pub(super) suppressed: Option<Suppression>,
}

impl<'a> RuleMatch<'a> {
    fn of_match(config: &'a Compiled, evaluated: &EvaluatedSubmission<'_>, rule_match: &'a Match) -> Self {
        let enforcement = config.rule(&rule_match.rule).map(|head| &head.enforcement);
        Self {
            rule: &rule_match.rule,
            version: &rule_match.version,
            name: &rule_match.name,
            policies: &rule_match.policies,
            actions: &rule_match.actions,
            enforcement,
            suppressed: suppression(evaluated, &rule_match.rule, rule_match.status, enforcement),
        }
    }

    fn of_head(evaluated: &EvaluatedSubmission<'_>, head: &'a RuleHead) -> Self {
        Self {
            rule: &head.rule,
            version: &head.version,
            name: &head.name,
            policies: &head.policies,
            actions: &head.actions,
            enforcement: Some(&head.enforcement),
            suppressed: suppression(evaluated, &head.rule, head.status, Some(&head.enforcement)),
        }
    }

    pub(super) fn acts(&self) -> bool {
        self.suppressed.is_none()
    }
}

fn suppression(
    evaluated: &EvaluatedSubmission<'_>,
    rule: &RuleId,
    status: Status,
    enforcement: Option<&Enforcement>,
) -> Option<Suppression> {
    if status != Status::Live {
        return Some(Suppression::Background);
    }
    let refusal = evaluated.limit_refusals.get(rule).copied();
    let is_outside_rollout =
        enforcement.is_some_and(|enforcement| !enforcement.includes(rule, evaluated.item, evaluated.user));
    // The refusal has precedence: an alarm stops a rule for all items, while limits are only asked inside the
    // rollout.
    refusal.or(is_outside_rollout.then_some(Suppression::Rollout))
}

/// Returns the matched rules in order, then the failed rules with `on_error: matched`.
pub(super) fn rule_matches<'a>(
    config: &'a Compiled,
    evaluated: &EvaluatedSubmission<'a>,
) -> Vec<RuleMatch<'a>> {
    let outcome = evaluated.outcome;
    let matches = outcome.matched.iter().map(|rule_match| RuleMatch::of_match(config, evaluated, rule_match));
    let failed_heads = outcome.errored.iter().filter_map(|failed| config.rule(&failed.rule));
    let failed_heads = failed_heads.filter(|head| head.enforcement.on_error == OnError::Matched);
    matches.chain(failed_heads.map(|head| RuleMatch::of_head(evaluated, head))).collect()
}

/// Returns the failed rules with `on_error: review`.
pub(super) fn failures_for_review<'a>(
    config: &'a Compiled,
    evaluated: &EvaluatedSubmission<'_>,
) -> Vec<&'a RuleHead> {
    let failed_heads = evaluated.outcome.errored.iter().filter_map(|failure| config.rule(&failure.rule));
    let for_review = failed_heads.filter(|head| {
        head.enforcement.on_error == OnError::Review
            && suppression(evaluated, &head.rule, head.status, Some(&head.enforcement)).is_none()
    });
    for_review.collect()
}

/// Returns the consequence of a failure, if it has one.
pub(super) fn failure_consequence(config: &Compiled, failure: &RuleFailure) -> Option<OnError> {
    let on_error = config.rule(&failure.rule)?.enforcement.on_error;
    (on_error != OnError::NotMatched).then_some(on_error)
}

/// Lists the limit requests of a plan. Only rules that are about to act use up limits. Every match of a live rule
/// counts for its alarm, because the threshold comes from a backtest, which counts all matches.
pub fn limit_requests(config: &Compiled, evaluated: &EvaluatedSubmission<'_>) -> Vec<RuleLimitRequest> {
    // Most items match no rule and need no limits.
    if evaluated.outcome.matched.is_empty() && evaluated.outcome.errored.is_empty() {
        return Vec::new();
    }
    let live = rule_matches(config, evaluated)
        .into_iter()
        .filter(|rule| rule.suppressed != Some(Suppression::Background));
    let request = |rule: RuleMatch<'_>| {
        let head = config.rule(rule.rule)?;
        let limits = head.enforcement.limits;
        // An action that is refused or taken already must not use up a place of the day.
        let uses_limits =
            rule.acts() && rule.actions.iter().any(|action| would_be_taken(config, evaluated, &action.id));
        let span = limits.per_user_cooldown.map(|span| Duration::from_millis(span.millis().unsigned_abs()));
        let cooldown = evaluated.user.cloned().zip(span).filter(|_| uses_limits);
        let alarm = AlarmCheck {
            version: head.version.clone(),
            threshold: limits.alarm_per_hour.map_or(AlarmThreshold::Measured, AlarmThreshold::Configured),
            counts: evaluated.repetition.is_none(),
        };
        let per_day = limits.actions_per_day.filter(|_| uses_limits);
        Some(RuleLimitRequest { rule: rule.rule.clone(), per_day, cooldown, alarm: Some(alarm) })
    };
    live.filter_map(request).collect()
}

/// True if the action would be taken once a rule acts.
fn would_be_taken(config: &Compiled, evaluated: &EvaluatedSubmission<'_>, action: &ActionId) -> bool {
    action_refusal(config, evaluated, action).is_none() && !evaluated.is_done(action)
}

/// Returns the reason why an action is not taken, independent of the rule.
pub(super) fn action_refusal(
    config: &Compiled,
    evaluated: &EvaluatedSubmission<'_>,
    action: &ActionId,
) -> Option<&'static str> {
    let Some(action) = config.action(action) else { return Some("unknown_action") };
    match action.kind {
        ActionKind::EnqueueReview { .. } => evaluated.review_suppression,
        // A child-safety report opens its job itself; the rule's hit joins that job.
        ActionKind::Callback { .. } | ActionKind::EnqueueChildSafety { .. } => None,
    }
}

pub(super) fn event_id(evaluated: &EvaluatedSubmission<'_>, action: &ActionId) -> EventId {
    derive_event_id(evaluated.repetition.map_or(evaluated.submission_id, |again| again.original), action)
}

/// Derives the event id of an action that rules take on a submission.
pub(crate) fn derive_event_id(submission: SubmissionId, action: &ActionId) -> EventId {
    derive(Kind::ActionEvent, &[submission.as_bytes(), action.as_str().as_bytes()])
}
