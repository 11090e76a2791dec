//! Chooses for each rule the predicates of which one must pass before the rule can, and guesses what they cost.
//!
//! A wrong guess costs time and never changes an outcome.

use super::{
    places::{likelihood_of_areas, likelihood_of_domains},
    rarity::likelihood,
};
use crate::{
    compile::{Node, Rule},
    leaves::{FieldLeaf, Leaf, Needle, Sought, TextLeaf},
    limits::wide,
};

/// Bytes of the usual text.
const USUAL: usize = 300;

/// By predicate: how often it announces a rule, and what it takes to judge it.
#[derive(Debug)]
pub(crate) struct Costs {
    announcing: Vec<Option<f32>>,
    judging: Vec<f32>,
}

impl Costs {
    pub(crate) fn of(predicates: &[Leaf]) -> Self {
        Self {
            announcing: predicates.iter().map(announcing).collect(),
            judging: predicates.iter().map(judging).collect(),
        }
    }

    pub(crate) fn judging(&self, predicate: u32) -> f32 {
        self.judging[predicate as usize]
    }
}

/// The predicates of which one must pass; `None` if the rule may match without any that can be announced.
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
            let cost = costs.announcing[predicate as usize].filter(|_| positive)?;
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

/// The needles of which one must be found for the condition to pass, and how often one will be: if `k` of `n` are
/// needed, the `n - k + 1` rarest.
pub(crate) fn needles(text: &TextLeaf) -> Option<(f32, Vec<u32>)> {
    let costs = (0_u32..).zip(&text.needles).filter_map(|(nth, needle)| Some((needle_cost(needle)?, nth)));
    let mut costs: Vec<_> = costs.collect();
    costs.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    // A bank may have too few entries: then nothing announces the condition, and it cannot pass.
    let enough = (text.needles.len() + 1).saturating_sub(text.needed);
    if costs.len() < enough {
        return None;
    }
    costs.truncate(enough);
    let mut needles: Vec<_> = costs.iter().map(|(_, nth)| *nth).collect();
    needles.sort_unstable();
    Some((costs.iter().map(|(cost, _)| cost).sum(), needles))
}

fn needle_cost(needle: &Needle) -> Option<f32> {
    match needle {
        Needle::Word { seen, .. } => Some(likelihood(seen.as_bytes())),
        // Where a pattern is announced it is run, which takes longer than to look at a word.
        Needle::Pattern { literals: Some(literals), .. } => {
            Some(literals.iter().map(|literal| likelihood(literal.as_bytes())).sum::<f32>() * 4.0)
        }
        // It can be run with others over every text, if it is small; almost anything else is better.
        Needle::Pattern { literals: None, weight, .. } => (*weight == 1).then_some(0.6),
    }
}

fn announcing(leaf: &Leaf) -> Option<f32> {
    match leaf {
        Leaf::Text(text) => needles(text).map(|(cost, _)| cost),
        Leaf::Field(field) => field.sought().map(|sought| match sought {
            Sought::Texts(texts) => 0.02 * some(texts.len()),
            Sought::Related(keys) => 0.001 * some(keys.len()),
            Sought::Boolean(_) => 0.5,
            Sought::Ranges(ranges) => ranges.iter().map(|(low, high)| spread(*low, *high)).sum(),
        }),
        Leaf::Geo(geo) => Some(likelihood_of_areas(geo)),
        Leaf::Domain(domain) => Some(likelihood_of_domains(domain)),
        // Most items have no medium, and so none that could be like an entry of a bank.
        Leaf::Media(_) => Some(0.25),
        Leaf::Formula(_) | Leaf::Strikes(_) | Leaf::Count(_) | Leaf::Score(_) => None,
    }
}

/// What the patterns of a condition take on the usual text.
#[allow(clippy::cast_precision_loss, reason = "a guess")]
pub(crate) fn on_usual_text(text: &TextLeaf) -> f32 {
    let patterns = text.needles.iter().map(|needle| match needle {
        Needle::Pattern { work, .. } => (1 + wide(USUAL) / 4).saturating_mul(*work) as f32,
        Needle::Word { .. } => 0.0,
    });
    patterns.sum()
}

/// What a comparison takes on a value as long as the usual text.
#[allow(clippy::cast_precision_loss, reason = "a guess")]
fn on_usual_value(field: &FieldLeaf) -> f32 {
    field.work(USUAL) as f32
}

#[allow(clippy::cast_precision_loss, reason = "a guess")]
fn some(count: usize) -> f32 {
    count as f32
}

/// How often a number lies between two others, guessed by whether there are two.
pub(super) fn spread(low: f64, high: f64) -> f32 {
    match (low.is_finite(), high.is_finite()) {
        (true, true) if low >= high => 0.02,
        (true, true) => 0.15,
        _ => 0.3,
    }
}

fn judging(leaf: &Leaf) -> f32 {
    match leaf {
        Leaf::Strikes(_) | Leaf::Count(_) | Leaf::Media(_) | Leaf::Score(_) => 1.0,
        Leaf::Geo(geo) => 10.0 + some(geo.size().min(16)),
        Leaf::Domain(_) => 20.0,
        Leaf::Formula(formula) => 4.0 + some(formula.size()),
        Leaf::Field(field) => 2.0 + on_usual_value(field),
        Leaf::Text(text) => {
            let words = text.needles.iter().filter(|needle| matches!(needle, Needle::Word { .. })).count();
            10.0 + some(words.min(100)) * 4.0 + on_usual_text(text)
        }
    }
}
