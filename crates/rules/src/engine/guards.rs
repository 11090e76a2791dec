//! Guards: numbers that a rule needs of an item, kept beside the lists of rules: most rules that an item nominates, and
//! most that is not indexed, end there, without a look at anything else of theirs.
//!
//! Guards only refute: a rule that stays is evaluated as if there were none.

use std::collections::{BTreeMap, HashMap};

use super::Run;
use crate::{
    compile::Rule,
    item::{Number, Value},
    leaves::{
        Leaf,
        field::{SearchedValues, spread},
    },
    logic::Node,
};

/// Guards of one rule, at most: further ones hardly refute what these have let pass, and a rule with two is half a line
/// of the cache.
const MOST: usize = 2;

/// Rules that are not indexed and that share a guard are refuted together, if there are so many of them.
const SHARED: usize = 4;

/// The rules of an index with their guards: those of each witness, and those that are not indexed.
#[derive(Debug, Default)]
pub(crate) struct IndexedRules {
    /// Rules by witness, then by group; within each in order.
    rules: Box<[Guarded]>,
    unindexed: Box<[Group]>,
    /// Values that guards look at; guards hold their index.
    watched: Box<[WatchedValue]>,
}

#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
struct Guarded {
    rule: u32,
    guards: [Guard; MOST],
}

/// Rules that are not indexed, and what they have in common.
#[derive(Clone, Copy, Debug)]
struct Group {
    guard: Guard,
    from: u32,
    to: u32,
}

/// Unless one of the values lies between the two, ends included, the rule cannot match. The ends are rounded outwards.
#[derive(Clone, Copy, Debug)]
struct Guard {
    low: f32,
    high: f32,
    /// Index of the watched value; `NOTHING` refutes nothing.
    watched: u32,
}

/// The number of no watched value.
const NOTHING: u32 = u32::MAX;

impl Guarded {
    /// Adds a guard before its own. The last one is dropped: guards only save work.
    fn with(self, guard: Guard) -> Self {
        let mut guards = self.guards;
        guards.rotate_right(1);
        guards[0] = guard;
        Self { guards, ..self }
    }
}

impl Guard {
    const NONE: Self = Self { low: f32::NEG_INFINITY, high: f32::INFINITY, watched: NOTHING };

    #[expect(clippy::cast_possible_truncation, reason = "rounded, and then moved outwards")]
    fn between(Span { low, high, .. }: Span, watched: u32) -> Self {
        let (mut least, mut most) = (low as f32, high as f32);
        if f64::from(least) > low {
            least = least.next_down();
        }
        if f64::from(most) < high {
            most = most.next_up();
        }
        Self { low: least, high: most, watched }
    }

    /// Bits that tell it from others.
    fn bits(&self) -> (u32, u32, u32) {
        (self.watched, self.low.to_bits(), self.high.to_bits())
    }
}

/// The values of one path that are numbers, or those that are booleans, as 0 and 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct WatchedValue {
    slot: usize,
    booleans: bool,
}

/// The smallest and the largest of the values that are watched; if there are none, nothing lies between them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ValueRange {
    low: f64,
    high: f64,
}

impl ValueRange {
    pub(crate) const NOTHING: Self = Self { low: f64::INFINITY, high: f64::NEG_INFINITY };

    fn add(&mut self, value: f64) {
        self.low = self.low.min(value);
        self.high = self.high.max(value);
    }

    fn meets(self, guard: &Guard) -> bool {
        self.low <= f64::from(guard.high) && self.high >= f64::from(guard.low)
    }
}

/// A range that a value must lie in for the rule to match.
#[derive(Clone, Copy, Debug)]
struct Span {
    of: WatchedValue,
    low: f64,
    high: f64,
}

impl Span {
    /// Guess of how often it lets an item pass.
    fn likelihood(&self) -> f32 {
        if self.of.booleans { 0.5 } else { spread(self.low, self.high) }
    }
}

