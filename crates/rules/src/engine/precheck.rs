//! Condition of a rule in the order in which it is cheapest to refute. A rule that may hold is then evaluated in document
//! order.

use super::{Run, witness::Costs};
use crate::{compile::Rule, limits::OutOfSteps, logic::Node};

#[derive(Debug)]
pub(crate) enum Precheck {
    /// Predicate, and true if it must pass, or false if it must fail.
    One(u32, bool),
    All(Box<[Precheck]>),
    Any(Box<[Precheck]>),
}

impl Precheck {
    pub(crate) fn new(rule: &Rule, costs: &Costs) -> Self {
        build(&rule.when, true, rule, costs).1
    }

    pub(crate) fn may_hold(&self, run: &mut Run<'_, '_>) -> Result<bool, OutOfSteps> {
        match self {
            Self::One(predicate, passes) => {
                let mask = run.mask(*predicate)?;
                Ok(if *passes { mask.may_pass() } else { mask.not().may_pass() })
            }
            Self::All(parts) => {
                for part in parts {
                    if !part.may_hold(run)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Self::Any(parts) => {
                for part in parts {
                    if part.may_hold(run)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
        }
    }
}

/// Moves negations down to the predicates: a negated `all` becomes `any` of the negated parts, and the reverse.
fn build(node: &Node, positive: bool, rule: &Rule, costs: &Costs) -> (f32, Precheck) {
    let (inner, all) = match node {
        Node::Leaf(nth) => {
            let predicate = rule.leaves[*nth];
            return (costs.evaluation_cost(predicate), Precheck::One(predicate, positive));
        }
        Node::Not(inner) => return build(inner, !positive, rule, costs),
        Node::All(inner) => (inner, positive),
        Node::Any(inner) => (inner, !positive),
    };
    let mut parts: Vec<_> = inner.iter().map(|node| build(node, positive, rule, costs)).collect();
    // The cheapest part runs first, because it may make the others unnecessary.
    parts.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let cost = parts.iter().map(|(cost, _)| cost).sum();
    let mut parts: Vec<_> = parts.into_iter().map(|(_, part)| part).collect();
    match parts.pop() {
        Some(single_part) if parts.is_empty() => (cost, single_part),
        last_part => {
            parts.extend(last_part);
            (cost, if all { Precheck::All(parts.into()) } else { Precheck::Any(parts.into()) })
        }
    }
}
