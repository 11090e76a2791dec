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

/// Guards of one rule, at most: further ones hardly refute what these have let pass.
const MOST: usize = 4;

/// The rules that each witness announces, with their guards.
#[derive(Debug, Default)]
pub(crate) struct Announced {
    /// By witness, and within it in order; one more at the end.
    rules: Box<[Guarded]>,
    guards: Box<[Guard]>,
    /// What guards look at, numbered by them.
    watched: Box<[Watched]>,
}

#[derive(Clone, Copy, Debug)]
struct Guarded {
    rule: u32,
    /// Where its guards begin; they end where the next one's begin.
    from: u32,
}

/// Unless one of the values lies between the two, ends included, the rule cannot match.
#[derive(Clone, Copy, Debug)]
struct Guard {
    low: f64,
    high: f64,
    watched: u32,
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
        self.low <= guard.high && self.high >= guard.low
    }
}

impl Announced {
    /// By witness: its predicate, and the rules that it announces.
    pub(crate) fn new(lists: &[(u32, Vec<u32>)], all: &[impl AsRef<Rule>], predicates: &[Leaf]) -> Self {
        let (mut rules, mut guards) = (Vec::new(), Vec::new());
        let mut numbers: HashMap<Watched, u32> = HashMap::new();
        let mut watched = Vec::new();
        let place = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        for (witness, list) in lists {
            for number in list {
                rules.push(Guarded { rule: *number, from: place(guards.len()) });
                let rule = all[*number as usize].as_ref();
                let mut needed = Vec::new();
                needed_of(&rule.when, rule, &mut needed);
                // What announces the rule has passed already.
                needed.retain(|predicate| predicate != witness);
                let found = needed.into_iter().filter_map(|predicate| guard(&predicates[predicate as usize]));
                for (of, low, high) in found.take(MOST) {
                    let number = *numbers.entry(of).or_insert_with(|| {
                        watched.push(of);
                        place(watched.len() - 1)
                    });
                    guards.push(Guard { low, high, watched: number });
                }
            }
        }
        rules.push(Guarded { rule: 0, from: place(guards.len()) });
        Self { rules: rules.into(), guards: guards.into(), watched: watched.into() }
    }

    /// How many values are watched.
    pub(crate) fn watched(&self) -> usize {
        self.watched.len()
    }

    pub(crate) fn memory(&self) -> usize {
        size_of_val(&*self.rules) + size_of_val(&*self.guards)
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
        let announced = &index.announced;
        let mut some = false;
        for pair in announced.rules[from as usize..=to as usize].windows(2) {
            let guards = &announced.guards[pair[0].from as usize..pair[1].from as usize];
            if guards.iter().all(|guard| self.reach(guard.watched).meets(guard)) {
                self.scratch.nominate(pair[0].rule);
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
