//! Builds the plan of an evaluated item; pure. `rule_gates` decides which of the matched rules act.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use serde::Serialize;
use serde_json::{Map, Value};
use tidegate_catalog::Compiled;
use tidegate_rules::{Match, OnError, RuleFailure};
use tidegate_schemas::{
    documents::Event,
    ids::{ActionId, EventId, Kind, PolicyId, RuleId, derive},
};
use tidegate_store::tables::items::plans::PlanKind;

use super::{
    ActionInput, Findings, Plan, PlannedQueue, PlannedReview,
    bounded_list::BoundedList,
    events,
    rule_gates::{self, EvaluatedSubmission, RuleMatch, event_id},
};
use crate::{
    jobs::{
        BuiltInQueue,
        priority::{self, PrioritySignals},
    },
    rules::stats::{OutcomeKind, RuleHit, RuleOutcome, Suppression},
};

/// Action in the item's row.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ListedAction<'a> {
    id: &'a ActionId,
    #[serde(skip_serializing_if = "Option::is_none")]
    event_id: Option<EventId>,
    rules: Vec<&'a RuleId>,
    /// Number of rules that `rules` omits.
    #[serde(skip_serializing_if = "events::is_zero")]
    rules_more: usize,
    policies: Vec<PolicyId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    suppressed: Option<&'static str>,
}

/// Match in the item's row.
#[derive(Serialize)]
struct ListedMatch<'m> {
    #[serde(flatten)]
    rule_match: &'m Match,
    #[serde(skip_serializing_if = "Option::is_none")]
    suppressed: Option<Suppression>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    sampled: bool,
}

/// Failure in the item's row.
#[derive(Serialize)]
struct ListedFailure<'a> {
    #[serde(flatten)]
    failure: &'a RuleFailure,
    #[serde(skip_serializing_if = "Option::is_none")]
    counts_as: Option<OnError>,
    #[serde(skip_serializing_if = "Option::is_none")]
    suppressed: Option<Suppression>,
}

pub fn plan_item(config: &Compiled, evaluated: &EvaluatedSubmission<'_>) -> Plan {
    let mut plan = Plan::empty(evaluated.org, evaluated.submission_id.0, PlanKind::Item, config.version());
    let rules = rule_gates::rule_matches(config, evaluated);
    let mut rules_by_action: BTreeMap<&ActionId, Vec<&RuleMatch<'_>>> = BTreeMap::new();
    for rule in &rules {
        for action in rule.actions {
            rules_by_action.entry(&action.id).or_default().push(rule);
        }
    }
    // The map is sorted by action, so a replay lists the actions in the same order.
    let actions: Vec<_> = rules_by_action
        .into_iter()
        .map(|(id, rules)| list_action(&mut plan, config, evaluated, id, &rules))
        .collect();
    let sampled_rules = rules.iter().filter(|rule| is_sampled(evaluated, rule));
    let sampled_hits = sampled_rules.map(|rule| rule_hit(evaluated, rule.rule, rule.version));
    add_review(&mut plan, config, evaluated, "sample", sampled_hits.collect());
    let failed_rules = rule_gates::failures_for_review(config, evaluated);
    let failed_hits = failed_rules.into_iter().map(|head| rule_hit(evaluated, &head.rule, &head.version));
    add_review(&mut plan, config, evaluated, "error", failed_hits.collect());

    // `rule_matches` lists all matches before the failures that count as matches.
    let (matches, failures) = rules.split_at(evaluated.outcome.matched.len());
    let (matched, matched_more) = list_matches(config, evaluated, matches);
    let (errored, errored_more) = list_failures(config, evaluated, failures);
    let mut omissions = evaluated.outcome.omissions();
    omissions.matched_more += matched_more;
    omissions.errored_more += errored_more;
    plan.evaluation = Some(Findings {
        evaluated_at: evaluated.append_ms,
        matched,
        errored,
        actions: to_json(&actions),
        media: to_json(&evaluated.media),
        left_out: omissions,
        user: evaluated.user.cloned(),
    });
    plan.rule_outcomes.extend(rules.iter().map(|rule| RuleOutcome {
        rule: rule.rule.clone(),
        version: rule.version.to_owned(),
        kind: rule.suppressed.map_or(OutcomeKind::Acted, OutcomeKind::Suppressed),
    }));
    plan.rule_outcomes.extend(evaluated.outcome.errored.iter().map(|failure| RuleOutcome {
        rule: failure.rule.clone(),
        version: failure.version.clone(),
        kind: OutcomeKind::Errored,
    }));
    plan
}

