//! Regular expression with its cost: the steps charged for a text before the search, depending on the engine that searches
//! it.
//!
//! A lazy automaton takes about 2 ns for each byte with any pattern. On a text that needs more states than its cache holds,
//! an engine without states takes up to 9 ns for each byte and each place of the pattern. The choice of the engine depends
//! on pattern and text alone, never on earlier texts of the thread, so a replay is charged the same.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use regex::Regex;
use regex_automata::{
    Input, MatchKind,
    hybrid::{dfa, regex as hybrid},
    nfa::thompson::{self, WhichCaptures},
    util::{pool::Pool, prefilter::Prefilter, syntax},
};

use super::{
    kept_states::{KeptStates, SearchFailed},
    literals::MAX_NESTING,
    width::{self, Width},
    worst_case::{self, WorstCase},
};
use crate::limits::{OutOfSteps, Steps, to_u64};

/// Length up to which a text is charged as if an automaton built a state for each byte, which takes about as long as the
/// engine without states. So short a text needs no automaton for the choice of the engine.
const BUILD_BYTES: usize = 256;

/// Bytes of states that a thread keeps for one direction of one pattern.
const CACHE_BYTES: usize = 256 << 10;

pub(crate) struct Pattern {
    regex: Regex,
    /// Class of the compiled size, see `needle::WEIGHTS`.
    pub(crate) weight: u64,
    /// Steps for every four bytes that an automaton reads.
    pub(crate) work: u64,
    width: Width,
    /// Built at the first search of a long text. `None` if that fails.
    automaton: OnceLock<Option<Automaton>>,
    /// Measured at its first use.
    worst_case: OnceLock<WorstCase>,
}

struct Automaton {
    regex: Arc<hybrid::Regex>,
    caches: Pool<StateCache, Box<dyn Fn() -> StateCache + Send + Sync>>,
}

type StateCache = KeptStates<hybrid::Cache>;

impl Pattern {
    pub(crate) fn new(regex: Regex, weight: u64) -> Self {
        let width = width::measure(regex.as_str());
        let work = width.work().max(weight);
        Self { work, weight, width, regex, automaton: OnceLock::new(), worst_case: OnceLock::new() }
    }

    pub(crate) fn regex(&self) -> &Regex {
        &self.regex
    }

    pub(crate) fn as_str(&self) -> &str {
        self.regex.as_str()
    }

    /// Steps of a search by an automaton with all of its states.
    pub(crate) fn base(&self, text: &str) -> u64 {
        self.base_of(text.len())
    }

    pub(crate) fn base_of(&self, bytes: usize) -> u64 {
        four_byte_units(bytes).saturating_mul(self.work)
    }

    /// Steps on the worst text of this length beyond those of an automaton.
    pub(crate) fn steps_beyond_base(&self, bytes: usize) -> u64 {
        let bytes = match self.width.may_explode {
            true if bytes <= BUILD_BYTES || self.worst_case().explodes => bytes,
            true => BUILD_BYTES,
            false => 0,
        };
        self.slow_steps(bytes)
    }

    /// True if, by the form of the pattern, a text could make the slow engine run over its whole length.
    pub(crate) fn may_explode(&self) -> bool {
        self.width.may_explode
    }

    fn worst_case(&self) -> &WorstCase {
        self.worst_case.get_or_init(|| measure(self.as_str()))
    }

    /// Steps of the engine without states beyond those of an automaton.
    fn slow_steps(&self, bytes: usize) -> u64 {
        if bytes == 0 {
            return 0;
        }
        let work = self.width.slow_work(bytes, self.worst_case().visits).saturating_sub(self.work);
        four_byte_units(bytes).saturating_mul(work)
    }

    /// Number of copies of the compiled size: the pattern, the states of a thread, and an automaton of this module.
    pub(crate) fn programs(&self) -> usize {
        2 + usize::from(self.width.may_explode)
    }

    pub(crate) fn is_match(&self, text: &str, steps: &mut Steps) -> Result<bool, OutOfSteps> {
        steps.take(self.base(text))?;
        self.is_match_beyond_base(text, |extra_steps| steps.take(extra_steps))
    }

    /// Like [`Self::is_match`], for a text that has been charged [`Self::base`].
    pub(crate) fn is_match_beyond_base(
        &self,
        text: &str,
        charge: impl FnMut(u64) -> Result<(), OutOfSteps>,
    ) -> Result<bool, OutOfSteps> {
        self.search(text, charge, is_match, Regex::is_match)
    }

