//! Says which rules their patterns bring to the end of their steps, and from which length of text on: of any text, or of a
//! text that is made for them.
//!
//! It sees patterns only: a rule that is not named may still run out of steps.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    fmt,
    sync::Arc,
};

use tidegate_schemas::ids::{BankId, RuleId};

use crate::{
    compile::Rule,
    engine::index::Index,
    leaves::{Leaf, needle::Needle, text::TextLeaf},
    limits::{Limits, wide},
    search::pattern::Pattern,
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
    /// Steps on the modest text, or on the longest that is made for the patterns.
    steps: u64,
    most: u64,
    texts: Texts,
}

/// Texts on which a rule ends so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Texts {
    Any,
    /// Those that almost match over and over. `longest`: bytes of the longest that is searched.
    Hostile {
        longest: u64,
    },
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
        if let Texts::Hostile { longest } = self.texts {
            return write!(
                f,
                "{its} up to {steps} steps on a text of {longest} bytes that almost matches over and over, and a rule has {most} \
                 (`steps_per_rule`): on such a text of more than {bytes} bytes it ends as `errored: deadline`; \
                 shorten counted repeats of classes, such as `[a-z]{{20}}`, or begin patterns with a literal of three bytes"
            );
        }
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
                found.insert(
                    *number,
                    Overload { rule, banks, patterns, bytes, steps, most, texts: Texts::Any },
                );
            }
        }
    }
    found.into_values().collect()
}

/// Patterns that are measured for one plan, which takes less than a second. Those beyond count as harmless.
const MEASURED: usize = 128;

/// Returns the rules that only texts made for their patterns bring to the end of their steps. Measuring takes time, so this
/// is for authors of rules.
pub(crate) fn of_hostile_texts(
    rules: &[impl AsRef<Rule>],
    predicates: &[Leaf],
    limits: &Limits,
) -> Vec<Overload> {
    let (most, text_bytes) = (limits.steps_per_rule, limits.text_bytes);
    let mut measured: HashSet<*const Pattern> = HashSet::new();
    let mut overloads = Vec::new();
    for rule in rules {
        let rule = rule.as_ref();
        for predicate in &rule.leaves {
            let Leaf::Text(text) = &predicates[*predicate as usize] else { continue };
            let exploding = text.needles.iter().filter_map(|needle| match needle {
                Needle::Pattern { pattern, .. } if pattern.may_explode() => Some(pattern),
                _ => None,
            });
            let mut patterns: Vec<&Arc<Pattern>> = Vec::new();
            for pattern in exploding {
                if measured.contains(&Arc::as_ptr(pattern)) || measured.len() < MEASURED {
                    measured.insert(Arc::as_ptr(pattern));
                    patterns.push(pattern);
                }
            }
            let steps = |bytes: usize| {
                let of = |pattern: &&Arc<Pattern>| {
                    pattern.steps_beyond_base(bytes).saturating_add(pattern.base_of(bytes))
                };
                patterns.iter().map(of).fold(0, u64::saturating_add)
            };
            let longest = steps(text_bytes);
            if longest <= most {
                continue;
            }
            // The longest text that is affordable.
            let (mut fits, mut too_long) = (0, text_bytes);
            while too_long - fits > 1 {
                let middle = fits.midpoint(too_long);
                if steps(middle) <= most { fits = middle } else { too_long = middle }
            }
            overloads.push(Overload {
                rule: rule.head.rule.clone(),
                banks: text.bank().cloned().into_iter().collect(),
                patterns: patterns.len(),
                bytes: wide(fits),
                steps: longest,
                most,
                texts: Texts::Hostile { longest: wide(text_bytes) },
            });
            break;
        }
    }
    overloads
}
