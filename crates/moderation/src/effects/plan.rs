//! Makes the plan of an evaluated item; pure. `rule_gates` says which of the matched rules act.

use std::collections::BTreeMap;

use serde::Serialize;
use tidegate_catalog::Compiled;
use tidegate_rules::{Match, OnError, RuleFailure};
use tidegate_schemas::{
    documents::Event,
    ids::{ActionId, EventId, Kind as IdKind, PolicyId, RuleId, derive},
};

use super::{
    ActionInput, Findings, Kind, Plan, PlannedReview, events,
    rule_gates::{self, Evaluated, RuleMatch, event_id},
};
use crate::{
    jobs::BuiltInQueue,
    rules::stats::{OutcomeKind, RuleHit, RuleOutcome, Suppressed},
};

/// An action as the item's row lists it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ListedAction<'a> {
    id: &'a ActionId,
    #[serde(skip_serializing_if = "Option::is_none")]
    event_id: Option<EventId>,
    rules: Vec<&'a RuleId>,
    policies: Vec<PolicyId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    suppressed: Option<&'static str>,
}

/// A match as the item's row lists it.
#[derive(Serialize)]
struct ListedMatch<'a> {
    #[serde(flatten)]
    found: &'a Match,
    #[serde(skip_serializing_if = "Option::is_none")]
    suppressed: Option<Suppressed>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    sampled: bool,
}

/// A failure as the item's row lists it.
#[derive(Serialize)]
struct ListedFailure<'a> {
    #[serde(flatten)]
    failed: &'a RuleFailure,
    #[serde(skip_serializing_if = "Option::is_none")]
    counts_as: Option<OnError>,
    #[serde(skip_serializing_if = "Option::is_none")]
    suppressed: Option<Suppressed>,
}

pub fn plan_item(config: &Compiled, evaluated: &Evaluated<'_>) -> Plan {
    let mut plan = Plan::empty(evaluated.org, evaluated.submission_id.0, Kind::Item, config.version());
    let found = rule_gates::rule_matches(config, evaluated);
    let mut asked: BTreeMap<&ActionId, Vec<&RuleMatch<'_>>> = BTreeMap::new();
    for rule in &found {
        for action in rule.actions {
            asked.entry(&action.id).or_default().push(rule);
        }
    }
    let actions: Vec<_> =
        asked.into_iter().map(|(id, by)| list_action(&mut plan, config, evaluated, id, &by)).collect();
    let sampled = found.iter().filter(|it| is_sampled(evaluated, it));
    let sampled: Vec<_> = sampled.map(|it| hit(evaluated, it.rule, it.version)).collect();
    review(&mut plan, evaluated, "sample", sampled);
    let failed = rule_gates::for_review(config, evaluated);
    let failed = failed.into_iter().map(|head| hit(evaluated, &head.rule, &head.version));
    review(&mut plan, evaluated, "error", failed.collect());

    let (matches, failures) = found.split_at(evaluated.outcome.matched.len());
    let matched = evaluated.outcome.matched.iter().zip(matches).map(|(found, it)| ListedMatch {
        found,
        suppressed: it.suppressed,
        sampled: is_sampled(evaluated, it),
    });
    let of = |rule: &RuleId| failures.iter().find(|it| it.rule == rule).and_then(|it| it.suppressed);
    let errored = evaluated.outcome.errored.iter().map(|failed| ListedFailure {
        failed,
        counts_as: rule_gates::counts_as(config, failed),
        suppressed: of(&failed.rule),
    });
    plan.evaluation = Some(Findings {
        evaluated_at: evaluated.append_ms,
        matched: json(&matched.collect::<Vec<_>>()),
        errored: json(&errored.collect::<Vec<_>>()),
        actions: json(&actions),
        media: json(&evaluated.media),
        left_out: evaluated.outcome.left_out(),
    });
    plan.counted.extend(found.iter().map(|it| RuleOutcome {
        rule: it.rule.clone(),
        version: it.version.to_owned(),
        kind: it.suppressed.map_or(OutcomeKind::Acted, OutcomeKind::Suppressed),
    }));
    plan.counted.extend(evaluated.outcome.errored.iter().map(|it| RuleOutcome {
        rule: it.rule.clone(),
        version: it.version.clone(),
        kind: OutcomeKind::Errored,
    }));
    plan
}

