//! State of an evaluation, kept by the thread between items and never cleared.
//!
//! Every mark carries the tick at which it was made: marks of earlier items are as good as none.

use std::{
    cell::Cell,
    collections::{HashMap, HashSet},
};

use super::{
    dedup_list::{Bits, DedupList},
    guards::ValueRange,
};
use crate::{logic::Mask, search::hashing::BuildFastHasher};

thread_local! {
    static SCRATCH: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}

/// Words that are remembered as settled: few, so that they stay in the nearest cache however many words are sought.
const WORDS: usize = 256;

pub(crate) struct Scratch {
    /// Grows with each item and each text; what was marked at another tick counts as unmarked.
    tick: u32,
    item: u32,
    predicates: Vec<(u32, Evaluated)>,
    /// Words that say nothing new in a text, and at which tick that was. Some may be forgotten for others.
    words: Box<[(u32, u32); WORDS]>,
    /// Numbers by watched value.
    value_ranges: Vec<(u32, ValueRange)>,
    /// Rules that their guards have refuted.
    pub(crate) refuted: usize,
    pub(crate) candidates: DedupList<u32, Bits>,
    /// Predicates and the needles of them that are in the item.
    pub(crate) found: DedupList<(u32, u32), HashSet<(u32, u32), BuildFastHasher>>,
    /// Steps that the slow engine took for each predicate whose patterns needed it. Hardly any item has some.
    slow_steps: HashMap<u32, u64>,
}

impl Default for Scratch {
    fn default() -> Self {
        Self {
            tick: 0,
            item: 0,
            predicates: Vec::new(),
            words: Box::new([(0, 0); WORDS]),
            value_ranges: Vec::new(),
            refuted: 0,
            candidates: DedupList::default(),
            found: DedupList::default(),
            slow_steps: HashMap::new(),
        }
    }
}

/// Outcome of a predicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Evaluated {
    Is(Mask),
    /// It takes more steps than there are.
    OutOfSteps,
}

impl Scratch {
    /// Runs with the thread's scratch, or with a new one if that is in use further up.
    pub(crate) fn with<T>(predicates: usize, watched: usize, run: impl FnOnce(&mut Self) -> T) -> T {
        let mut scratch = SCRATCH.take().unwrap_or_default();
        scratch.begin(predicates, watched);
        let result = run(&mut scratch);
        scratch.candidates.forget();
        scratch.found.forget();
        SCRATCH.set(Some(scratch));
        result
    }

    fn begin(&mut self, predicates: usize, watched: usize) {
        // Texts of one item are bounded in bytes, so they cannot use up what is left here.
        if self.tick > u32::MAX / 2 {
            *self = Self::default();
        }
        grow(&mut self.predicates, predicates, (0, Evaluated::OutOfSteps));
        grow(&mut self.value_ranges, watched, (0, ValueRange::NOTHING));
        self.refuted = 0;
        self.slow_steps.clear();
        self.tick += 1;
        self.item = self.tick;
    }

    pub(crate) fn next_text(&mut self) {
        self.tick += 1;
    }

    pub(crate) fn known(&self, predicate: u32) -> Option<Evaluated> {
        let (at, known) = self.predicates[predicate as usize];
        (at == self.item).then_some(known)
    }

    pub(crate) fn note(&mut self, predicate: u32, known: Evaluated) {
        self.predicates[predicate as usize] = (self.item, known);
    }

    /// Steps that the slow engine took for a predicate so far.
    pub(crate) fn slow_steps(&self, predicate: u32) -> u64 {
        self.slow_steps.get(&predicate).copied().unwrap_or_default()
    }

    pub(crate) fn add_slow_steps(&mut self, predicate: u32, steps: u64) {
        let taken = self.slow_steps.entry(predicate).or_default();
        *taken = taken.saturating_add(steps);
    }

    pub(crate) fn value_range(&self, watched: u32) -> Option<ValueRange> {
        let (at, value_range) = self.value_ranges[watched as usize];
        (at == self.item).then_some(value_range)
    }

    pub(crate) fn note_value_range(&mut self, watched: u32, value_range: ValueRange) {
        self.value_ranges[watched as usize] = (self.item, value_range);
    }

    /// True if nothing more is to be learnt from a word's places in this text, as far as that is remembered.
    pub(crate) fn is_settled(&self, word: u32) -> bool {
        self.words[word as usize % WORDS] == (word, self.tick)
    }

    pub(crate) fn settle(&mut self, word: u32) {
        self.words[word as usize % WORDS] = (word, self.tick);
    }
}

fn grow<T: Clone>(marks: &mut Vec<T>, length: usize, unmarked: T) {
    if marks.len() < length {
        marks.resize(length, unmarked);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Scratch {
        /// Bytes that a thread keeps.
        pub(crate) fn bytes(&self) -> usize {
            let noted = self.candidates.bytes() + self.found.bytes();
            let marks = size_of_val(&*self.predicates) + size_of_val(&*self.value_ranges);
            size_of_val(&*self.words) + noted + marks
        }
    }

    #[test]
    fn marks_of_one_item_mean_nothing_to_the_next() {
        let mark = |scratch: &mut Scratch| {
            let before = (scratch.known(3), scratch.is_settled(0), scratch.candidates.as_slice().len());
            scratch.note(3, Evaluated::Is(Mask::PASSED));
            scratch.settle(0);
            scratch.candidates.push(1);
            (before, scratch.known(3), scratch.is_settled(0), scratch.candidates.as_slice().len())
        };
        for _ in 0..3 {
            let seen = Scratch::with(4, 0, mark);
            assert_eq!(seen, ((None, false, 0), Some(Evaluated::Is(Mask::PASSED)), true, 1));
        }
    }

    #[test]
    fn nested_evaluation_has_its_own_scratch() {
        Scratch::with(1, 0, |outer| {
            outer.note(0, Evaluated::Is(Mask::PASSED));
            Scratch::with(1, 0, |inner| assert_eq!(inner.known(0), None));
            assert_eq!(outer.known(0), Some(Evaluated::Is(Mask::PASSED)));
        });
    }

    #[test]
    fn ticks_restart_before_overflow() {
        let mut scratch = Scratch { tick: u32::MAX / 2 + 1, ..Scratch::default() };
        scratch.begin(1, 0);
        assert_eq!((scratch.tick, scratch.known(0)), (1, None));
    }
}
