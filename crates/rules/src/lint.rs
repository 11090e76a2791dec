//! Finds valid rules that are probably mistakes: conditions that cannot hold, live rules without effects, and duplicate
//! rules. Contradictions are found between parts of one `all` that compare the same value, so a rule without a warning may
//! still never match.

use std::collections::{HashMap, HashSet};

use tidegate_schemas::ids::TypeId;

use crate::{
    compile::Rule,
    engine::witness::Costs,
    error::Warning,
    leaves::{
        Leaf,
        constraint::{Allowed, Constraint, Subject, are_contradictory},
    },
    logic::Node,
    syntax::Status,
};

/// Returns the warnings of all rules. `unindexed` are the numbers of the unindexed rules, sorted; `everywhere` are
/// predicates with patterns that run on every text.
pub(crate) fn collect_warnings<'r>(
    rules: impl Iterator<Item = &'r Rule>,
    predicates: &[Leaf],
    unindexed: &[u32],
    everywhere: &[u32],
    costs: &Costs,
) -> Vec<Warning> {
    let pattern_predicates: HashSet<u32> = everywhere.iter().copied().collect();
    let mut warnings = Vec::new();
    let mut first_rules: HashMap<String, &str> = HashMap::new();
    for (number, rule) in (0_u32..).zip(rules) {
        let mut warn = |pointer: &str, tag: &'static str, detail: String| {
            warnings.push(Warning::new("rule", rule.head.rule.as_str(), pointer, tag, detail));
        };
        let cannot_hold = is_impossible(&rule.when, true, rule, predicates);
        if cannot_hold {
            warn(
                "/when",
                "unsatisfiable",
                "the condition can never hold: two parts contradict each other".to_owned(),
            );
        }
        if !cannot_hold && unindexed.binary_search(&number).is_ok() {
            let steps: f32 = rule.leaves.iter().map(|predicate| costs.evaluation_cost(*predicate)).sum();
            let detail = "the rule cannot be indexed, so it is evaluated for every item";
            warn("/when", "unannounced", format!("{detail}, at about {steps:.0} steps"));
        }
        let text_predicate = rule.leaves.iter().find(|predicate| pattern_predicates.contains(predicate));
        if let Some(Leaf::Text(text)) = text_predicate.map(|predicate| &predicates[*predicate as usize]) {
            let steps = text.typical_pattern_steps();
            let detail = "the pattern has no literal of three bytes, so it runs on every text";
            warn("/when", "pattern_everywhere", format!("{detail}, at about {steps:.0} steps"));
        }
        if rule.head.status == Status::Live {
            if rule.head.actions.is_empty() {
                warn(
                    "/actions",
                    "no_action",
                    "the rule is live and has no action: add one, or set it to background".to_owned(),
                );
            }
            if rule.head.policies.is_empty() {
                warn("/policies", "no_policy", "the rule is live and names no policy: add one".to_owned());
            }
        }
        if !cannot_hold {
            let first_rule = *first_rules.entry(duplicate_key(rule)).or_insert(rule.head.rule.as_str());
            if first_rule != rule.head.rule.as_str() {
                warn(
                    "/when",
                    "same_condition",
                    format!("rule \"{first_rule}\" has the same condition: archive one of them"),
                );
            }
        }
    }
    warnings
}

/// Text that is equal for duplicate rules. A rule that is tested next to another one, or replaces it after its expiry, is no
/// duplicate.
fn duplicate_key(rule: &Rule) -> String {
    let mut types: Vec<_> = rule.item_types.iter().map(TypeId::as_str).collect();
    let mut on: Vec<_> = rule.on.iter().map(|on| format!("{on:?}")).collect();
    types.sort_unstable();
    on.sort_unstable();
    let condition = normalize(&rule.when, true, rule);
    format!("{condition} {types:?} {on:?} {:?} {:?}", rule.head.status, rule.expires_at)
}

/// Condition as a text that is the same for trees that differ only in order, repetition and nesting.
fn normalize(node: &Node, positive: bool, rule: &Rule) -> String {
    fn add(node: &Node, positive: bool, conjunction: bool, rule: &Rule, parts: &mut Vec<String>) {
        match node {
            Node::All(inner) if positive == conjunction => {
                inner.iter().for_each(|node| add(node, positive, conjunction, rule, parts));
            }
            Node::Any(inner) if positive != conjunction => {
                inner.iter().for_each(|node| add(node, positive, conjunction, rule, parts));
            }
            Node::Not(inner) => add(inner, !positive, conjunction, rule, parts),
            other => parts.push(normalize(other, positive, rule)),
        }
    }
    match node {
        Node::Leaf(nth) => format!("{}{}", if positive { "" } else { "!" }, rule.leaves[*nth]),
        Node::Not(inner) => normalize(inner, !positive, rule),
        Node::All(_) | Node::Any(_) => {
            let conjunction = matches!(node, Node::All(_)) == positive;
            let mut parts = Vec::new();
            add(node, positive, conjunction, rule, &mut parts);
            parts.sort_unstable();
            parts.dedup();
            match (&parts[..], conjunction) {
                ([part], _) => part.clone(),
                (parts, true) => format!("({})", parts.join("&")),
                (several, false) => format!("({})", several.join("|")),
            }
        }
    }
}

/// True if the condition can certainly never pass, or, with `positive` false, never fail.
fn is_impossible(node: &Node, positive: bool, rule: &Rule, predicates: &[Leaf]) -> bool {
    let mut literals = Vec::new();
    if !collect_literals(node, positive, rule, predicates, &mut literals) {
        return true;
    }
    let literal_set: HashSet<_> = literals.iter().copied().collect();
    let has_opposites =
        literals.iter().any(|(predicate, positive)| literal_set.contains(&(*predicate, !positive)));
    let lint = |(predicate, positive): &(u32, bool)| predicates[*predicate as usize].lint(*positive);
    let constraints: Vec<Vec<Constraint>> = literals.iter().map(lint).collect();
    // Conditions on lists may mean different values of a list, so their constraints are compared within one condition only.
    let shared = constraints.iter().flatten().filter(|constraint| constraint.subject != Subject::OfList);
    has_opposites || constraints.iter().any(|list| contradict_in(list.iter())) || contradict_in(shared)
}

fn contradict_in<'c>(constraints: impl Iterator<Item = &'c Constraint>) -> bool {
    let mut by_subject: HashMap<&Subject, Vec<&Allowed>> = HashMap::new();
    for constraint in constraints {
        by_subject.entry(&constraint.subject).or_default().push(&constraint.allowed);
    }
    by_subject.values().any(|allowed| are_contradictory(allowed))
}

/// Collects the predicates that must all pass (`true`) or fail (`false`). Returns false if one of several alternatives must
/// hold and none can.
fn collect_literals(
    node: &Node,
    positive: bool,
    rule: &Rule,
    predicates: &[Leaf],
    literals: &mut Vec<(u32, bool)>,
) -> bool {
    let (inner, all) = match node {
        Node::Leaf(nth) => {
            literals.push((rule.leaves[*nth], positive));
            return true;
        }
        Node::Not(inner) => return collect_literals(inner, !positive, rule, predicates, literals),
        Node::All(inner) => (inner, positive),
        // `any` fails only if each of its parts fails.
        Node::Any(inner) => (inner, !positive),
    };
    if all {
        return inner.iter().all(|node| collect_literals(node, positive, rule, predicates, literals));
    }
    !inner.iter().all(|node| is_impossible(node, positive, rule, predicates))
}