    /// Start and end of the first match.
    pub(crate) fn find(&self, text: &str, steps: &mut Steps) -> Result<Option<(usize, usize)>, OutOfSteps> {
        steps.take(self.base(text))?;
        let find = |regex: &Regex, text: &str| regex.find(text).map(|found| (found.start(), found.end()));
        self.search(text, |extra_steps| steps.take(extra_steps), find_by_states, find)
    }

    fn search<T>(
        &self,
        text: &str,
        mut charge: impl FnMut(u64) -> Result<(), OutOfSteps>,
        fast: impl Fn(&mut hybrid::Cache, &hybrid::Regex, &str) -> Result<T, SearchFailed>,
        fallback: impl Fn(&Regex, &str) -> T,
    ) -> Result<T, OutOfSteps> {
        // An automaton with Unicode word boundaries stops at the first character beyond ASCII.
        if self.width.has_word_boundaries && !text.is_ascii() {
            charge(self.slow_steps(text.len()))?;
        } else if self.width.may_explode {
            charge(self.slow_steps(text.len().min(BUILD_BYTES)))?;
            if text.len() > BUILD_BYTES {
                let automaton = self.automaton.get_or_init(|| Automaton::new(self.as_str()));
                if let Some(Ok(result)) = automaton.as_ref().map(|automaton| automaton.search(text, &fast)) {
                    return Ok(result);
                }
                charge(self.slow_steps(text.len()).saturating_sub(self.slow_steps(BUILD_BYTES)))?;
            }
        }
        Ok(fallback(&self.regex, text))
    }
}

fn four_byte_units(bytes: usize) -> u64 {
    1 + to_u64(bytes) / 4
}

impl Automaton {
    fn new(pattern: &str) -> Option<Self> {
        let hir = syntax::parse_with(pattern, &syntax::Config::new().nest_limit(MAX_NESTING)).ok()?;
        let prefilter = Prefilter::from_hir_prefix(MatchKind::LeftmostFirst, &hir).filter(Prefilter::is_fast);
        let config = dfa::Config::new()
            // Only a prefilter needs to recognise start states.
            .specialize_start_states(prefilter.is_some())
            .prefilter(prefilter)
            .unicode_word_boundary(true)
            .cache_capacity(CACHE_BYTES)
            // A pattern that needs more than the capacity to start gets its minimum instead of an error.
            .skip_cache_capacity_check(true)
            // Fail when the cache is full for the first time: the engine without states takes over, and its steps are
            // charged.
            .minimum_cache_clear_count(Some(0));
        let limit = thompson::Config::new().nfa_size_limit(Some(8 * CACHE_BYTES));
        let regex = hybrid::Builder::new()
            .syntax(syntax::Config::new().nest_limit(MAX_NESTING))
            .thompson(limit)
            .dfa(config)
            .build(pattern)
            .ok()?;
        let regex = Arc::new(regex);
        let cache_regex = Arc::clone(&regex);
        let make = move || KeptStates::new(cache_regex.create_cache());
        Some(Self { regex, caches: Pool::new(Box::new(make)) })
    }

    fn search<T>(
        &self,
        text: &str,
        search: impl Fn(&mut hybrid::Cache, &hybrid::Regex, &str) -> Result<T, SearchFailed>,
    ) -> Result<T, SearchFailed> {
        let create_cache = || self.regex.create_cache();
        self.caches.get().search(create_cache, |states| search(states, &self.regex, text))
    }
}

/// Measures the program of the engine without states, and an automaton on the text built from that program.
fn measure(pattern: &str) -> WorstCase {
    let syntax = syntax::Config::new().nest_limit(MAX_NESTING);
    let limit =
        thompson::Config::new().which_captures(WhichCaptures::All).nfa_size_limit(Some(8 * CACHE_BYTES));
    let Ok(nfa) = thompson::Compiler::new().syntax(syntax).configure(limit).build(pattern) else {
        // Without a program to measure, the worst is assumed.
        return WorstCase { visits: 0, explodes: true };
    };
    let (mut worst_case, text) = worst_case::measure(&nfa);
    if let (false, Some(automaton)) = (worst_case.explodes, Automaton::new(pattern)) {
        let search = automaton
            .regex
            .forward()
            .try_search_fwd(&mut automaton.regex.forward().create_cache(), &Input::new(&text).earliest(true));
        worst_case.explodes = search.is_err();
    }
    worst_case
}

