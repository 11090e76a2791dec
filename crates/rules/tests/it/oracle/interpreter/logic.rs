//! Evaluates a tree of conditions by every combination of the possible outcomes of its leaves.

use ConditionResult::{Errored as Failing, Failed, Inapplicable, Passed, Skipped};
use tidegate_rules::{
    AllExplained, ConditionResult, Explained, NotExplained, RuleExplained,
    syntax::{Condition, Rule},
};
use tidegate_schemas::ids::RuleId;

/// Outcomes that are still possible.
pub(super) type Possible = Vec<ConditionResult>;

/// Condition of a rule that another one uses.
pub(super) fn condition_of<'r>(rules: &'r [Rule], key: &RuleId) -> &'r Condition {
    &rules.iter().find(|rule| rule.key == *key).unwrap().when
}

/// Possible outcomes of a tree. A part that decides it ends the walk.
pub(super) fn walk(
    rules: &[Rule],
    condition: &Condition,
    next: &mut usize,
    leaf: &mut impl FnMut(usize) -> Possible,
) -> Possible {
    let (inner, deciding) = match condition {
        Condition::All(inner) => (inner, Failed),
        Condition::Any(inner) => (inner, Passed),
        Condition::Expr(inner) => return walk(rules, inner, next, leaf),
        Condition::Rule(key) => return walk(rules, condition_of(rules, key), next, leaf),
        Condition::Not(inner) => {
            return walk(rules, inner, next, leaf).into_iter().map(negated).collect();
        }
        _ => {
            *next += 1;
            return leaf(*next - 1);
        }
    };
    let mut possible = vec![negated(deciding)];
    for condition in inner {
        if possible == [deciding] {
            *next += count(rules, condition);
            continue;
        }
        let with = walk(rules, condition, next, leaf);
        let mut combined = Vec::new();
        for a in &possible {
            for b in &with {
                let both = stronger(*a, *b, deciding);
                if !combined.contains(&both) {
                    combined.push(both);
                }
            }
        }
        possible = combined;
    }
    possible
}

fn count(rules: &[Rule], condition: &Condition) -> usize {
    match condition {
        Condition::All(inner) | Condition::Any(inner) => inner.iter().map(|inner| count(rules, inner)).sum(),
        Condition::Not(inner) | Condition::Expr(inner) => count(rules, inner),
        Condition::Rule(key) => count(rules, condition_of(rules, key)),
        _ => 1,
    }
}

fn negated(verdict: ConditionResult) -> ConditionResult {
    match verdict {
        Passed => Failed,
        Failed => Passed,
        other => other,
    }
}

/// The deciding outcome, else errored, else inapplicable, else the opposite of the deciding one.
fn stronger(a: ConditionResult, b: ConditionResult, deciding: ConditionResult) -> ConditionResult {
    let order = [deciding, Skipped, Failing, Inapplicable];
    order.into_iter().find(|verdict| a == *verdict || b == *verdict).unwrap_or_else(|| negated(deciding))
}

pub(super) fn tree(
    rules: &[Rule],
    condition: &Condition,
    leaves: &mut impl Iterator<Item = Explained>,
) -> Explained {
    let (inner, deciding) = match condition {
        Condition::All(inner) => (inner, Failed),
        Condition::Any(inner) => (inner, Passed),
        Condition::Expr(inner) => return tree(rules, inner, leaves),
        Condition::Rule(key) => {
            let of = Box::new(tree(rules, condition_of(rules, key), leaves));
            return Explained::Rule(RuleExplained { outcome: of.outcome(), key: key.clone(), of });
        }
        Condition::Not(inner) => {
            let of = Box::new(tree(rules, inner, leaves));
            return Explained::Not(NotExplained { outcome: negated(of.outcome()), of });
        }
        _ => return leaves.next().unwrap(),
    };
    let of: Vec<_> = inner.iter().map(|condition| tree(rules, condition, leaves)).collect();
    let outcome = of.iter().map(Explained::outcome).fold(negated(deciding), |a, b| stronger(a, b, deciding));
    let node = AllExplained { outcome, of };
    if deciding == Failed { Explained::All(node) } else { Explained::Any(node) }
}
