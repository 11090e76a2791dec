//! Finds what is allowed in rules and hardly meant: conditions that cannot hold, rules that say the same twice.
//!
//! It judges each rule as it was compiled, and refuses none.

mod subsumed;

use std::collections::{HashMap, HashSet};

use tidegate_schemas::ids::TypeId;

use crate::{
    compile::{Node, Rule},
    engine::witness::{Costs, on_usual_text},
    faults::Warning,
    form::Status,
    leaves::{Leaf, Sought},
};

/// Warnings for all rules; `unannounced` are those that nothing in an item announces, `everywhere` predicates with
/// patterns that run on every text, so that they announce rules.
pub(crate) fn look<'r>(
    rules: impl Iterator<Item = &'r Rule>,
    predicates: &[Leaf],
    unannounced: &[u32],
    everywhere: &[u32],
    costs: &Costs,
) -> Vec<Warning> {
    let rules: Vec<&Rule> = rules.collect();
    let everywhere: HashSet<u32> = everywhere.iter().copied().collect();
    let mut warnings = Vec::new();
    let mut known: HashMap<String, &str> = HashMap::new();
    for (number, rule) in (0_u32..).zip(&rules) {
        let mut warn = |pointer: &str, tag: &'static str, detail: String| {
            warnings.push(Warning::new("rule", rule.head.rule.as_str(), pointer, tag, detail));
        };
        if impossible(&rule.when, true, rule, predicates) {
            warn("/when", "unsatisfiable", "the condition can never hold".to_owned());
        } else if unannounced.binary_search(&number).is_ok() {
            let steps: f32 = rule.leaves.iter().map(|predicate| costs.judging(*predicate)).sum();
            let detail = "nothing that an item must hold announces the rule, so it is judged for every item";
            warn("/when", "unannounced", format!("{detail}, at about {steps:.0} steps"));
        }
        let runs = rule.leaves.iter().find(|predicate| everywhere.contains(predicate));
        if let Some(Leaf::Text(text)) = runs.map(|predicate| &predicates[*predicate as usize]) {
            let steps = on_usual_text(text);
            let detail = "the pattern holds no literal of three bytes, so it runs on every text";
            warn("/when", "pattern_everywhere", format!("{detail}, at about {steps:.0} steps"));
        }
        if rule.head.status == Status::Live {
            if rule.head.actions.is_empty() {
                warn("/actions", "no_action", "the rule is live and has no action".to_owned());
            }
            if rule.head.policies.is_empty() {
                warn("/policies", "no_policy", "the rule is live and names no policy".to_owned());
            }
        }
        let same = scope(rule);
        match known.get(same.as_str()) {
            Some(first) => warn("/when", "same_condition", format!("rule {first} has the same condition")),
            None => {
                known.insert(same, rule.head.rule.as_str());
            }
        }
    }
    // What is the same is said above.
    let found = subsumed::look(&rules, predicates);
    let warn = |nth: usize, detail: String| {
        Warning::new("rule", rules[nth].head.rule.as_str(), "/when", "subsumed", detail)
    };
    for (nth, other) in found.pairs {
        let other = rules[other];
        let never = impossible(&rules[nth].when, true, rules[nth], predicates);
        if !never && known.get(&scope(rules[nth])) != Some(&other.head.rule.as_str()) {
            let other = &other.head.rule;
            warnings.push(warn(
                nth,
                format!("whatever it matches, rule {other} matches too, and leads to as much"),
            ));
        }
    }
    if !found.complete {
        let detail =
            "too many rules are alike to compare all of them: some that add nothing may not be named";
        warnings.extend((!rules.is_empty()).then(|| warn(0, detail.to_owned())));
    }
    warnings
}

/// What rules with the same condition have in common.
fn scope(rule: &Rule) -> String {
    let mut types: Vec<_> = rule.item_types.iter().map(TypeId::as_str).collect();
    types.sort_unstable();
    format!("{:?} {:?} {types:?} {:?}", rule.when, rule.leaves, rule.on)
}

/// Whether a condition can be seen never to hold (or never to fail, if not `positive`).
fn impossible(node: &Node, positive: bool, rule: &Rule, predicates: &[Leaf]) -> bool {
    let (inner, all) = match node {
        Node::Leaf(nth) => return positive && empty(&predicates[rule.leaves[*nth] as usize]),
        Node::Not(inner) => return impossible(inner, !positive, rule, predicates),
        Node::All(inner) => (inner, positive),
        Node::Any(inner) => (inner, !positive),
    };
    let mut each = inner.iter().map(|node| impossible(node, positive, rule, predicates));
    if !all {
        return each.all(|impossible| impossible);
    }
    if each.any(|impossible| impossible) {
        return true;
    }
    let mut literals = Vec::new();
    inner.iter().for_each(|node| together(node, positive, rule, &mut literals));
    literals.iter().any(|(predicate, passes)| literals.contains(&(*predicate, !passes)))
        || contradictory(
            literals.iter().filter(|(_, passes)| *passes).map(|(predicate, _)| *predicate),
            predicates,
        )
}

/// The leaves that must all pass, or fail, for the node to hold.
fn together(node: &Node, positive: bool, rule: &Rule, literals: &mut Vec<(u32, bool)>) {
    match node {
        Node::Leaf(nth) => literals.push((rule.leaves[*nth], positive)),
        Node::Not(inner) => together(inner, !positive, rule, literals),
        Node::All(inner) if positive => inner.iter().for_each(|node| together(node, true, rule, literals)),
        Node::Any(inner) if !positive => inner.iter().for_each(|node| together(node, false, rule, literals)),
        Node::All(_) | Node::Any(_) => {}
    }
}

/// Whether some of these cannot pass together, because a field holds one value and they ask for different ones.
fn contradictory(passing: impl Iterator<Item = u32>, predicates: &[Leaf]) -> bool {
    let mut by_slot: HashMap<usize, Vec<Sought<'_>>> = HashMap::new();
    for predicate in passing {
        if let Leaf::Field(field) = &predicates[predicate as usize]
            && field.is_single()
            && let Some(sought) = field.sought()
        {
            let known = by_slot.entry(field.slot()).or_default();
            if known.iter().any(|other| other.excludes(&sought)) {
                return true;
            }
            known.push(sought);
        }
    }
    false
}

/// A range with its ends the wrong way round.
fn empty(leaf: &Leaf) -> bool {
    match leaf {
        Leaf::Field(field) => match field.sought() {
            Some(Sought::Ranges(ranges)) => ranges.iter().all(|(low, high)| low > high),
            _ => false,
        },
        Leaf::Score(score) => score.empty(),
        Leaf::Geo(geo) => geo.size() == 0,
        Leaf::Domain(domain) => domain.size() == 0,
        Leaf::Text(text) => text.needles.len() < text.needed,
        Leaf::Formula(_) | Leaf::Strikes(_) | Leaf::Count(_) | Leaf::Media(_) => false,
    }
}
