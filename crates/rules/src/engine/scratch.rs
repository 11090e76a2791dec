//! State of an evaluation, which each thread reuses from item to item without clearing it. Every mark carries the tick at
//! which it was made, and is void at any other.

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

/// Words that are remembered as settled. Few, so that they stay in the first level of the cache with any number of words.
const SETTLED_WORDS: usize = 256;

pub(crate) struct Scratch {
    /// Incremented for each item and each text. Marks of other ticks are void.
    tick: u32,
    item_tick: u32,
    predicates: Vec<(u32, Evaluation)>,
    /// Words that are settled, with the tick of their text: further places add no information. A word may displace another.
    settled_words: Box<[(u32, u32); SETTLED_WORDS]>,
    /// Ranges by watched value, with their tick.
    value_ranges: Vec<(u32, ValueRange)>,
    /// Number of rules that their guards have refuted.
    pub(crate) refuted_count: usize,
    pub(crate) candidates: DedupList<u32, Bits>,
    /// Needles found in the item, with their predicates.
    pub(crate) found_needles: DedupList<(u32, u32), HashSet<(u32, u32), BuildFastHasher>>,
    /// Steps of the slow engine by predicate. Empty for almost every item.
    slow_steps: HashMap<u32, u64>,
}

impl Default for Scratch {
    fn default() -> Self {
        Self {
            tick: 0,
            item_tick: 0,
            predicates: Vec::new(),
            settled_words: Box::new([(0, 0); SETTLED_WORDS]),
            value_ranges: Vec::new(),
            refuted_count: 0,
            candidates: DedupList::default(),
            found_needles: DedupList::default(),
            slow_steps: HashMap::new(),
        }
    }
}

/// State of a predicate after its evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Evaluation {
    Mask(Mask),
    /// It takes more steps than are left.
    OutOfSteps,
}

impl Scratch {
    /// Runs with the thread's scratch, or with a new one while an outer evaluation uses that.
    pub(crate) fn with<T>(predicates: usize, watched: usize, run: impl FnOnce(&mut Self) -> T) -> T {
        // The cell stays empty during the evaluation, so that a nested one gets a scratch of its own.
        let mut scratch = SCRATCH.take().unwrap_or_default();
        scratch.begin(predicates, watched);
        let result = run(&mut scratch);
        scratch.candidates.reset();
        scratch.found_needles.reset();
        SCRATCH.set(Some(scratch));
        result
    }

    fn begin(&mut self, predicates: usize, watched: usize) {
        // The tick advances once for each text, and the texts of an item are bounded in bytes, so the upper half of the
        // range suffices for one item.
        if self.tick > u32::MAX / 2 {
            *self = Self::default();
        }
        grow(&mut self.predicates, predicates, (0, Evaluation::OutOfSteps));
        grow(&mut self.value_ranges, watched, (0, ValueRange::EMPTY));
        self.refuted_count = 0;
        self.slow_steps.clear();
        self.tick += 1;
        self.item_tick = self.tick;
    }

    pub(crate) fn next_text(&mut self) {
        self.tick += 1;
    }

    pub(crate) fn evaluation(&self, predicate: u32) -> Option<Evaluation> {
        let (at, evaluation) = self.predicates[predicate as usize];
        (at == self.item_tick).then_some(evaluation)
    }

    pub(crate) fn note(&mut self, predicate: u32, evaluation: Evaluation) {
        self.predicates[predicate as usize] = (self.item_tick, evaluation);
    }

    /// Steps that the slow engine has taken for a predicate.
    pub(crate) fn slow_steps(&self, predicate: u32) -> u64 {
        self.slow_steps.get(&predicate).copied().unwrap_or_default()
    }

    pub(crate) fn add_slow_steps(&mut self, predicate: u32, steps: u64) {
        let total_steps = self.slow_steps.entry(predicate).or_default();
        *total_steps = total_steps.saturating_add(steps);
    }

    pub(crate) fn value_range(&self, watched: u32) -> Option<ValueRange> {
        let (at, value_range) = self.value_ranges[watched as usize];
        (at == self.item_tick).then_some(value_range)
    }

    pub(crate) fn note_value_range(&mut self, watched: u32, value_range: ValueRange) {
        self.value_ranges[watched as usize] = (self.item_tick, value_range);
    }

    /// True if further places of the word in this text add no information. False if that was forgotten.
    pub(crate) fn is_settled(&self, word: u32) -> bool {
        self.settled_words[word as usize % SETTLED_WORDS] == (word, self.tick)
    }

    pub(crate) fn settle(&mut self, word: u32) {
        self.settled_words[word as usize % SETTLED_WORDS] = (word, self.tick);
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
            let noted = self.candidates.bytes() + self.found_needles.bytes();
            let marks = size_of_val(&*self.predicates) + size_of_val(&*self.value_ranges);
            size_of_val(&*self.settled_words) + noted + marks
        }
    }

    #[test]
    fn marks_of_one_item_are_void_for_the_next() {
        let mark = |scratch: &mut Scratch| {
            let before = (scratch.evaluation(3), scratch.is_settled(0), scratch.candidates.as_slice().len());
            scratch.note(3, Evaluation::Mask(Mask::PASSED));
            scratch.settle(0);
            scratch.candidates.push(1);
            (before, scratch.evaluation(3), scratch.is_settled(0), scratch.candidates.as_slice().len())
        };
        for _ in 0..3 {
            let seen = Scratch::with(4, 0, mark);
            assert_eq!(seen, ((None, false, 0), Some(Evaluation::Mask(Mask::PASSED)), true, 1));
        }
    }

    #[test]
    fn nested_evaluation_has_its_own_scratch() {
        Scratch::with(1, 0, |outer| {
            outer.note(0, Evaluation::Mask(Mask::PASSED));
            Scratch::with(1, 0, |inner| assert_eq!(inner.evaluation(0), None));
            assert_eq!(outer.evaluation(0), Some(Evaluation::Mask(Mask::PASSED)));
        });
    }

    #[test]
    fn ticks_restart_before_overflow() {
        let mut scratch = Scratch { tick: u32::MAX / 2 + 1, ..Scratch::default() };
        scratch.begin(1, 0);
        assert_eq!((scratch.tick, scratch.evaluation(0)), (1, None));
    }
}