/// Adds an action that rules ask for to the plan, or lists the reason why it is not taken.
fn list_action<'a>(
    plan: &mut Plan,
    config: &Compiled,
    evaluated: &Evaluated<'_>,
    id: &'a ActionId,
    by: &[&RuleMatch<'a>],
) -> ListedAction<'a> {
    let acting = by.iter().any(|rule| rule.acts());
    // Only the most telling reason is listed, together with the rules that it applies to.
    let why = if acting { None } else { by.iter().filter_map(|rule| rule.suppressed).min() };
    let causes: Vec<_> = by.iter().filter(|rule| rule.suppressed == why).copied().collect();
    let policies = union_of_policies(&causes);
    let suppressed = match why {
        Some(why) => Some(why.as_str()),
        None => rule_gates::refused(config, evaluated, id)
            .or_else(|| evaluated.is_done(id).then_some("duplicate")),
    };
    if suppressed.is_none() {
        take(plan, config, evaluated, id, &causes, &policies);
    }
    ListedAction {
        id,
        event_id: suppressed.is_none().then(|| event_id(evaluated, id)),
        rules: causes.iter().map(|rule| rule.rule).collect(),
        policies,
        suppressed,
    }
}

fn take(
    plan: &mut Plan,
    config: &Compiled,
    evaluated: &Evaluated<'_>,
    id: &ActionId,
    causes: &[&RuleMatch<'_>],
    policies: &[PolicyId],
) {
    let named = |rule: &&RuleMatch<'_>| events::Named { id: rule.rule.clone(), name: rule.name.to_owned() };
    plan.take(
        config,
        &ActionInput {
            action: id,
            event_id: event_id(evaluated, id),
            event_type: Event::AutomaticAction,
            item: evaluated.item,
            user: evaluated.user,
            at: evaluated.append_ms,
            occurred_at: evaluated.append_ms,
            policies,
            rules: causes.iter().map(named).collect(),
            hits: causes.iter().map(|rule| hit(evaluated, rule.rule, rule.version)).collect(),
            reason: None,
        },
    );
}

/// True if the rule acts and its hit is in the sample that moderators review.
fn is_sampled(evaluated: &Evaluated<'_>, it: &RuleMatch<'_>) -> bool {
    evaluated.no_reviews.is_none()
        && it.acts()
        && it.life.is_some_and(|life| life.is_sampled(it.rule, evaluated.submission_id))
}

/// Adds a review that no action asks for.
fn review(plan: &mut Plan, evaluated: &Evaluated<'_>, why: &str, hits: Vec<RuleHit>) {
    if hits.is_empty() || evaluated.no_reviews.is_some() {
        return;
    }
    plan.reviews.push(PlannedReview {
        subject: evaluated.item.clone(),
        queue: BuiltInQueue::Default.into(),
        cause: derive(IdKind::JobCause, &[plan.cause.as_bytes(), b"rules", why.as_bytes()]),
        at: evaluated.append_ms,
        rules: hits.iter().map(|hit| hit.rule.clone()).collect(),
        hits,
    });
}

fn hit(evaluated: &Evaluated<'_>, rule: &RuleId, version: &str) -> RuleHit {
    RuleHit { rule: rule.clone(), version: version.to_owned(), at: evaluated.append_ms }
}

fn union_of_policies(causes: &[&RuleMatch<'_>]) -> Vec<PolicyId> {
    let mut policies = Vec::new();
    for policy in causes.iter().flat_map(|found| found.policies) {
        if !policies.contains(policy) {
            policies.push(policy.clone());
        }
    }
    policies
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("findings have string keys only")
}
