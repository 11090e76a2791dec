//! Finds rules that use up their steps on patterns, and the length of text from which they do: on any text, or on a text
//! built against them. A rule may also run out of steps for other reasons.

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
    limits::{Limits, to_u64},
    search::pattern::Pattern,
};

/// Rule that ends as `errored: deadline` on texts below the maximum length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overload {
    pub rule: RuleId,
    /// Banks of some of the patterns.
    pub banks: BTreeSet<BankId>,
    pub patterns: usize,
    /// Longest text on which the patterns fit into the steps.
    pub bytes: u64,
    /// Steps on the modest text, or on the longest text built against the patterns.
    steps: u64,
    steps_per_rule: u64,
    texts: Texts,
}

/// Texts on which a rule uses up its steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Texts {
    Any,
    /// Texts that almost match over and over. `longest`: bytes of the longest searched text.
    Hostile {
        longest: u64,
    },
}

/// Length of the text in messages, which people can imagine.
const MODEST: u64 = 1 << 10;

impl fmt::Display for Overload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { patterns, bytes, steps, steps_per_rule: most, .. } = self;
        let subject = if *patterns == 1 {
            "one of its patterns takes".to_owned()
        } else {
            format!("its {patterns} patterns together take")
        };
        if let Texts::Hostile { longest } = self.texts {
            return write!(
                f,
                "{subject} up to {steps} steps on a text of {longest} bytes that almost matches over and over, and a rule has {most} \
                 (`steps_per_rule`): on such a text of more than {bytes} bytes it ends as `errored: deadline`; \
                 shorten counted repeats of classes, such as `[a-z]{{20}}`, or begin patterns with a literal of three bytes"
            );
        }
        write!(
            f,
            "{subject} about {steps} steps on a text of {MODEST} bytes, and a rule has {most} (`steps_per_rule`): on one of \
             more than {bytes} bytes it ends as `errored: deadline`"
        )
    }
}

/// Patterns that share the steps of one rule.
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
        let works = || text.needles.iter().filter_map(pattern_work);
        let banks = text.bank().filter(|_| works().next().is_some()).cloned().into_iter().collect();
        Self { work: works().fold(0, u64::saturating_add), patterns: works().count(), banks }
    }

    /// The most expensive pattern of a condition.
    fn heaviest(text: &TextLeaf) -> Self {
        let work = text.needles.iter().filter_map(pattern_work).max();
        Self {
            work: work.unwrap_or_default(),
            patterns: 1,
            banks: text.bank().cloned().into_iter().collect(),
        }
    }

    fn merge(&mut self, other: &Self) {
        self.work = self.work.saturating_add(other.work);
        self.patterns += other.patterns;
        self.banks.extend(other.banks.iter().cloned());
    }
}

fn pattern_work(needle: &Needle) -> Option<u64> {
    match needle {
        Needle::Pattern { pattern, .. } => Some(pattern.work),
        Needle::Word { .. } => None,
    }
}

/// Returns the overloads in the order of the rules.
pub(crate) fn find_overloads(
    rules: &[impl AsRef<Rule>],
    predicates: &[Leaf],
    indexes: &[Index],
    limits: &Limits,
) -> Vec<Overload> {
    let load = |load_of: fn(&TextLeaf) -> Load| {
        let load = |leaf: &Leaf| match leaf {
            Leaf::Text(text) => Some(load_of(text)).filter(|load| load.work > 0),
            _ => None,
        };
        predicates.iter().map(load).collect::<Vec<_>>()
    };
    let (all, heaviest) = (load(Load::all), load(Load::heaviest));
    let mut overloads: BTreeMap<u32, Overload> = BTreeMap::new();
    for index in indexes {
        for number in &*index.rules {
            let rule = rules[*number as usize].as_ref();
            let (mut shared, mut separate) = (Load::default(), Load::default());
            for predicate in &rule.leaves {
                let place = *predicate as usize;
                let Leaf::Text(text) = &predicates[place] else { continue };
                // If one needle suffices and the index searches it, each pattern has the steps of a rule for itself.
                let has_own_steps = text.required_count == 1 && index.is_scanned(*predicate);
                match (has_own_steps, &all[place], &heaviest[place]) {
                    (true, _, Some(heaviest)) if heaviest.work > separate.work => separate = heaviest.clone(),
                    (false, Some(all), _) => shared.merge(all),
                    _ => {}
                }
            }
            let Load { work, patterns, banks } = if separate.work > shared.work { separate } else { shared };
            let (steps_per_rule, units) = (limits.steps_per_rule, |bytes: u64| 1 + bytes / 4);
            let Some(affordable_units) = steps_per_rule.checked_div(work) else { continue };
            let bytes = affordable_units.saturating_sub(1).saturating_mul(4);
            // A rule in several indexes is listed once, with the shortest text.
            if bytes < to_u64(limits.text_bytes)
                && overloads.get(number).is_none_or(|other| bytes < other.bytes)
            {
                let (rule, steps) = (rule.head.rule.clone(), units(MODEST).saturating_mul(work));
                overloads.insert(
                    *number,
                    Overload { rule, banks, patterns, bytes, steps, steps_per_rule, texts: Texts::Any },
                );
            }
        }
    }
    overloads.into_values().collect()
}

/// Maximum number of patterns measured for one plan, which takes less than a second. Further ones count as harmless.
const MAX_MEASURED: usize = 128;

/// Returns the rules that only texts built against their patterns bring to the end of their steps. The measurement takes
/// time, so this is for authors of rules.
pub(crate) fn find_hostile_overloads(
    rules: &[impl AsRef<Rule>],
    predicates: &[Leaf],
    limits: &Limits,
) -> Vec<Overload> {
    let (steps_per_rule, text_bytes) = (limits.steps_per_rule, limits.text_bytes);
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
                // A pattern that several rules share is measured once.
                if measured.contains(&Arc::as_ptr(pattern)) || measured.len() < MAX_MEASURED {
                    measured.insert(Arc::as_ptr(pattern));
                    patterns.push(pattern);
                }
            }
            let steps = |bytes: usize| {
                let steps_of = |pattern: &&Arc<Pattern>| {
                    pattern.steps_beyond_base(bytes).saturating_add(pattern.base_of(bytes))
                };
                patterns.iter().map(steps_of).fold(0, u64::saturating_add)
            };
            let longest = steps(text_bytes);
            if longest <= steps_per_rule {
                continue;
            }
            // Binary search for the longest affordable text.
            let (mut affordable, mut too_long) = (0, text_bytes);
            while too_long - affordable > 1 {
                let middle = affordable.midpoint(too_long);
                if steps(middle) <= steps_per_rule { affordable = middle } else { too_long = middle }
            }
            overloads.push(Overload {
                rule: rule.head.rule.clone(),
                banks: text.bank().cloned().into_iter().collect(),
                patterns: patterns.len(),
                bytes: to_u64(affordable),
                steps: longest,
                steps_per_rule,
                texts: Texts::Hostile { longest: to_u64(text_bytes) },
            });
            break;
        }
    }
    overloads
}
