//! Chooses witnesses: predicates of which one must pass before a rule can. The costs are estimates; a wrong one costs time
//! and never changes an outcome.

use crate::{compile::Rule, leaves::Leaf, logic::Node};

/// Predicate with the range of its indexed rules. Each index entry holds a copy, because a reference would cost a cache
/// miss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Witness {
    pub(crate) predicate: u32,
    /// True if a looked-up value proves the predicate, so that it needs no evaluation.
    pub(crate) is_proved: bool,
    pub(crate) from: u32,
    pub(crate) to: u32,
}

/// Estimated costs by predicate.
#[derive(Debug)]
pub(crate) struct Costs {
    /// Estimated share of items that meet the predicate. `None` if it cannot be a witness.
    item_shares: Vec<Option<f32>>,
    /// Steps of one evaluation.
    evaluation_steps: Vec<f32>,
}

impl Costs {
    pub(crate) fn new(predicates: &[Leaf]) -> Self {
        Self {
            item_shares: predicates.iter().map(Leaf::witness).collect(),
            evaluation_steps: predicates.iter().map(Leaf::cost).collect(),
        }
    }

    /// Estimated steps of one evaluation of the predicate.
    pub(crate) fn evaluation_cost(&self, predicate: u32) -> f32 {
        self.evaluation_steps[predicate as usize]
    }
}

/// Predicates of which one must pass. `None` if the rule may match without any that can be indexed.
pub(crate) fn choose_witnesses(rule: &Rule, costs: &Costs) -> Option<Vec<u32>> {
    let (_, mut predicates) = choose(&rule.when, true, rule, costs)?;
    predicates.sort_unstable();
    predicates.dedup();
    Some(predicates)
}

fn choose(node: &Node, positive: bool, rule: &Rule, costs: &Costs) -> Option<(f32, Vec<u32>)> {
    let (inner, all) = match node {
        Node::Leaf(nth) => {
            let predicate = rule.leaves[*nth];
            let cost = costs.item_shares[predicate as usize].filter(|_| positive)?;
            return Some((cost, vec![predicate]));
        }
        Node::Not(inner) => return choose(inner, !positive, rule, costs),
        // A negated `all` passes if one part fails, a negated `any` if each part fails.
        Node::All(inner) => (inner, positive),
        Node::Any(inner) => (inner, !positive),
    };
    let mut choices = inner.iter().map(|node| choose(node, positive, rule, costs));
    if all {
        // All parts must pass, so the rarest one suffices.
        return choices.flatten().min_by(|(a, _), (b, _)| a.total_cmp(b));
    }
    // One part must pass, so the witnesses of all parts are needed.
    choices.try_fold((0.0, Vec::new()), |(sum, mut predicates), choice| {
        let (cost, more_predicates) = choice?;
        predicates.extend(more_predicates);
        Some((sum + cost, predicates))
    })
}