impl IndexedRules {
    /// `lists`, by witness: its predicate, and its rules. `always`: what is not indexed.
    pub(crate) fn new(
        lists: &[(u32, Vec<u32>)],
        always: &[u32],
        all: &[impl AsRef<Rule>],
        predicates: &[Leaf],
    ) -> Self {
        let mut made = GuardBuilder::default();
        for (witness, list) in lists {
            for number in list {
                // The witness of the rule has passed already.
                let needed = needed(all[*number as usize].as_ref(), Some(*witness), predicates);
                let guards = made.guards(&needed);
                made.rules.push(guarded(*number, &guards));
            }
        }
        let mut groups: BTreeMap<_, Vec<Guarded>> = BTreeMap::new();
        for number in always {
            let guards = made.guards(&needed(all[*number as usize].as_ref(), None, predicates));
            let (first, rest) =
                guards.split_first().map_or((Guard::NONE, &[][..]), |(guard, rest)| (*guard, rest));
            groups.entry(first.bits()).or_default().push(guarded(*number, rest));
        }
        // With a guard that few share there is nothing to save: they stand together behind the others.
        let mut alone = Vec::new();
        for ((watched, low, high), rules) in groups {
            let guard = Guard { low: f32::from_bits(low), high: f32::from_bits(high), watched };
            if rules.len() >= SHARED {
                made.group(guard, rules);
            } else {
                alone.extend(rules.into_iter().map(|rule| rule.with(guard)));
            }
        }
        made.group(Guard::NONE, alone);
        Self { rules: made.rules.into(), unindexed: made.groups.into(), watched: made.watched.into() }
    }

    /// Number of values that are watched.
    pub(crate) fn watched(&self) -> usize {
        self.watched.len()
    }

    pub(crate) fn memory(&self) -> usize {
        size_of_val(&*self.rules) + size_of_val(&*self.unindexed)
    }
}

#[derive(Default)]
struct GuardBuilder {
    rules: Vec<Guarded>,
    groups: Vec<Group>,
    watched: Vec<WatchedValue>,
    numbers: HashMap<WatchedValue, u32>,
}

impl GuardBuilder {
    fn guards(&mut self, spans: &[Span]) -> Vec<Guard> {
        let guard = |span: &Span| {
            let number = *self.numbers.entry(span.of).or_insert_with(|| {
                self.watched.push(span.of);
                place(self.watched.len() - 1)
            });
            Guard::between(*span, number)
        };
        spans.iter().map(guard).collect()
    }

    fn group(&mut self, guard: Guard, rules: Vec<Guarded>) {
        let from = place(self.rules.len());
        self.rules.extend(rules);
        let to = place(self.rules.len());
        if from < to {
            self.groups.push(Group { guard, from, to });
        }
    }
}

