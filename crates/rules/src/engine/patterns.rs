//! Runs many patterns over a text in one pass: those that hold no text that could be waited for.
//!
//! It says which patterns match, not where. Its memory is bounded, and so is the time in which it grows: a set that
//! does not fit is split, and one that outgrows its memory later runs its patterns one by one.

use std::fmt;

use regex::Regex;
use regex_automata::{
    Input, MatchKind, PatternSet,
    hybrid::dfa::{Cache, DFA},
    nfa::thompson::{self, NFA, WhichCaptures},
    util::pool::Pool,
};
use regex_syntax::{ParserBuilder, hir::Hir};

use crate::search::{Next, literals::NEST};

/// Patterns of one set, and states of their common automaton: what an automaton has to go through for each byte that it
/// has not met in a state.
const PATTERNS: usize = 64;
const STATES: usize = 4_096;

/// A thread's memory for one set; how often it may be emptied before it is left as it is.
const MEMORY: usize = 1 << 20;
const CLEARED: usize = 2;

/// Patterns, each named by its place in the list that they were made of.
#[derive(Debug, Default)]
pub(crate) struct Patterns {
    sets: Vec<Set>,
    /// Patterns that are run one by one.
    alone: Vec<(u32, Regex)>,
}

struct Set {
    automaton: DFA,
    /// Number of each pattern of the automaton.
    patterns: Vec<(u32, Regex)>,
    cache_pool: Pool<SetCache, Box<dyn Fn() -> SetCache + Send + Sync>>,
}

/// State that a thread keeps between texts.
struct SetCache {
    cache: Cache,
    found: PatternSet,
}

/// A pattern, and what the automaton is made of.
struct Part {
    number: u32,
    regex: Regex,
    hir: Hir,
    states: usize,
}

impl Patterns {
    /// `sample`: texts of the kind that the patterns will meet, as far as anybody knows.
    pub(crate) fn new(patterns: &[Regex], sample: &str) -> Self {
        let mut all = Self::default();
        // An automaton with Unicode's borders of words gives up at each character beyond ASCII, so they stay apart.
        let (mut plain, mut borders) = (Vec::new(), Vec::new());
        for (number, regex) in (0_u32..).zip(patterns) {
            match Part::new(number, regex) {
                Some(part) if part.has_borders() => borders.push(part),
                Some(part) => plain.push(part),
                None => all.alone.push((number, regex.clone())),
            }
        }
        for parts in [plain, borders] {
            let mut group: Vec<Part> = Vec::new();
            let mut states = 0;
            for part in parts {
                if group.len() == PATTERNS || states + part.states > STATES {
                    all.join(std::mem::take(&mut group), sample);
                    states = 0;
                }
                states += part.states;
                group.push(part);
            }
            all.join(group, sample);
        }
        all
    }

    /// Makes one set of the patterns, or several if they do not fit into one.
    fn join(&mut self, mut parts: Vec<Part>, sample: &str) {
        if parts.len() > 1 {
            if let Some(set) = Set::new(&parts, sample) {
                self.sets.push(set);
            } else {
                let rest = parts.split_off(parts.len() / 2);
                self.join(parts, sample);
                self.join(rest, sample);
            }
        } else {
            self.alone.extend(parts.into_iter().map(|part| (part.number, part.regex)));
        }
    }

    /// Calls `found` with each of the `wanted` patterns that matches somewhere in the text, perhaps more than once.
    pub(crate) fn scan(
        &self,
        text: &str,
        wanted: &impl Fn(u32) -> bool,
        found: &mut impl FnMut(u32) -> Next,
    ) -> Next {
        for set in &self.sets {
            if set.scan(text, wanted, found) == Next::Stop {
                return Next::Stop;
            }
        }
        one_by_one(&self.alone, text, wanted, found)
    }

    /// Most bytes that one thread keeps.
    pub(crate) fn memory(&self) -> usize {
        self.sets.len() * MEMORY
    }

    /// Passes over a text that a scan takes.
    #[cfg(test)]
    fn passes(&self) -> usize {
        self.sets.len() + self.alone.len()
    }
}

impl Part {
    /// `None`: the pattern can only be run alone.
    fn new(number: u32, regex: &Regex) -> Option<Self> {
        let hir = ParserBuilder::new().nest_limit(NEST).build().parse(regex.as_str()).ok()?;
        let states = nfa(std::slice::from_ref(&hir))?.states().len();
        (states <= STATES / 4).then(|| Self { number, regex: regex.clone(), hir, states })
    }

    fn has_borders(&self) -> bool {
        self.hir.properties().look_set().contains_word_unicode()
    }
}

fn nfa(hirs: &[Hir]) -> Option<NFA> {
    let config = thompson::Config::new().which_captures(WhichCaptures::None).nfa_size_limit(Some(4 * MEMORY));
    thompson::Compiler::new().configure(config).build_many_from_hir(hirs).ok()
}

impl Set {
    fn new(parts: &[Part], sample: &str) -> Option<Self> {
        let hirs: Vec<Hir> = parts.iter().map(|part| part.hir.clone()).collect();
        let config = DFA::config()
            .match_kind(MatchKind::All)
            .unicode_word_boundary(true)
            .cache_capacity(MEMORY)
            .minimum_cache_clear_count(Some(CLEARED));
        let automaton = DFA::builder().configure(config).build_from_nfa(nfa(&hirs)?).ok()?;
        let mut cache_pool = SetCache::new(&automaton);
        cache_pool.run(&automaton, sample).ok()?;
        if cache_pool.cache.clear_count() > 0 {
            return None;
        }
        let own = automaton.clone();
        Some(Self {
            automaton,
            patterns: parts.iter().map(|part| (part.number, part.regex.clone())).collect(),
            cache_pool: Pool::new(Box::new(move || SetCache::new(&own))),
        })
    }

