//! Chooses for each rule the predicates of which one must pass before the rule can, and guesses what they cost.
//!
//! A wrong guess costs time and never changes an outcome.

use crate::{compile::Rule, leaves::Leaf, logic::Node};

/// A predicate, and which of the indexed rules are its own. Each index entry holds a copy: another place to look
/// at would be in far memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Witness {
    pub(crate) predicate: u32,
    /// A value that was looked up proves it; nothing is left to evaluate.
    pub(crate) proved: bool,
    pub(crate) from: u32,
    pub(crate) to: u32,
}

/// Guessed costs by predicate: how often an item meets it, and what it takes to evaluate it.
#[derive(Debug)]
pub(crate) struct Costs {
    witness: Vec<Option<f32>>,
    evaluating: Vec<f32>,
}

impl Costs {
    pub(crate) fn new(predicates: &[Leaf]) -> Self {
        Self {
            witness: predicates.iter().map(Leaf::witness).collect(),
            evaluating: predicates.iter().map(Leaf::cost).collect(),
        }
    }

    /// Steps that it takes to evaluate a predicate.
    pub(crate) fn of(&self, predicate: u32) -> f32 {
        self.evaluating[predicate as usize]
    }
}

/// The predicates of which one must pass; `None` if the rule may match without any that can be indexed.
pub(crate) fn of(rule: &Rule, costs: &Costs) -> Option<Vec<u32>> {
    let (_, mut chosen) = choose(&rule.when, true, rule, costs)?;
    chosen.sort_unstable();
    chosen.dedup();
    Some(chosen)
}

fn choose(node: &Node, positive: bool, rule: &Rule, costs: &Costs) -> Option<(f32, Vec<u32>)> {
    let (inner, all) = match node {
        Node::Leaf(nth) => {
            let predicate = rule.leaves[*nth];
            let cost = costs.witness[predicate as usize].filter(|_| positive)?;
            return Some((cost, vec![predicate]));
        }
        Node::Not(inner) => return choose(inner, !positive, rule, costs),
        // A condition fails with `all` if one of its parts does, and with `any` if each does.
        Node::All(inner) => (inner, positive),
        Node::Any(inner) => (inner, !positive),
    };
    let mut choices = inner.iter().map(|node| choose(node, positive, rule, costs));
    if all {
        return choices.flatten().min_by(|(a, _), (b, _)| a.total_cmp(b));
    }
    choices.try_fold((0.0, Vec::new()), |(sum, mut chosen), choice| {
        let (cost, more) = choice?;
        chosen.extend(more);
        Some((sum + cost, chosen))
    })
}
