//! Worst case of a pattern, measured on a text built from the pattern: the states that the engine without an automaton
//! visits for each byte, and whether the text makes an automaton build states without end.
//!
//! The text follows the compiled program: each byte is taken from a live state, so that many states stay alive, and no byte
//! completes a match. States are counted instead of time, so a pattern has the same price on every machine.

use std::collections::HashSet;

use regex_automata::{
    nfa::thompson::{NFA, State},
    util::primitives::StateID,
};

use crate::limits::to_u64;

/// Visited states of one measurement, which takes some milliseconds. With fewer, the text for a wide pattern would be too
/// short.
const MAX_VISITS: usize = 1 << 18;

/// Maximum bytes of the text.
const MAX_BYTES: usize = 16 << 10;

/// Bytes tried at each place. The one with the most live states is taken.
const TRIES: usize = 3;

/// Worst case of one pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorstCase {
    /// States of the program that are visited for one byte.
    pub(crate) visits: u64,
    /// True if the text kept producing new sets of states.
    pub(crate) explodes: bool,
}

/// Set of states, in the order in which they were reached.
struct StateSet {
    states: Vec<StateID>,
    /// Number of the last set that contained each state.
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

    /// Adds a state and the states that it leads to without a byte. Every look-around counts as passed.
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

    /// Becomes the successor of another set after a byte.
    fn set_successor(&mut self, nfa: &NFA, predecessor: &Self, byte: u8) {
        self.clear();
        for state in &predecessor.states {
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
            let mixed = (to_u64(state.as_usize()) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            sum ^ (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
        })
    }
}

/// Random numbers that are the same in each measurement.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap_or_default() % sides.max(1)
    }
}

/// Measures a program on a text built from it, and returns the text too.
pub(crate) fn measure(nfa: &NFA) -> (WorstCase, Vec<u8>) {
    let (mut dice, mut text) = (Dice(0x2545_f491_4f6c_dd1d), Vec::new());
    let mut sets = [StateSet::new(nfa), StateSet::new(nfa), StateSet::new(nfa)];
    sets[0].clear();
    sets[0].add(nfa, nfa.start_anchored());
    let (mut visited, mut kept, mut novelties) = (0, 0, Vec::new());
    let mut known_sets = HashSet::new();
    while visited < MAX_VISITS && text.len() < MAX_BYTES {
        let [current, best, tried] = &mut sets;
        let mut best_byte = None;
        // From time to time any byte that keeps a state alive, because the best byte alone would soon lead into a cycle.
        let tries = if dice.roll(4) == 0 { 1 } else { TRIES };
        for _ in 0..tries {
            let Some(byte) = pick_live_byte(nfa, current, &mut dice) else { break };
            tried.set_successor(nfa, current, byte);
            visited += tried.states.len();
            // A match would end the search, so bytes without one rank first.
            let rank = |set: &StateSet| (!set.has_match, set.states.len());
            if best_byte.is_none() || rank(tried) > rank(best) {
                best_byte = Some(byte);
                std::mem::swap(best, tried);
            }
        }
        // The pattern reads no byte.
        let Some(byte) = best_byte else { break };
        text.push(byte);
        kept += best.states.len();
        novelties.push(known_sets.insert(best.fingerprint()));
        sets.swap(0, 1);
    }
    // Early on every set is new, so only the later half shows whether new sets keep being reached.
    let later_half = &novelties[novelties.len() / 2..];
    let new_sets = later_half.iter().filter(|is_new| **is_new).count();
    let explodes = 4 * new_sets > later_half.len();
    (WorstCase { visits: to_u64(kept.div_ceil(text.len().max(1))), explodes }, text)
}

/// Picks a byte that a state of the set can read. ASCII is preferred: other characters have several bytes, of which the
/// later ones leave little choice.
fn pick_live_byte(nfa: &NFA, set: &StateSet, dice: &mut Dice) -> Option<u8> {
    let from = dice.roll(set.states.len());
    let states = set.states[from..].iter().chain(&set.states[..from]);
    states.into_iter().find_map(|state| match nfa.state(*state) {
        State::ByteRange { trans } => Some(pick_from_range(trans.start, trans.end, dice)),
        State::Sparse(transitions) => {
            let all = &transitions.transitions;
            let ascii = all.partition_point(|transition| transition.start < 0x80);
            let transition = all.get(dice.roll(if ascii > 0 { ascii } else { all.len() }))?;
            Some(pick_from_range(transition.start, transition.end, dice))
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

/// Picks one of the first bytes of a range, because few letters of a large range would occur twice.
fn pick_from_range(start: u8, end: u8, dice: &mut Dice) -> u8 {
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
    fn exploding_patterns_are_distinguished_from_harmless_ones() {
        let harmless = [
            r"crypto giveaway\s+today",
            "(?i)(?:free|win) ?lottery",
            "(?:abc){50}",
            "wallet.*seed phrase",
            "a[ab]{3}c",
            "[^a]*b",
            "x*",
            "",
            // Large, but the last bytes determine the live states.
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
