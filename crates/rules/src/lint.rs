//! Finds what is allowed in rules and hardly meant: conditions that cannot hold, rules that say the same twice.
//!
//! It judges each rule as it was compiled, and refuses none.

mod claims;
mod coarser;
mod domain;
mod patterns;
mod possible;
mod subsumed;
mod tree;

use std::collections::{HashMap, HashSet};

use tidegate_schemas::ids::TypeId;

use crate::{
    compile::{Node, Rule},
    engine::witness::{Costs, on_usual_text},
    faults::Warning,
    form::Status,
    leaves::Leaf,
};

use self::{
    possible::possible,
    tree::{Atoms, Tree},
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
    let mut atoms = Atoms::default();
    let mut trees = Vec::with_capacity(rules.len());
    let mut same = HashSet::new();
    let both = rules.iter().map(|rule| {
        let of = |positive: bool, atoms: &mut Atoms| tree(&rule.when, positive, rule, predicates, atoms);
        (of(true, &mut atoms), of(false, &mut atoms))
    });
    let both: Vec<_> = both.collect();
    atoms.relate();
    for ((number, rule), (holds, fails)) in (0_u32..).zip(&rules).zip(both) {
        let mut warn = |pointer: &str, tag: &'static str, detail: String| {
            warnings.push(Warning::new("rule", rule.head.rule.as_str(), pointer, tag, detail));
        };
        let never = !possible(&holds, &atoms, predicates);
        if never {
            warn("/when", "unsatisfiable", "the condition can never hold".to_owned());
        } else if !possible(&fails, &atoms, predicates) {
            let detail = "the condition can never fail: it holds wherever there is something to compare";
            warn("/when", "always_true", detail.to_owned());
        }
        if !never && unannounced.binary_search(&number).is_ok() {
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
        if !never {
            let scope = scope(rule, &holds);
            match known.get(scope.as_str()) {
                Some(first) => {
                    warn("/when", "same_condition", format!("rule {first} has the same condition"));
                    same.insert((number as usize, (*first).to_owned()));
                }
                None => {
                    known.insert(scope, rule.head.rule.as_str());
                }
            }
        }
        trees.push((!never).then_some(holds));
    }
    // What is the same is said above.
    let found = subsumed::look(&rules, &trees, &atoms.coarser);
    let warn = |nth: usize, detail: String| {
        Warning::new("rule", rules[nth].head.rule.as_str(), "/when", "subsumed", detail)
    };
    for (nth, other) in found.pairs {
        let other = rules[other].head.rule.as_str();
        if !same.contains(&(nth, other.to_owned())) {
            let detail = format!("whatever it matches, rule {other} matches too, and leads to as much");
            warnings.push(warn(nth, detail));
        }
    }
    if !found.complete {
        let detail =
            "too many rules are alike to compare all of them: some that add nothing may not be named";
        warnings.extend((!rules.is_empty()).then(|| warn(0, detail.to_owned())));
    }
    warnings
}

/// What rules with the same condition have in common: one that is tried beside another, or takes over from it, says
/// nothing twice.
fn scope(rule: &Rule, tree: &Tree) -> String {
    let mut types: Vec<_> = rule.item_types.iter().map(TypeId::as_str).collect();
    let mut on: Vec<_> = rule.on.iter().map(|on| format!("{on:?}")).collect();
    types.sort_unstable();
    on.sort_unstable();
    format!("{tree:?} {types:?} {on:?} {:?} {:?}", rule.head.status, rule.expires_at)
}

/// The condition without its notation, or what it is to fail.
fn tree(node: &Node, positive: bool, rule: &Rule, predicates: &[Leaf], atoms: &mut Atoms) -> Tree {
    let (inner, all) = match node {
        Node::Leaf(nth) => {
            let predicate = rule.leaves[*nth] as usize;
            return claims::tree(predicate, &predicates[predicate], positive, atoms);
        }
        Node::Not(inner) => return tree(inner, !positive, rule, predicates, atoms),
        Node::All(inner) => (inner, positive),
        Node::Any(inner) => (inner, !positive),
    };
    let parts: Vec<_> = inner.iter().map(|node| tree(node, positive, rule, predicates, atoms)).collect();
    if all { Tree::all(parts) } else { Tree::any(parts) }
}
