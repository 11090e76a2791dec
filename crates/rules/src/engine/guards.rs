//! Guards: value ranges that a rule requires of an item, stored next to the lists of rules. They refute most nominated rules
//! and most unindexed rules without a look at the rule itself. A rule that meets its guards is evaluated in full.

use std::collections::{BTreeMap, HashMap};

use super::Run;
use crate::{
    compile::Rule,
    item::{Number, Value},
    leaves::{
        Leaf,
        field::{SearchedValues, estimate_share},
    },
    logic::Node,
};

/// Guards of one rule. Further ones would hardly refute more, and a rule with two takes half a cache line.
const MAX_GUARDS: usize = 2;

/// Number of unindexed rules with a common guard from which they are refuted together.
const MIN_GROUP_SIZE: usize = 4;

/// Rules of an index with their guards: the rules of each witness, and the unindexed ones.
#[derive(Debug, Default)]
pub(crate) struct IndexedRules {
    /// Rules by witness, then by group; in order within each.
    rules: Box<[GuardedRule]>,
    unindexed: Box<[Group]>,
    /// Values that guards refer to by index.
    watched: Box<[WatchedValue]>,
}

#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
struct GuardedRule {
    rule: u32,
    guards: [Guard; MAX_GUARDS],
}

/// Range of unindexed rules with a common guard.
#[derive(Clone, Copy, Debug)]
struct Group {
    guard: Guard,
    from: u32,
    to: u32,
}

/// Range of values, ends included and rounded outwards. A rule cannot match unless a watched value lies in it.
#[derive(Clone, Copy, Debug)]
struct Guard {
    low: f32,
    high: f32,
    /// Index of the watched value. `UNWATCHED` passes every item.
    watched: u32,
}

/// Index of a guard that watches no value.
const UNWATCHED: u32 = u32::MAX;

impl GuardedRule {
    /// Adds a guard in front and drops the last one, which is safe because guards only save work.
    fn with_first(self, guard: Guard) -> Self {
        let mut guards = self.guards;
        guards.rotate_right(1);
        guards[0] = guard;
        Self { guards, ..self }
    }
}

impl Guard {
    const NONE: Self = Self { low: f32::NEG_INFINITY, high: f32::INFINITY, watched: UNWATCHED };

    #[expect(clippy::cast_possible_truncation, reason = "rounded, and then moved outwards")]
    fn between(Span { low, high, .. }: Span, watched: u32) -> Self {
        let (mut rounded_low, mut rounded_high) = (low as f32, high as f32);
        if f64::from(rounded_low) > low {
            rounded_low = rounded_low.next_down();
        }
        if f64::from(rounded_high) < high {
            rounded_high = rounded_high.next_up();
        }
        Self { low: rounded_low, high: rounded_high, watched }
    }

    /// Key under which equal guards are grouped.
    fn group_key(&self) -> (u32, u32, u32) {
        (self.watched, self.low.to_bits(), self.high.to_bits())
    }
}

/// Numbers at one path, or its booleans as 0 and 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct WatchedValue {
    slot: usize,
    is_boolean: bool,
}

/// Smallest and largest watched value of an item. The range without values meets no guard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ValueRange {
    low: f64,
    high: f64,
}

impl ValueRange {
    pub(crate) const EMPTY: Self = Self { low: f64::INFINITY, high: f64::NEG_INFINITY };

    fn add(&mut self, value: f64) {
        self.low = self.low.min(value);
        self.high = self.high.max(value);
    }

    fn meets(self, guard: &Guard) -> bool {
        self.low <= f64::from(guard.high) && self.high >= f64::from(guard.low)
    }
}

/// Range in which a value must lie for the rule to match.
#[derive(Clone, Copy, Debug)]
struct Span {
    watched: WatchedValue,
    low: f64,
    high: f64,
}

impl Span {
    /// Estimated share of items in the range.
    fn likelihood(&self) -> f32 {
        if self.watched.is_boolean { 0.5 } else { estimate_share(self.low, self.high) }
    }
}

