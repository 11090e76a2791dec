//! Makes the plan of an evaluated item; pure. `rule_gates` says which of the matched rules act.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Serialize;
use serde_json::{Map, Value};
use tidegate_catalog::Compiled;
use tidegate_rules::{Match, OnError, RuleFailure};
use tidegate_schemas::{
    documents::Event,
    ids::{ActionId, EventId, Kind as IdKind, PolicyId, RuleId, derive},
};

use super::{
    ActionInput, Findings, Kind, Plan, PlannedQueue, PlannedReview,
    bounded_list::BoundedList,
    events,
    rule_gates::{self, Evaluated, RuleMatch, event_id},
};
use crate::{
    jobs::BuiltInQueue,
    priority::{self, Signals},
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
    /// Rules beyond those listed.
    #[serde(skip_serializing_if = "events::is_zero")]
    rules_more: usize,
    policies: Vec<PolicyId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    suppressed: Option<&'static str>,
}

/// A match as the item's row lists it.
#[derive(Serialize)]
struct ListedMatch<'m> {
    #[serde(flatten)]
    found: &'m Match,
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
    review(&mut plan, config, evaluated, "sample", sampled);
    let failed = rule_gates::for_review(config, evaluated);
    let failed = failed.into_iter().map(|head| hit(evaluated, &head.rule, &head.version));
    review(&mut plan, config, evaluated, "error", failed.collect());

    let (matches, failures) = found.split_at(evaluated.outcome.matched.len());
    let (matched, matched_more) = list_matches(config, evaluated, matches);
    let (errored, errored_more) = list_failures(config, evaluated, failures);
    let mut left_out = evaluated.outcome.left_out();
    left_out.matched_more += matched_more;
    left_out.errored_more += errored_more;
    plan.evaluation = Some(Findings {
        evaluated_at: evaluated.append_ms,
        matched,
        errored,
        actions: json(&actions),
        media: json(&evaluated.media),
        left_out,
        user: evaluated.user.cloned(),
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

/// Lists matches within the bounds of a stored item, those that act first, and counts the others.
fn list_matches(config: &Compiled, evaluated: &Evaluated<'_>, matches: &[RuleMatch<'_>]) -> (String, usize) {
    let mut list = BoundedList::new(config.plan().limits());
    for acting in [true, false] {
        let some = matches.iter().enumerate().filter(|(_, it)| it.acts() == acting);
        for (place, it) in some {
            if list.is_full() {
                break;
            }
            let found = &evaluated.outcome.matched[place];
            let listed = |found: &Match| {
                json(&ListedMatch { found, suppressed: it.suppressed, sampled: is_sampled(evaluated, it) })
            };
            list.add(place, listed(found), || listed(&found.shortened()));
        }
    }
    list.finish(matches.len())
}

/// Lists failures in the same way, those that count as something first.
fn list_failures(
    config: &Compiled,
    evaluated: &Evaluated<'_>,
    failures: &[RuleMatch<'_>],
) -> (String, usize) {
    let suppressed: HashMap<&RuleId, Option<Suppressed>> =
        failures.iter().map(|it| (it.rule, it.suppressed)).collect();
    let mut list = BoundedList::new(config.plan().limits());
    let errored = &evaluated.outcome.errored;
    for counting in [true, false] {
        for (place, failed) in errored.iter().enumerate() {
            if list.is_full() {
                break;
            }
            let counts_as = rule_gates::counts_as(config, failed);
            if counts_as.is_some() == counting {
                let suppressed = suppressed.get(&failed.rule).copied().flatten();
                let listed = json(&ListedFailure { failed, counts_as, suppressed });
                // A failure has no explanation to leave out.
                list.add(place, listed.clone(), || listed);
            }
        }
    }
    list.finish(errored.len())
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
    // An action may have thousands of causes, and each is stored several times: the first are named.
    let (named, more) = causes.split_at(causes.len().min(config.plan().limits().stored_matches));
    if suppressed.is_none() {
        take(plan, config, evaluated, id, (&causes, named.len()), &policies);
    }
    ListedAction {
        id,
        event_id: suppressed.is_none().then(|| event_id(evaluated, id)),
        rules: named.iter().map(|rule| rule.rule).collect(),
        rules_more: more.len(),
        policies,
        suppressed,
    }
}

fn take(
    plan: &mut Plan,
    config: &Compiled,
    evaluated: &Evaluated<'_>,
    id: &ActionId,
    (causes, named_causes): (&[&RuleMatch<'_>], usize),
    policies: &[PolicyId],
) {
    let (parameters, conflicts) = parameters(id, causes, config.plan().limits().stored_matches);
    let (causes, more) = causes.split_at(named_causes);
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
            rules_more: more.len(),
            hits: causes.iter().map(|rule| hit(evaluated, rule.rule, rule.version)).collect(),
            reason: None,
            parameters,
            conflicts,
            decision: None,
            is_child_safety: false,
            about: &Map::new(),
            actor: None,
            reported_items: &[],
        },
    );
}

/// Merges the parameters that rules give to an action. The rule with the lowest id decides, and the different values of
/// the others are listed, up to a limit.
fn parameters(
    action: &ActionId,
    causes: &[&RuleMatch<'_>],
    most_conflicts: usize,
) -> (Map<String, Value>, Vec<events::Conflict>) {
    let mut given: Vec<_> = causes
        .iter()
        .flat_map(|rule| rule.actions.iter().map(move |used| (rule.rule, used)))
        .filter(|(_, used)| used.id == *action && !used.params.is_empty())
        .collect();
    given.sort_by_key(|(rule, _)| *rule);
    let (mut merged, mut conflicts) = (Map::new(), Vec::new());
    for (rule, used) in given {
        for (name, value) in &used.params {
            match merged.get(name) {
                None => {
                    merged.insert(name.clone(), value.clone());
                }
                Some(first) if first != value && conflicts.len() < most_conflicts => {
                    let (parameter, rule, value) = (name.clone(), rule.clone(), value.clone());
                    conflicts.push(events::Conflict { parameter, rule, value });
                }
                Some(_) => {}
            }
        }
    }
    (merged, conflicts)
}

/// True if the rule acts and its hit is in the sample that moderators review.
fn is_sampled(evaluated: &Evaluated<'_>, it: &RuleMatch<'_>) -> bool {
    evaluated.no_reviews.is_none()
        && it.acts()
        && it.life.is_some_and(|life| life.is_sampled(it.rule, evaluated.submission_id))
}

/// Adds a review that no action asks for.
fn review(plan: &mut Plan, config: &Compiled, evaluated: &Evaluated<'_>, why: &str, mut hits: Vec<RuleHit>) {
    if hits.is_empty() || evaluated.no_reviews.is_some() {
        return;
    }
    hits.truncate(config.plan().limits().stored_matches);
    let policies = hits.iter().filter_map(|hit| config.rule(&hit.rule)).flat_map(|rule| &rule.policies);
    plan.reviews.push(PlannedReview {
        subject: evaluated.item.clone(),
        user: evaluated.user.cloned(),
        queue: PlannedQueue::Review(BuiltInQueue::Default.into()),
        cause: derive(IdKind::JobCause, &[plan.cause.as_bytes(), b"rules", why.as_bytes()]),
        at: evaluated.append_ms,
        rules: hits.iter().map(|hit| hit.rule.clone()).collect(),
        signals: Signals { severity: priority::severity(config, policies), ..Signals::default() },
        hits,
        routed_by: None,
        threshold: None,
        is_routable: true,
    });
}

fn hit(evaluated: &Evaluated<'_>, rule: &RuleId, version: &str) -> RuleHit {
    RuleHit { rule: rule.clone(), version: version.to_owned(), at: evaluated.append_ms }
}

fn union_of_policies(causes: &[&RuleMatch<'_>]) -> Vec<PolicyId> {
    let mut known = HashSet::new();
    let all = causes.iter().flat_map(|found| found.policies);
    all.filter(|policy| known.insert(*policy)).cloned().collect()
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("findings have string keys only")
}
