//! Worst case of a pattern, measured on a text that is made from the pattern: states that the engine without an automaton
//! visits for a byte, and whether the text makes an automaton build states without end.
//!
//! The text follows the compiled program: each byte is taken from a state that is alive, so that many stay alive, and none
//! completes a match. It counts states instead of time, so the same pattern has the same price on every machine.

use std::collections::HashSet;

use regex_automata::{
    nfa::thompson::{NFA, State},
    util::primitives::StateID,
};

use crate::limits::wide;

/// States that one measurement visits, which takes some milliseconds. Of fewer, a wide pattern would have too short a text.
const MOST_VISITS: usize = 1 << 18;

/// Longest text that is made.
const MOST_BYTES: usize = 16 << 10;

/// Bytes that are tried at each place. The one that leaves most states alive is taken.
const TRIED: usize = 3;

/// Worst case of one pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorstCase {
    /// States of the program that are visited for one byte.
    pub(crate) visits: u64,
    /// True if sets of states kept coming that the text had not had before.
    pub(crate) explodes: bool,
}

/// Set of states, in the order in which they were reached.
struct StateSet {
    states: Vec<StateID>,
    /// Number of the set in which each state was last.
    member_of: Vec<u32>,
    number: u32,
    has_match: bool,
    stack: Vec<StateID>,
}

impl StateSet {
    fn new(nfa: &NFA) -> Self {
        let member_of = vec![0; nfa.states().len()];
        Self { states: Vec::new(), member_of, number: 0, has_match: false, stack: Vec::new() }
    }

    fn clear(&mut self) {
        self.states.clear();
        self.number += 1;
        self.has_match = false;
    }

    /// Adds a state and those that it leads to without a byte. Every look-around counts as passed.
    fn add(&mut self, nfa: &NFA, state: StateID) {
        self.stack.push(state);
        while let Some(state) = self.stack.pop() {
            if std::mem::replace(&mut self.member_of[state.as_usize()], self.number) == self.number {
                continue;
            }
            self.states.push(state);
            match nfa.state(state) {
                State::Union { alternates } => self.stack.extend(alternates.iter().rev()),
                State::BinaryUnion { alt1, alt2 } => self.stack.extend([*alt2, *alt1]),
                State::Capture { next, .. } | State::Look { next, .. } => self.stack.push(*next),
                State::Match { .. } => self.has_match = true,
                State::ByteRange { .. } | State::Sparse(_) | State::Dense(_) | State::Fail => {}
            }
        }
    }

    /// Becomes the set that follows another one at a byte.
    fn follow(&mut self, nfa: &NFA, before: &Self, byte: u8) {
        self.clear();
        for state in &before.states {
            let next = match nfa.state(*state) {
                State::ByteRange { trans } if trans.matches_byte(byte) => Some(trans.next),
                State::Sparse(transitions) => transitions.matches_byte(byte),
                State::Dense(transitions) => transitions.matches_byte(byte),
                _ => None,
            };
            if let Some(next) = next {
                self.add(nfa, next);
            }
        }
        self.add(nfa, nfa.start_anchored());
    }

    fn fingerprint(&self) -> u64 {
        self.states.iter().fold(0, |sum, state| {
            let mixed = (wide(state.as_usize()) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            sum ^ (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
        })
    }
}

/// Same numbers at each measurement.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap_or_default() % sides.max(1)
    }
}