/// Lists matches within the limits of a stored item, acting rules first. Returns the list and the number of
/// omitted matches.
fn list_matches(
    config: &Compiled,
    evaluated: &EvaluatedSubmission<'_>,
    matches: &[RuleMatch<'_>],
) -> (String, usize) {
    let mut list = BoundedList::new(config.plan().limits());
    // Acting rules first, so that the omitted matches are those without effects.
    for acting in [true, false] {
        let selected = matches.iter().enumerate().filter(|(_, rule)| rule.acts() == acting);
        for (position, rule) in selected {
            if list.is_full() {
                break;
            }
            let full_match = &evaluated.outcome.matched[position];
            let match_json = |rule_match: &Match| {
                to_json(&ListedMatch {
                    rule_match,
                    suppressed: rule.suppressed,
                    sampled: is_sampled(evaluated, rule),
                })
            };
            list.add(position, match_json(full_match), || match_json(&full_match.shortened()));
        }
    }
    list.finish(matches.len())
}

/// Lists failures in the same way, those with a consequence first.
fn list_failures(
    config: &Compiled,
    evaluated: &EvaluatedSubmission<'_>,
    failures: &[RuleMatch<'_>],
) -> (String, usize) {
    let suppression_by_rule: HashMap<&RuleId, Option<Suppression>> =
        failures.iter().map(|failure| (failure.rule, failure.suppressed)).collect();
    let mut list = BoundedList::new(config.plan().limits());
    let errored = &evaluated.outcome.errored;
    for has_consequence in [true, false] {
        for (position, failure) in errored.iter().enumerate() {
            if list.is_full() {
                break;
            }
            let counts_as = rule_gates::failure_consequence(config, failure);
            if counts_as.is_some() == has_consequence {
                let suppressed = suppression_by_rule.get(&failure.rule).copied().flatten();
                let entry = to_json(&ListedFailure { failure, counts_as, suppressed });
                // A failure has no shorter form, because it has no explanation.
                list.add(position, entry.clone(), || entry);
            }
        }
    }
    list.finish(errored.len())
}

/// Adds an action to the plan, or lists the reason why it is not taken. `rules` are the rules that ask for it.
fn list_action<'a>(
    plan: &mut Plan,
    config: &Compiled,
    evaluated: &EvaluatedSubmission<'_>,
    id: &'a ActionId,
    rules: &[&RuleMatch<'a>],
) -> ListedAction<'a> {
    let acting = rules.iter().any(|rule| rule.acts());
    // Only the strongest reason is listed, with the rules to which it applies. One acting rule is enough to take
    // the action.
    let reason = if acting { None } else { rules.iter().filter_map(|rule| rule.suppressed).min() };
    let causes: Vec<_> = rules.iter().filter(|rule| rule.suppressed == reason).copied().collect();
    let policies = union_of_policies(&causes);
    let suppressed = match reason {
        Some(why) => Some(why.as_str()),
        None => rule_gates::action_refusal(config, evaluated, id)
            .or_else(|| evaluated.is_done(id).then_some("duplicate")),
    };
    // An action can have thousands of causes and each is stored several times, so only the first are named.
    let (named_rules, omitted_rules) =
        causes.split_at(causes.len().min(config.plan().limits().stored_matches));
    if suppressed.is_none() {
        take_action(plan, config, evaluated, id, (&causes, named_rules.len()), &policies);
    }
    ListedAction {
        id,
        event_id: suppressed.is_none().then(|| event_id(evaluated, id)),
        rules: named_rules.iter().map(|rule| rule.rule).collect(),
        rules_more: omitted_rules.len(),
        policies,
        suppressed,
    }
}

fn take_action(
    plan: &mut Plan,
    config: &Compiled,
    evaluated: &EvaluatedSubmission<'_>,
    id: &ActionId,
    (causes, named_causes): (&[&RuleMatch<'_>], usize),
    policies: &[PolicyId],
) {
    let (parameters, conflicts) = merge_parameters(id, causes, config.plan().limits().stored_matches);
    let (causes, omitted) = causes.split_at(named_causes);
    let rule_ref =
        |rule: &&RuleMatch<'_>| events::NamedRef { id: rule.rule.clone(), name: rule.name.to_owned() };
    plan.add_action(
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
            rules: causes.iter().map(rule_ref).collect(),
            rules_more: omitted.len(),
            hits: causes.iter().map(|rule| rule_hit(evaluated, rule.rule, rule.version)).collect(),
            reason: None,
            parameters,
            conflicts,
            decision: None,
            is_child_safety: false,
            custom_values: &Map::new(),
            actor: None,
            reported_items: &[],
        },
    );
}

/// Merges the action's parameters from several rules. The value of the rule with the lowest id wins; other values are
/// returned as conflicts, up to `most_conflicts`.
fn merge_parameters(
    action: &ActionId,
    causes: &[&RuleMatch<'_>],
    most_conflicts: usize,
) -> (Map<String, Value>, Vec<events::ParameterConflict>) {
    let mut uses: Vec<_> = causes
        .iter()
        .flat_map(|rule| rule.actions.iter().map(move |action_use| (rule.rule, action_use)))
        .filter(|(_, action_use)| action_use.id == *action && !action_use.params.is_empty())
        .collect();
    uses.sort_by_key(|(rule, _)| *rule);
    let (mut merged, mut conflicts) = (Map::new(), Vec::new());
    for (rule, action_use) in uses {
        for (name, value) in &action_use.params {
            match merged.get(name) {
                None => {
                    merged.insert(name.clone(), value.clone());
                }
                Some(first) if first != value && conflicts.len() < most_conflicts => {
                    let (parameter, rule, value) = (name.clone(), rule.clone(), value.clone());
                    conflicts.push(events::ParameterConflict { parameter, rule, value });
                }
                Some(_) => {}
            }
        }
    }
    (merged, conflicts)
}

/// True if the rule acts and its hit falls into the sample for human review.
fn is_sampled(evaluated: &EvaluatedSubmission<'_>, rule: &RuleMatch<'_>) -> bool {
    evaluated.review_suppression.is_none()
        && rule.acts()
        && rule
            .enforcement
            .is_some_and(|enforcement| enforcement.is_sampled(rule.rule, evaluated.submission_id))
}

/// Adds a review that rules ask for without an action: a sample, or a failed rule.
fn add_review(
    plan: &mut Plan,
    config: &Compiled,
    evaluated: &EvaluatedSubmission<'_>,
    cause_name: &str,
    mut hits: Vec<RuleHit>,
) {
    if hits.is_empty() || evaluated.review_suppression.is_some() {
        return;
    }
    // Each hit is stored in the plan and in the job's cause, so their number is bounded.
    hits.truncate(config.plan().limits().stored_matches);
    let policies = hits.iter().filter_map(|hit| config.rule(&hit.rule)).flat_map(|rule| &rule.policies);
    let policies: BTreeSet<_> = policies.cloned().collect();
    plan.reviews.push(PlannedReview {
        subject: evaluated.item.clone(),
        user: evaluated.user.cloned(),
        queue: PlannedQueue::Review(BuiltInQueue::Default.into()),
        // Derived from the submission, so that a replay adds the same cause to the job.
        cause: derive(Kind::JobCause, &[plan.cause.as_bytes(), b"rules", cause_name.as_bytes()]),
        at: evaluated.append_ms,
        rules: hits.iter().map(|hit| hit.rule.clone()).collect(),
        signals: PrioritySignals {
            severity: priority::highest_severity(config, &policies),
            ..PrioritySignals::default()
        },
        policies: policies.into_iter().collect(),
        hits,
        routed_by: None,
        threshold: None,
        is_routable: true,
    });
}

fn rule_hit(evaluated: &EvaluatedSubmission<'_>, rule: &RuleId, version: &str) -> RuleHit {
    RuleHit { rule: rule.clone(), version: version.to_owned(), at: evaluated.append_ms }
}

fn union_of_policies(causes: &[&RuleMatch<'_>]) -> Vec<PolicyId> {
    let mut seen_policies = HashSet::new();
    let policies = causes.iter().flat_map(|rule| rule.policies);
    policies.filter(|policy| seen_policies.insert(*policy)).cloned().collect()
}

fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("findings have string keys only")
}
