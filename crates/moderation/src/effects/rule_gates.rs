//! Which of the rules that matched act, and why the others do not; pure.
//!
//! It takes no place of a limit: it says which are asked for, and is told which were refused.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use tidegate_catalog::{ActionKind, Compiled};
use tidegate_rules::{ActionUse, Errored, Life, Match, OnError, Outcome, RuleHead, Status};
use tidegate_schemas::{
    ids::{ActionId, EventId, ItemKey, Kind, Millis, OrgId, PolicyId, RuleId, SubmissionId, derive},
    wire::answers::Media,
};

use crate::rules::stats::Suppressed;

/// What was evaluated, and when the log took it.
#[derive(Debug)]
pub struct Evaluated<'a> {
    pub org: &'a OrgId,
    pub submission_id: SubmissionId,
    pub item: &'a ItemKey,
    /// Who is struck: the item's creator, or the user that the item is.
    pub user: Option<&'a ItemKey>,
    pub append_ms: Millis,
    pub outcome: &'a Outcome,
    /// Set where the item's reviews are somebody else's: why.
    pub no_reviews: Option<&'static str>,
    /// By their limits.
    pub refused: &'a Refused,
    /// Set where the submission repeats an earlier one.
    pub again: Option<Again<'a>>,
    pub media: &'a [Media],
}

impl Evaluated<'_> {
    /// Whether the action was taken before, on the submission that this one repeats.
    pub(super) fn is_done(&self, action: &ActionId) -> bool {
        self.again.is_some_and(|again| again.taken.contains(&event_id(self, action)))
    }
}

/// What an item was sent for before.
#[derive(Clone, Copy, Debug)]
pub struct Again<'a> {
    /// Its events are this one's.
    pub original: SubmissionId,
    /// The events of what was done about the item.
    pub taken: &'a HashSet<EventId>,
}

/// The rules whose limits refused them.
pub type Refused = HashMap<RuleId, Suppressed>;

/// What a rule's limits must be asked for before it acts, or only that a match is to be watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub rule: RuleId,
    pub per_day: Option<i64>,
    /// Who is left alone, and for how long.
    pub cooldown: Option<(ItemKey, Duration)>,
    /// What is watched of the rule.
    pub alarm: Option<Watch>,
}

/// A version of a rule acts no more once it matched in an hour more often than was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watch {
    pub version: String,
    pub expected: Expected,
    /// Whether this match counts. One that somebody sends again does not: many of them come at once.
    pub counts: bool,
}

/// How many matches an hour are expected at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// By the author.
    Said(i64),
    /// As its last backtest found, if there was one.
    Measured,
}

/// A rule that matched, or counts as if it had.
pub(super) struct Found<'a> {
    pub(super) rule: &'a RuleId,
    pub(super) version: &'a str,
    pub(super) name: &'a str,
    pub(super) policies: &'a [PolicyId],
    pub(super) actions: &'a [ActionUse],
    pub(super) life: Option<&'a Life>,
    pub(super) suppressed: Option<Suppressed>,
}

impl<'a> Found<'a> {
    fn of_match(config: &'a Compiled, evaluated: &Evaluated<'_>, found: &'a Match) -> Self {
        let life = config.rule(&found.rule).map(|head| &head.life);
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
            life: Some(&head.life),
            suppressed: suppressed(evaluated, &head.rule, head.status, Some(&head.life)),
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
    life: Option<&Life>,
) -> Option<Suppressed> {
    if status != Status::Live {
        return Some(Suppressed::Background);
    }
    let refused = evaluated.refused.get(rule).copied();
    let is_out = life.is_some_and(|life| !life.includes(rule, evaluated.item, evaluated.user));
    // A rule with an alarm acts for nobody; of one that is out nothing else was asked.
    refused.or(is_out.then_some(Suppressed::Rollout))
}

/// In the order in which the rules stand, those that failed after those that matched.
pub(super) fn found<'a>(config: &'a Compiled, evaluated: &Evaluated<'a>) -> Vec<Found<'a>> {
    let outcome = evaluated.outcome;
    let matched = outcome.matched.iter().map(|found| Found::of_match(config, evaluated, found));
    let failed = outcome.errored.iter().filter_map(|failed| config.rule(&failed.rule));
    let failed = failed.filter(|head| head.life.on_error == OnError::Matched);
    matched.chain(failed.map(|head| Found::of_head(evaluated, head))).collect()
}

/// Rules that failed, and whose failure moderators are to look at.
pub(super) fn for_review<'a>(config: &'a Compiled, evaluated: &Evaluated<'_>) -> Vec<&'a RuleHead> {
    let failed = evaluated.outcome.errored.iter().filter_map(|failed| config.rule(&failed.rule));
    let wanted = failed.filter(|head| {
        head.life.on_error == OnError::Review
            && suppressed(evaluated, &head.rule, head.status, Some(&head.life)).is_none()
    });
    wanted.collect()
}

/// How a failure is listed that counts as something.
pub(super) fn counts_as(config: &Compiled, failed: &Errored) -> Option<OnError> {
    let on_error = config.rule(&failed.rule)?.life.on_error;
    (on_error != OnError::NotMatched).then_some(on_error)
}

/// What must be asked of limits before the plan can be made. Only rules that are about to act ask for places; each match
/// of a live rule is watched, because that is what a backtest counts, too.
pub fn claims(config: &Compiled, evaluated: &Evaluated<'_>) -> Vec<Claim> {
    if evaluated.outcome.matched.is_empty() && evaluated.outcome.errored.is_empty() {
        return Vec::new();
    }
    let live =
        found(config, evaluated).into_iter().filter(|it| it.suppressed != Some(Suppressed::Background));
    let claim = |it: Found<'_>| {
        let head = config.rule(it.rule)?;
        let limits = head.life.limits;
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

/// Whether the action is taken if a rule may.
fn is_open(config: &Compiled, evaluated: &Evaluated<'_>, action: &ActionId) -> bool {
    refused(config, evaluated, action).is_none() && !evaluated.is_done(action)
}

/// Why an action is not taken whoever asks for it.
pub(super) fn refused(
    config: &Compiled,
    evaluated: &Evaluated<'_>,
    action: &ActionId,
) -> Option<&'static str> {
    let Some(action) = config.action(action) else { return Some("unknown_action") };
    match action.kind {
        ActionKind::EnqueueReview { .. } => evaluated.no_reviews,
        ActionKind::Callback { .. } => None,
    }
}

pub(super) fn event_id(evaluated: &Evaluated<'_>, action: &ActionId) -> EventId {
    event_of(evaluated.again.map_or(evaluated.submission_id, |again| again.original), action)
}

/// The event of an action that rules take on a submission.
pub(crate) fn event_of(submission: SubmissionId, action: &ActionId) -> EventId {
    derive(Kind::ActionEvent, &[submission.as_bytes(), action.as_str().as_bytes()])
}
