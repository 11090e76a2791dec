//! What a rule needs of an item's numbers, kept beside the list of rules that a witness announces: most rules that are
//! announced end there, without a look at anything else of theirs.
//!
//! It refutes, and proves nothing: a rule that stays is judged as if nobody had looked.

use std::collections::HashMap;

use super::Run;
use crate::{
    compile::{Node, Rule},
    item::{Number, Value},
    leaves::{Leaf, Sought},
};

/// Guards of one rule, at most: further ones hardly refute what these have let pass, and a rule with two is half a line
/// of the cache.
const MOST: usize = 2;

/// The rules that each witness announces, with their guards.
#[derive(Debug, Default)]
pub(crate) struct Announced {
    /// By witness, and within it in order.
    rules: Box<[Guarded]>,
    /// What guards look at, numbered by them.
    watched: Box<[Watched]>,
}

#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
struct Guarded {
    rule: u32,
    guards: [Guard; MOST],
}

/// Unless one of the values lies between the two, ends included, the rule cannot match. The ends are rounded outwards.
#[derive(Clone, Copy, Debug)]
struct Guard {
    low: f32,
    high: f32,
    /// `NOTHING`: it refutes nothing.
    watched: u32,
}

/// The number of no watched value.
const NOTHING: u32 = u32::MAX;

impl Guard {
    const NONE: Self = Self { low: f32::NEG_INFINITY, high: f32::INFINITY, watched: NOTHING };

    #[expect(clippy::cast_possible_truncation, reason = "rounded, and then moved outwards")]
    fn between(low: f64, high: f64, watched: u32) -> Self {
        let (mut least, mut most) = (low as f32, high as f32);
        if f64::from(least) > low {
            least = least.next_down();
        }
        if f64::from(most) < high {
            most = most.next_up();
        }
        Self { low: least, high: most, watched }
    }
}

/// The values of one path that are numbers, or those that are booleans, as 0 and 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Watched {
    slot: usize,
    booleans: bool,
}

/// The smallest and the largest of the values that are watched; if there are none, nothing lies between them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reach {
    low: f64,
    high: f64,
}

impl Reach {
    pub(crate) const NOTHING: Self = Self { low: f64::INFINITY, high: f64::NEG_INFINITY };

    fn add(&mut self, value: f64) {
        self.low = self.low.min(value);
        self.high = self.high.max(value);
    }

    fn meets(self, guard: &Guard) -> bool {
        self.low <= f64::from(guard.high) && self.high >= f64::from(guard.low)
    }
}

impl Announced {
    /// By witness: its predicate, and the rules that it announces.
    pub(crate) fn new(lists: &[(u32, Vec<u32>)], all: &[impl AsRef<Rule>], predicates: &[Leaf]) -> Self {
        let mut rules = Vec::with_capacity(lists.iter().map(|(_, list)| list.len()).sum());
        let mut numbers: HashMap<Watched, u32> = HashMap::new();
        let mut watched = Vec::new();
        let place = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        for (witness, list) in lists {
            for number in list {
                let mut guarded = Guarded { rule: *number, guards: [Guard::NONE; MOST] };
                let rule = all[*number as usize].as_ref();
                let mut needed = Vec::new();
                needed_of(&rule.when, rule, &mut needed);
                // What announces the rule has passed already.
                needed.retain(|predicate| predicate != witness);
                let found = needed.into_iter().filter_map(|predicate| guard(&predicates[predicate as usize]));
                for (guard, (of, low, high)) in guarded.guards.iter_mut().zip(found) {
                    let number = *numbers.entry(of).or_insert_with(|| {
                        watched.push(of);
                        place(watched.len() - 1)
                    });
                    *guard = Guard::between(low, high, number);
                }
                rules.push(guarded);
            }
        }
        Self { rules: rules.into(), watched: watched.into() }
    }

    /// How many values are watched.
    pub(crate) fn watched(&self) -> usize {
        self.watched.len()
    }

    pub(crate) fn memory(&self) -> usize {
        size_of_val(&*self.rules)
    }
}

/// The predicates each of which must pass, or the rule cannot.
fn needed_of(node: &Node, rule: &Rule, needed: &mut Vec<u32>) {
    match node {
        Node::Leaf(nth) => needed.push(rule.leaves[*nth]),
        Node::All(inner) => inner.iter().for_each(|node| needed_of(node, rule, needed)),
        Node::Any(_) | Node::Not(_) => {}
    }
}

/// What a condition needs, if it is a value between two numbers.
fn guard(leaf: &Leaf) -> Option<(Watched, f64, f64)> {
    let Leaf::Field(field) = leaf else { return None };
    let of = |booleans| Watched { slot: field.slot(), booleans };
    match field.sought()? {
        Sought::Boolean(wanted) => {
            let number = f64::from(u8::from(wanted));
            Some((of(true), number, number))
        }
        Sought::Ranges(ranges) => match ranges[..] {
            [(low, high)] => Some((of(false), low, high)),
            _ => None,
        },
        Sought::Texts(_) | Sought::Related(_) => None,
    }
}

impl Run<'_, '_> {
    /// Makes candidates of the rules between two places that meet their guards; whether there are any.
    pub(super) fn nominate(&mut self, from: u32, to: u32) -> bool {
        let index = self.index;
        let mut some = false;
        for guarded in &index.announced.rules[from as usize..to as usize] {
            let mut guards = guarded.guards.iter();
            if guards.all(|guard| guard.watched == NOTHING || self.reach(guard.watched).meets(guard)) {
                self.scratch.candidates.push(guarded.rule);
                some = true;
            } else {
                self.scratch.refuted += 1;
            }
        }
        some
    }

    fn reach(&mut self, nth: u32) -> Reach {
        if let Some(known) = self.scratch.reach(nth) {
            return known;
        }
        let Watched { slot, booleans } = self.index.announced.watched[nth as usize];
        let mut reach = Reach::NOTHING;
        for (_, value) in self.scene.views.slot(slot).values.iter().flatten() {
            match value {
                Value::Number(number) if !booleans => reach.add(number.coarse()),
                Value::Datetime(instant) if !booleans => reach.add(Number::from(instant.0).coarse()),
                Value::Boolean(boolean) if booleans => reach.add(f64::from(u8::from(*boolean))),
                _ => {}
            }
        }
        self.scratch.note_reach(nth, reach);
        reach
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
                let guard = Guard::between(low, high, 0);
                for value in [low, high] {
                    assert!(Reach { low: value, high: value }.meets(&guard), "{value} in {low}..{high}");
                }
            }
        }
        let guard = Guard::between(9_000.0, f64::INFINITY, 0);
        assert!(!Reach { low: 1.0, high: 8_999.0 }.meets(&guard) && !Reach::NOTHING.meets(&guard));
    }
}
