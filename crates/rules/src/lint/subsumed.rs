//! Finds rules that add nothing: whatever they match, another one matches too, and leads to as much.
//!
//! It compares trees, so it sees values inside of each other, and not what follows from several parts together.

use std::collections::HashMap;

use super::{
    coarser::Coarser,
    domain::Domain,
    tree::{Mark, Tree},
};
use crate::{Allowance, compile::Rule, lint::claims::Operand};

/// Comparisons of conditions that are made at most; so many rules may have a word in common that all pairs are too many.
const WORK: usize = 2_000_000;

/// Which rule, and which other one matches whatever it matches.
pub(super) struct Found {
    pub(super) pairs: Vec<(usize, usize)>,
    /// All rules were compared.
    pub(super) complete: bool,
}

/// `trees` are those of the rules; a rule without one can never match.
pub(super) fn look(rules: &[&Rule], trees: &[Option<Tree>], coarser: &Coarser) -> Found {
    // By mark: the rules that cannot match without it, or one of its like.
    let mut keyed: HashMap<Mark, Vec<usize>> = HashMap::new();
    for (nth, tree) in trees.iter().enumerate() {
        let mut key = Vec::new();
        tree.iter().for_each(|tree| tree.key(coarser, &mut key));
        for mark in key {
            keyed.entry(mark).or_default().push(nth);
        }
    }
    let mut found = Found { pairs: Vec::new(), complete: true };
    let mut left = WORK;
    for (nth, (rule, tree)) in rules.iter().zip(trees).enumerate() {
        let Some(tree) = tree else { continue };
        let mut own = Vec::new();
        tree.marks(coarser, &mut own);
        let mut others: Vec<usize> =
            own.iter().filter_map(|mark| keyed.get(mark)).flatten().copied().collect();
        left = left.saturating_sub(own.len() + others.len());
        others.sort_unstable();
        others.dedup();
        // Of two that imply each other the later one adds nothing.
        let wider = others.into_iter().find(|other| {
            left = left.saturating_sub(1);
            let Some(wide) = &trees[*other] else { return false };
            *other != nth
                && left > 0
                && covers(rules[*other], rule)
                && implies(tree, wide, coarser, &mut left)
                && (*other < nth || !implies(wide, tree, coarser, &mut left))
        });
        found.pairs.extend(wider.map(|other| (nth, other)));
        if left == 0 {
            found.complete = false;
            break;
        }
    }
    found
}

/// Whether a rule is for whatever the other is for, and leads to all that the other leads to.
fn covers(wider: &Rule, rule: &Rule) -> bool {
    let types = wider.item_types.is_empty()
        || !rule.item_types.is_empty() && rule.item_types.is_subset(&wider.item_types);
    types
        && wider.expires_at >= rule.expires_at.filter(|_| wider.expires_at.is_some())
        && (wider.expires_at.is_none() || rule.expires_at.is_some())
        && wider.head.status == rule.head.status
        && acts_alike(wider, rule)
        && rule.on.iter().all(|on| wider.on.contains(on))
        && rule.head.policies.iter().all(|policy| wider.head.policies.contains(policy))
        && rule.head.actions.iter().all(|action| wider.head.actions.contains(action))
}

/// Whether the wider one acts wherever the other would. Of two that may act on so many items each, one goes on when the
/// other's are used up, and which part of its matches a rule acts on is drawn by its own key unless a salt is given.
fn acts_alike(wider: &Rule, rule: &Rule) -> bool {
    let (wide, own) = (&wider.head.life, &rule.head.life);
    let drawn_alike = match (&wide.rollout, &own.rollout) {
        (None, _) => true,
        (Some(wide), Some(own)) => wide == own && wide.salt.is_some(),
        (Some(_), None) => false,
    };
    drawn_alike
        && wide.limits == Allowance::default()
        && own.review_sample.is_none()
        && wide.on_error == own.on_error
}

fn implies(narrow: &Tree, wide: &Tree, coarser: &Coarser, left: &mut usize) -> bool {
    *left = left.saturating_sub(1);
    if *left == 0 {
        return false;
    }
    match (narrow, wide) {
        (_, Tree::All(parts)) => parts.iter().all(|part| implies(narrow, part, coarser, left)),
        (Tree::Any(simple, rest), _) => {
            let direct = match wide {
                Tree::Any(wide, _) => {
                    *left = left.saturating_sub(simple.len());
                    let covered = |atom: &u32| {
                        wide.contains(atom) || coarser.of(*atom).iter().any(|coarse| wide.contains(coarse))
                    };
                    simple.iter().all(covered)
                }
                _ => simple.is_empty(),
            };
            direct && rest.iter().all(|part| implies(part, wide, coarser, left))
        }
        (Tree::All(parts), _) if parts.iter().any(|part| implies(part, wide, coarser, left)) => true,
        (Tree::Claim(operand, Domain::Listed(texts)), Tree::Any(simple, _))
            if !simple.is_empty() && !coarser.of_texts(operand, texts).is_disjoint(simple) =>
        {
            true
        }
        (_, Tree::Any(_, rest)) => rest.iter().any(|part| implies(narrow, part, coarser, left)),
        (Tree::Without(more), Tree::Without(fewer)) => {
            *left = left.saturating_sub(fewer.len());
            let covered = |atom: &u32| {
                more.contains(atom) || coarser.of(*atom).iter().any(|coarse| more.contains(coarse))
            };
            fewer.iter().all(covered)
        }
        (Tree::Claim(operand, domain), Tree::Claim(other, wider)) => {
            // What has a value is there.
            let there = operand.slot().is_some_and(|slot| *wide == Operand::present(slot, true));
            there || operand == other && domain.is_within(wider)
        }
        _ => false,
    }
}