impl IndexedRules {
    /// `lists`: predicate and rules of each witness. `always`: unindexed rules.
    pub(crate) fn new(
        lists: &[(u32, Vec<u32>)],
        always: &[u32],
        all: &[impl AsRef<Rule>],
        predicates: &[Leaf],
    ) -> Self {
        let mut builder = GuardBuilder::default();
        for (witness, list) in lists {
            for number in list {
                // A rule is nominated only after its witness has passed, so a guard on the witness would refute no item.
                let spans = required_spans(all[*number as usize].as_ref(), Some(*witness), predicates);
                let guards = builder.guards(&spans);
                builder.rules.push(guarded_rule(*number, &guards));
            }
        }
        let mut groups: BTreeMap<_, Vec<GuardedRule>> = BTreeMap::new();
        for number in always {
            let guards = builder.guards(&required_spans(all[*number as usize].as_ref(), None, predicates));
            let (first, rest) =
                guards.split_first().map_or((Guard::NONE, &[][..]), |(guard, rest)| (*guard, rest));
            // Floats are no keys of a map, so groups are found by their bits.
            groups.entry(first.group_key()).or_default().push(guarded_rule(*number, rest));
        }
        // A group of few rules saves no work, so these rules form one group and keep the common guard themselves.
        let mut ungrouped = Vec::new();
        for ((watched, low, high), rules) in groups {
            let guard = Guard { low: f32::from_bits(low), high: f32::from_bits(high), watched };
            if rules.len() >= MIN_GROUP_SIZE {
                builder.push_group(guard, rules);
            } else {
                ungrouped.extend(rules.into_iter().map(|rule| rule.with_first(guard)));
            }
        }
        builder.push_group(Guard::NONE, ungrouped);
        Self {
            rules: builder.rules.into(),
            unindexed: builder.groups.into(),
            watched: builder.watched.into(),
        }
    }

    /// Number of watched values.
    pub(crate) fn watched(&self) -> usize {
        self.watched.len()
    }

    pub(crate) fn memory(&self) -> usize {
        size_of_val(&*self.rules) + size_of_val(&*self.unindexed)
    }
}

#[derive(Default)]
struct GuardBuilder {
    rules: Vec<GuardedRule>,
    groups: Vec<Group>,
    watched: Vec<WatchedValue>,
    numbers: HashMap<WatchedValue, u32>,
}

impl GuardBuilder {
    fn guards(&mut self, spans: &[Span]) -> Vec<Guard> {
        let guard = |span: &Span| {
            let number = *self.numbers.entry(span.watched).or_insert_with(|| {
                self.watched.push(span.watched);
                to_index(self.watched.len() - 1)
            });
            Guard::between(*span, number)
        };
        spans.iter().map(guard).collect()
    }

    fn push_group(&mut self, guard: Guard, rules: Vec<GuardedRule>) {
        let from = to_index(self.rules.len());
        self.rules.extend(rules);
        let to = to_index(self.rules.len());
        // An empty group would only cost a check.
        if from < to {
            self.groups.push(Group { guard, from, to });
        }
    }
}

