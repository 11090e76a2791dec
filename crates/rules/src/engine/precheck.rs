//! A rule's condition in the order in which it is the cheapest to refute.
//!
//! It only says whether the rule could match; what it comes to is decided in the order of its document.

use super::{Run, witness::Costs};
use crate::{compile::Rule, limits::OutOfSteps, logic::Node};

#[derive(Debug)]
pub(crate) enum Precheck {
    /// A predicate, and whether it has to pass or to fail.
    One(u32, bool),
    All(Box<[Precheck]>),
    Any(Box<[Precheck]>),
}

impl Precheck {
    pub(crate) fn of(rule: &Rule, costs: &Costs) -> Self {
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

/// `Not` is pushed down to the predicates: a condition fails as a whole if its parts do the right way round.
fn build(node: &Node, positive: bool, rule: &Rule, costs: &Costs) -> (f32, Precheck) {
    let (inner, all) = match node {
        Node::Leaf(nth) => {
            let predicate = rule.leaves[*nth];
            return (costs.of(predicate), Precheck::One(predicate, positive));
        }
        Node::Not(inner) => return build(inner, !positive, rule, costs),
        Node::All(inner) => (inner, positive),
        Node::Any(inner) => (inner, !positive),
    };
    let mut parts: Vec<_> = inner.iter().map(|node| build(node, positive, rule, costs)).collect();
    parts.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let cost = parts.iter().map(|(cost, _)| cost).sum();
    let mut parts: Vec<_> = parts.into_iter().map(|(_, part)| part).collect();
    match parts.pop() {
        Some(only) if parts.is_empty() => (cost, only),
        last => {
            parts.extend(last);
            (cost, if all { Precheck::All(parts.into()) } else { Precheck::Any(parts.into()) })
        }
    }
}