fn is_match(states: &mut hybrid::Cache, regex: &hybrid::Regex, text: &str) -> Result<bool, SearchFailed> {
    let input = Input::new(text).earliest(true);
    let half_match = regex.forward().try_search_fwd(states.as_parts_mut().0, &input);
    half_match.map(|half_match| half_match.is_some()).map_err(|_| SearchFailed)
}

fn find_by_states(
    states: &mut hybrid::Cache,
    regex: &hybrid::Regex,
    text: &str,
) -> Result<Option<(usize, usize)>, SearchFailed> {
    let result = regex.try_search(states, &Input::new(text)).map_err(|_| SearchFailed)?;
    Ok(result.map(|span| (span.start(), span.end())))
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pattern").field(&self.as_str()).finish()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::limits::Limits;

    fn random(bytes: usize, letters: &[u8]) -> String {
        let mut seed = 7_u64;
        let letter = |_| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            char::from(letters[usize::try_from(seed >> 33).unwrap_or_default() % letters.len()])
        };
        (0..bytes).map(letter).collect()
    }

    fn charged(pattern: &Pattern, text: &str) -> (bool, u64) {
        let limits = Limits {
            steps_per_item: u64::MAX,
            steps_per_rule: u64::MAX,
            cpu_ms_per_item: u64::MAX,
            ..Limits::default()
        };
        let mut steps = Steps::new(&limits);
        let found = pattern.is_match(text, &mut steps).unwrap();
        (found, u64::MAX - steps.left_for_item())
    }

    fn pattern(source: &str) -> Pattern {
        Pattern::new(Regex::new(source).unwrap(), 1)
    }

    #[test]
    fn text_with_too_many_states_is_charged_for_the_slow_engine() {
        let exploding = pattern("a[ab]{0,200}b[q-r]{3}");
        let (plain, hostile) = ("the quick brown fox ".repeat(3 << 10), random(60 << 10, b"ab"));
        let (cheap, dear) = (charged(&exploding, &plain).1, charged(&exploding, &hostile).1);
        assert!(dear > 5 * cheap, "{cheap} {dear}");
        // At 9 ns for each place and byte this is no more than 30 ns a step.
        assert!(dear * 30 > 9 * 200 * (60 << 10), "{dear}");
    }

    #[test]
    fn charge_is_independent_of_earlier_texts() {
        let (one, other) = (pattern("a[ab]{0,20}b[q-r]{3}"), pattern("a[ab]{0,20}b[q-r]{3}"));
        let texts = [random(60 << 10, b"ab"), random(2_000, b"abcdefgh"), random(60 << 10, b"abcdefghijklm")];
        let forth: Vec<_> = texts.iter().map(|text| charged(&one, text)).collect();
        let mut back: Vec<_> = texts.iter().rev().map(|text| charged(&other, text)).collect();
        back.reverse();
        assert_eq!(forth, back);
    }

    #[test]
    fn states_of_an_explosion_are_dropped() {
        let exploding = pattern("a[ab]{0,200}b[q-r]{3}");
        let kept = || {
            let automaton = exploding.automaton.get().and_then(Option::as_ref).unwrap();
            automaton.caches.get().states.memory_usage()
        };
        charged(&exploding, &"the quick brown fox ".repeat(30));
        let before = kept();
        charged(&exploding, &random(60 << 10, b"ab"));
        assert!(kept() <= before, "{} {before}", kept());
    }

    #[test]
    fn both_engines_find_the_same() {
        for source in [
            "a[ab]{0,20}c",
            "ab[ab]{0,200}c|ba[ab]{9}x",
            r"\b[a-z]{3,30}\d\b",
            "(?:[ab]{10}x|[bc]{2,}$)",
            "x*",
            r"(?m)^\w{5,20}$",
            ".",
        ] {
            let pattern = pattern(source);
            for text in [
                random(5_000, b"ab"),
                random(5_000, b"abc x1\n"),
                format!("ä{}", random(3_000, b"abc9 ")),
                String::new(),
            ] {
                let limits = Limits::default();
                let mut steps = Steps::new(&limits);
                let found = pattern.regex.find(&text).map(|found| (found.start(), found.end()));
                assert_eq!(pattern.find(&text, &mut steps), Ok(found), "{source}");
                steps.next_rule();
                assert_eq!(pattern.is_match(&text, &mut steps), Ok(found.is_some()), "{source}");
            }
        }
    }
}