    fn scan(&self, text: &str, wanted: &impl Fn(u32) -> bool, found: &mut impl FnMut(u32) -> Next) -> Next {
        let mut cache_pool = self.cache_pool.get();
        if cache_pool.run(&self.automaton, text).is_err() {
            return one_by_one(&self.patterns, text, wanted, found);
        }
        for pattern in cache_pool.found.iter() {
            let pattern = self.patterns[pattern.as_usize()].0;
            if wanted(pattern) && found(pattern) == Next::Stop {
                return Next::Stop;
            }
        }
        Next::Go
    }
}

/// The text is not for this set, or the set has no memory left for it.
struct GaveUp;

impl SetCache {
    fn new(automaton: &DFA) -> Self {
        Self { cache: automaton.create_cache(), found: PatternSet::new(automaton.pattern_len()) }
    }

    fn run(&mut self, automaton: &DFA, text: &str) -> Result<(), GaveUp> {
        self.found.clear();
        automaton
            .try_which_overlapping_matches(&mut self.cache, &Input::new(text), &mut self.found)
            .map_err(|_| GaveUp)
    }
}

fn one_by_one(
    patterns: &[(u32, Regex)],
    text: &str,
    wanted: &impl Fn(u32) -> bool,
    found: &mut impl FnMut(u32) -> Next,
) -> Next {
    for (number, regex) in patterns {
        if wanted(*number) && regex.is_match(text) && found(*number) == Next::Stop {
            return Next::Stop;
        }
    }
    Next::Go
}

impl fmt::Debug for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.patterns.iter().map(|(_, regex)| regex.as_str())).finish()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeSet;

    use super::*;

    fn regexes(patterns: &[String]) -> Vec<Regex> {
        patterns.iter().map(|pattern| Regex::new(pattern).unwrap()).collect()
    }

    fn matching(patterns: &Patterns, text: &str) -> BTreeSet<u32> {
        let mut found = BTreeSet::new();
        patterns.scan(text, &|_| true, &mut |number| {
            found.insert(number);
            Next::Go
        });
        found
    }

    fn one_at_a_time(regexes: &[Regex], text: &str) -> BTreeSet<u32> {
        (0..).zip(regexes).filter(|(_, regex)| regex.is_match(text)).map(|(number, _)| number).collect()
    }

    const TEXTS: [&str; 9] = [
        "",
        "a",
        "call 555-1234 now",
        "AB12 ab12 a1b2c3",
        "größer, ÄÖÜ 日本語 99",
        "x\ny\n12:30\n",
        "aaaaaaaaaaaaaaaaaaaaaaaa!",
        "\u{200b}é1 \u{301}",
        "zz top 7",
    ];

    #[test]
    fn pattern_set_finds_what_each_pattern_finds() {
        let shapes = [
            r"\d{N,}-\d+",
            r"[a-z]{N}[0-9]",
            r"\b\w{N}\b",
            r"^[A-Z]{1,N}",
            r"(?m)^.{N}$",
            r"\W{N}",
            r"[^a-z\s]{N}",
            r"(?i)[a-c]+N?",
            r"a*",
            r"\p{Han}{1,N}",
            r"(?s).{N}$",
            r"[x-z]\s*[x-z]",
            r"\B\d\B",
        ];
        let patterns: Vec<String> =
            (1..12).flat_map(|n| shapes.map(|shape| shape.replace('N', &n.to_string()))).collect();
        let regexes = regexes(&patterns);
        let joined = Patterns::new(&regexes, "some text 123");
        assert!(joined.passes() < regexes.len() / 2, "{}", joined.passes());
        let mut found = 0;
        for text in TEXTS {
            let expected = one_at_a_time(&regexes, text);
            found += expected.len();
            assert_eq!(matching(&joined, text), expected, "{text:?}");
        }
        assert!(found > 200, "{found}");
    }

    #[test]
    fn pattern_set_out_of_cache_still_finds_everything() {
        // Each asks for another distance, so the automaton has to know where every `a` of the last bytes stood.
        let patterns: Vec<String> = (10..40).map(|n| format!("a[ab]{{{n}}}c|b[ab]{{{n}}}d")).collect();
        let regexes = regexes(&patterns);
        let joined = Patterns::new(&regexes, "");
        let mut seed = 7_u64;
        for length in [100, 3_000, 30_000, 100, 3_000] {
            let letter = |_| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                if seed >> 33 & 1 == 0 { 'a' } else { 'b' }
            };
            let text: String = (0..length).map(letter).chain(['c']).collect();
            assert_eq!(matching(&joined, &text), one_at_a_time(&regexes, &text));
        }
    }

    #[test]
    fn patterns_that_are_too_large_together_are_split() {
        let patterns: Vec<String> =
            (0..200).map(|n| format!(r"[a-f]{{{}}}[0-9]{{2}}", 20 + n % 50)).collect();
        let joined = Patterns::new(&regexes(&patterns), &"abcdef 12 ".repeat(1_000));
        assert!(joined.passes() > 1 && joined.passes() <= 200, "{}", joined.passes());
    }
}