/// Measures a program on a text that is made for it, and returns the text as well.
pub(crate) fn measure(nfa: &NFA) -> (WorstCase, Vec<u8>) {
    let (mut dice, mut text) = (Dice(0x2545_f491_4f6c_dd1d), Vec::new());
    let mut sets = [StateSet::new(nfa), StateSet::new(nfa), StateSet::new(nfa)];
    sets[0].clear();
    sets[0].add(nfa, nfa.start_anchored());
    let (mut visited, mut kept, mut novelties) = (0, 0, Vec::new());
    let mut seen = HashSet::new();
    while visited < MOST_VISITS && text.len() < MOST_BYTES {
        let [current, best, tried] = &mut sets;
        let mut best_byte = None;
        // Now and then any byte that keeps a state alive: always the best one would soon go in circles.
        let tries = if dice.roll(4) == 0 { 1 } else { TRIED };
        for _ in 0..tries {
            let Some(byte) = any_byte(nfa, current, &mut dice) else { break };
            tried.follow(nfa, current, byte);
            visited += tried.states.len();
            let rank = |set: &StateSet| (!set.has_match, set.states.len());
            if best_byte.is_none() || rank(tried) > rank(best) {
                best_byte = Some(byte);
                std::mem::swap(best, tried);
            }
        }
        // A pattern that reads nothing.
        let Some(byte) = best_byte else { break };
        text.push(byte);
        kept += best.states.len();
        novelties.push(seen.insert(best.fingerprint()));
        sets.swap(0, 1);
    }
    let later = &novelties[novelties.len() / 2..];
    let new = later.iter().filter(|is_new| **is_new).count();
    let explodes = 4 * new > later.len();
    (WorstCase { visits: wide(kept.div_ceil(text.len().max(1))), explodes }, text)
}

/// A byte that some state of the set can read. ASCII where there is any: other characters are several bytes, of which the
/// later ones leave little choice.
fn any_byte(nfa: &NFA, set: &StateSet, dice: &mut Dice) -> Option<u8> {
    let from = dice.roll(set.states.len());
    let states = set.states[from..].iter().chain(&set.states[..from]);
    states.into_iter().find_map(|state| match nfa.state(*state) {
        State::ByteRange { trans } => Some(byte_of(trans.start, trans.end, dice)),
        State::Sparse(transitions) => {
            let all = &transitions.transitions;
            let ascii = all.partition_point(|transition| transition.start < 0x80);
            let transition = all.get(dice.roll(if ascii > 0 { ascii } else { all.len() }))?;
            Some(byte_of(transition.start, transition.end, dice))
        }
        State::Dense(transitions) => {
            let from = u8::try_from(dice.roll(256)).unwrap_or_default();
            (0..=u8::MAX)
                .map(|nth| from.wrapping_add(nth))
                .find(|byte| transitions.matches_byte(*byte).is_some())
        }
        _ => None,
    })
}

/// One of the first bytes of a range: a range of many letters would leave few of them twice.
fn byte_of(start: u8, end: u8, dice: &mut Dice) -> u8 {
    let letters = usize::from(end - start).min(3) + 1;
    start.saturating_add(u8::try_from(dice.roll(letters)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn worst_case(pattern: &str) -> WorstCase {
        measure(&NFA::new(pattern).unwrap()).0
    }

    #[test]
    fn patterns_that_explode_are_told_from_those_that_do_not() {
        let harmless = [
            r"crypto giveaway\s+today",
            "(?i)(?:free|win) ?lottery",
            "(?:abc){50}",
            "wallet.*seed phrase",
            "a[ab]{3}c",
            "[^a]*b",
            "x*",
            "",
            // Large, and yet the last bytes say which states are alive.
            "(?:.*a){12}z",
            r"\b[a-z]{3,60}\d\b",
            "x(?:x?a?){50}b!",
        ];
        let exploding = ["a[ab]{20}c", "a.{0,200}b[q-r]{9}", "i[a-z ]{0,60}[0-9]q", "(?i)x[a-z]{9,40}!"];
        for (patterns, explodes) in [(&harmless[..], false), (&exploding[..], true)] {
            let others: Vec<_> = patterns.iter().filter(|it| worst_case(it).explodes != explodes).collect();
            assert!(others.is_empty(), "{others:?} {explodes}");
        }
    }

    #[test]
    fn groups_cost_as_many_states_as_they_add() {
        let (plain, grouped) = (worst_case("a[ab]{49}c"), worst_case("a(((((([ab])))))){49}c"));
        assert!(plain.visits >= 20 && grouped.visits > 8 * plain.visits, "{plain:?} {grouped:?}");
        assert_eq!(worst_case("a[ab]{49}c"), plain, "it is the same each time");
    }
}