fn place(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn guarded(rule: u32, guards: &[Guard]) -> Guarded {
    let nth = |nth| guards.get(nth).copied().unwrap_or(Guard::NONE);
    Guarded { rule, guards: std::array::from_fn(nth) }
}

/// Returns the ranges that the rule needs, the rarest first.
fn needed(rule: &Rule, witness: Option<u32>, predicates: &[Leaf]) -> Vec<Span> {
    let mut needed = Vec::new();
    needed_of(&rule.when, true, rule, &mut needed);
    needed.retain(|(predicate, _)| Some(*predicate) != witness);
    let span = |(predicate, passes): (u32, bool)| span(&predicates[predicate as usize], passes);
    let mut spans: Vec<Span> = needed.into_iter().filter_map(span).collect();
    spans.sort_by(|a, b| a.likelihood().total_cmp(&b.likelihood()));
    spans
}

/// The predicates each of which must pass, or fail, or the rule cannot pass.
fn needed_of(node: &Node, positive: bool, rule: &Rule, needed: &mut Vec<(u32, bool)>) {
    match node {
        Node::Leaf(nth) => needed.push((rule.leaves[*nth], positive)),
        Node::Not(inner) => needed_of(inner, !positive, rule, needed),
        Node::All(inner) if positive => inner.iter().for_each(|node| needed_of(node, true, rule, needed)),
        Node::Any(inner) if !positive => inner.iter().for_each(|node| needed_of(node, false, rule, needed)),
        Node::All(_) | Node::Any(_) => {}
    }
}

/// The range that a value must lie in for a condition to pass, or to fail.
fn span(leaf: &Leaf, passes: bool) -> Option<Span> {
    let Leaf::Field(field) = leaf else { return None };
    let of = |booleans| WatchedValue { slot: field.slot(), booleans };
    match if passes { field.sought() } else { field.opposite() }? {
        SearchedValues::Boolean(wanted) => {
            let number = f64::from(u8::from(wanted));
            Some(Span { of: of(true), low: number, high: number })
        }
        SearchedValues::Ranges(ranges) => match ranges[..] {
            [(low, high)] => Some(Span { of: of(false), low, high }),
            _ => None,
        },
        SearchedValues::Texts(_) | SearchedValues::Related(_) => None,
    }
}

impl Run<'_, '_> {
    /// Makes candidates of the rules that are not indexed and that meet their guards.
    pub(super) fn nominate_unindexed(&mut self) {
        for Group { guard, from, to } in &self.index.indexed.unindexed {
            if guard.watched == NOTHING || self.value_range(guard.watched).meets(guard) {
                self.nominate(*from, *to);
            } else {
                self.scratch.refuted += (to - from) as usize;
            }
        }
    }

    /// Makes candidates of the rules between two places that meet their guards; whether there are any.
    pub(super) fn nominate(&mut self, from: u32, to: u32) -> bool {
        let index = self.index;
        let mut some = false;
        for guarded in &index.indexed.rules[from as usize..to as usize] {
            let mut guards = guarded.guards.iter();
            if guards.all(|guard| guard.watched == NOTHING || self.value_range(guard.watched).meets(guard)) {
                self.scratch.candidates.push(guarded.rule);
                some = true;
            } else {
                self.scratch.refuted += 1;
            }
        }
        some
    }

    fn value_range(&mut self, nth: u32) -> ValueRange {
        if let Some(known) = self.scratch.value_range(nth) {
            return known;
        }
        let WatchedValue { slot, booleans } = self.index.indexed.watched[nth as usize];
        let mut value_range = ValueRange::NOTHING;
        for (_, value) in self.input.fields.slot(slot).values.iter().flatten() {
            match value {
                Value::Number(number) if !booleans => value_range.add(number.coarse()),
                Value::Datetime(instant) if !booleans => value_range.add(Number::from(instant.0).coarse()),
                Value::Boolean(boolean) if booleans => value_range.add(f64::from(u8::from(*boolean))),
                _ => {}
            }
        }
        self.scratch.note_value_range(nth, value_range);
        value_range
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_refutes_nothing_that_lies_between_its_ends() {
        let ends = [
            f64::NEG_INFINITY,
            f64::MIN,
            -16_777_217.0,
            -0.1,
            0.0,
            f64::MIN_POSITIVE,
            0.1,
            9_007_199_254_740_993.0,
            1.767_225_600_123e12,
            f64::MAX,
            f64::INFINITY,
        ];
        for low in ends {
            for high in ends.into_iter().filter(|high| *high >= low) {
                let of = WatchedValue { slot: 0, booleans: false };
                let guard = Guard::between(Span { of, low, high }, 0);
                for value in [low, high] {
                    assert!(ValueRange { low: value, high: value }.meets(&guard), "{value} in {low}..{high}");
                }
            }
        }
        let of = WatchedValue { slot: 0, booleans: false };
        let guard = Guard::between(Span { of, low: 9_000.0, high: f64::INFINITY }, 0);
        assert!(!ValueRange { low: 1.0, high: 8_999.0 }.meets(&guard) && !ValueRange::NOTHING.meets(&guard));
    }
}
