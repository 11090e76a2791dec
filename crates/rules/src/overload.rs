//! Says which rules their patterns bring to the end of their steps, and from which length of text on.
//!
//! It sees patterns only, and counts what they take at worst: a rule that is not named may still run out of steps.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use tidegate_schemas::ids::{BankId, RuleId};

use crate::{
    compile::Rule,
    engine::index::Index,
    leaves::{Leaf, needle::Needle, text::TextLeaf},
    limits::{Limits, wide},
};

/// A rule that ends as `errored: deadline` on texts that are not even the longest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overload {
    pub rule: RuleId,
    /// Those that some of the patterns are from.
    pub banks: BTreeSet<BankId>,
    pub patterns: usize,
    /// The longest text that they can still be run on.
    pub bytes: u64,
    /// Steps on the modest text.
    steps: u64,
    most: u64,
}

/// Bytes of a text by which people can tell how much it is.
const MODEST: u64 = 1 << 10;

impl fmt::Display for Overload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { patterns, bytes, steps, most, .. } = self;
        let its = if *patterns == 1 {
            "one of its patterns takes".to_owned()
        } else {
            format!("its {patterns} patterns together take")
        };
        write!(
            f,
            "{its} about {steps} steps on a text of {MODEST} bytes, and a rule has {most} (`steps_per_rule`): on one of \
             more than {bytes} bytes it ends as `errored: deadline`"
        )
    }
}

/// Patterns that are run for one rule without a pause.
#[derive(Clone, Default)]
struct Load {
    /// Steps for every four bytes of text.
    work: u64,
    patterns: usize,
    banks: BTreeSet<BankId>,
}

impl Load {
    /// All patterns of a condition.
    fn all(text: &TextLeaf) -> Self {
        let works = || text.needles.iter().filter_map(work);
        let banks = text.bank().filter(|_| works().next().is_some()).cloned().into_iter().collect();
        Self { work: works().fold(0, u64::saturating_add), patterns: works().count(), banks }
    }

    /// The one that takes most.
    fn heaviest(text: &TextLeaf) -> Self {
        let work = text.needles.iter().filter_map(work).max();
        Self {
            work: work.unwrap_or_default(),
            patterns: 1,
            banks: text.bank().cloned().into_iter().collect(),
        }
    }

    fn add(&mut self, other: &Self) {
        self.work = self.work.saturating_add(other.work);
        self.patterns += other.patterns;
        self.banks.extend(other.banks.iter().cloned());
    }
}

fn work(needle: &Needle) -> Option<u64> {
    match needle {
        Needle::Pattern { pattern, .. } => Some(pattern.work),
        Needle::Word { .. } => None,
    }
}

/// Returns the overloads in the order of the rules.
pub(crate) fn of(
    rules: &[impl AsRef<Rule>],
    predicates: &[Leaf],
    indexes: &[Index],
    limits: &Limits,
) -> Vec<Overload> {
    let load = |of: fn(&TextLeaf) -> Load| {
        let load = |leaf: &Leaf| match leaf {
            Leaf::Text(text) => Some(of(text)).filter(|load| load.work > 0),
            _ => None,
        };
        predicates.iter().map(load).collect::<Vec<_>>()
    };
    let (all, heaviest) = (load(Load::all), load(Load::heaviest));
    let mut found: BTreeMap<u32, Overload> = BTreeMap::new();
    for index in indexes {
        for number in &*index.rules {
            let rule = rules[*number as usize].as_ref();
            let (mut together, mut alone) = (Load::default(), Load::default());
            for predicate in &rule.leaves {
                let place = *predicate as usize;
                let Leaf::Text(text) = &predicates[place] else { continue };
                // Each pattern by which its condition is indexed has the steps of a rule for itself.
                let each = text.needed == 1 && index.is_scanned(*predicate);
                match (each, &all[place], &heaviest[place]) {
                    (true, _, Some(one)) if one.work > alone.work => alone = one.clone(),
                    (false, Some(all), _) => together.add(all),
                    _ => {}
                }
            }
            let Load { work, patterns, banks } = if alone.work > together.work { alone } else { together };
            let (most, each) = (limits.steps_per_rule, |bytes: u64| 1 + bytes / 4);
            let Some(fours) = most.checked_div(work) else { continue };
            let bytes = fours.saturating_sub(1).saturating_mul(4);
            if bytes < wide(limits.text_bytes) && found.get(number).is_none_or(|other| bytes < other.bytes) {
                let (rule, steps) = (rule.head.rule.clone(), each(MODEST).saturating_mul(work));
                found.insert(*number, Overload { rule, banks, patterns, bytes, steps, most });
            }
        }
    }
    found.into_values().collect()
}