fn to_index(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn guarded_rule(rule: u32, guards: &[Guard]) -> GuardedRule {
    let nth = |nth| guards.get(nth).copied().unwrap_or(Guard::NONE);
    GuardedRule { rule, guards: std::array::from_fn(nth) }
}

/// Returns the ranges that the rule requires, the least likely first.
fn required_spans(rule: &Rule, witness: Option<u32>, predicates: &[Leaf]) -> Vec<Span> {
    let mut required = Vec::new();
    collect_required(&rule.when, true, rule, &mut required);
    required.retain(|(predicate, _)| Some(*predicate) != witness);
    let span = |(predicate, passes): (u32, bool)| required_span(&predicates[predicate as usize], passes);
    let mut spans: Vec<Span> = required.into_iter().filter_map(span).collect();
    spans.sort_by(|a, b| a.likelihood().total_cmp(&b.likelihood()));
    spans
}

/// Collects the predicates that must pass, or must fail, for the rule to pass.
fn collect_required(node: &Node, positive: bool, rule: &Rule, required: &mut Vec<(u32, bool)>) {
    match node {
        Node::Leaf(nth) => required.push((rule.leaves[*nth], positive)),
        Node::Not(inner) => collect_required(inner, !positive, rule, required),
        Node::All(inner) if positive => {
            inner.iter().for_each(|node| collect_required(node, true, rule, required));
        }
        Node::Any(inner) if !positive => {
            inner.iter().for_each(|node| collect_required(node, false, rule, required));
        }
        Node::All(_) | Node::Any(_) => {}
    }
}

/// Returns the range in which a value must lie for the condition to pass, or to fail.
fn required_span(leaf: &Leaf, passes: bool) -> Option<Span> {
    let Leaf::Field(field) = leaf else { return None };
    let watched_value = |booleans| WatchedValue { slot: field.slot(), is_boolean: booleans };
    match if passes { field.searched_values() } else { field.failing_values() }? {
        SearchedValues::Boolean(boolean) => {
            let number = f64::from(u8::from(boolean));
            Some(Span { watched: watched_value(true), low: number, high: number })
        }
        // All guards of a rule must be met, so they cannot express one of several ranges.
        SearchedValues::Ranges(ranges) => match ranges[..] {
            [(low, high)] => Some(Span { watched: watched_value(false), low, high }),
            _ => None,
        },
        SearchedValues::Texts(_) | SearchedValues::Related(_) => None,
    }
}

impl Run<'_, '_> {
    /// Makes candidates of the unindexed rules that meet their guards.
    pub(super) fn nominate_unindexed(&mut self) {
        for Group { guard, from, to } in &self.index.rule_lists.unindexed {
            if guard.watched == UNWATCHED || self.value_range(guard.watched).meets(guard) {
                self.nominate(*from, *to);
            } else {
                self.scratch.refuted_count += (to - from) as usize;
            }
        }
    }

    /// Makes candidates of the rules in the range that meet their guards. True if there is one.
    pub(super) fn nominate(&mut self, from: u32, to: u32) -> bool {
        let index = self.index;
        let mut has_candidates = false;
        for guarded in &index.rule_lists.rules[from as usize..to as usize] {
            let mut guards = guarded.guards.iter();
            if guards.all(|guard| guard.watched == UNWATCHED || self.value_range(guard.watched).meets(guard))
            {
                self.scratch.candidates.push(guarded.rule);
                has_candidates = true;
            } else {
                self.scratch.refuted_count += 1;
            }
        }
        has_candidates
    }

    fn value_range(&mut self, nth: u32) -> ValueRange {
        if let Some(noted_range) = self.scratch.value_range(nth) {
            return noted_range;
        }
        let WatchedValue { slot, is_boolean: booleans } = self.index.rule_lists.watched[nth as usize];
        let mut value_range = ValueRange::EMPTY;
        for (_, value) in self.input.fields.slot(slot).values.iter().flatten() {
            match value {
                Value::Number(number) if !booleans => value_range.add(number.to_f64()),
                Value::Datetime(instant) if !booleans => value_range.add(Number::from(instant.0).to_f64()),
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
    fn guard_accepts_every_value_between_its_ends() {
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
                let of = WatchedValue { slot: 0, is_boolean: false };
                let guard = Guard::between(Span { watched: of, low, high }, 0);
                for value in [low, high] {
                    assert!(ValueRange { low: value, high: value }.meets(&guard), "{value} in {low}..{high}");
                }
            }
        }
        let of = WatchedValue { slot: 0, is_boolean: false };
        let guard = Guard::between(Span { watched: of, low: 9_000.0, high: f64::INFINITY }, 0);
        assert!(!ValueRange { low: 1.0, high: 8_999.0 }.meets(&guard) && !ValueRange::EMPTY.meets(&guard));
    }
}
