//! Runs many patterns without a literal over a text in one pass, and reports which of them match. Memory and the time in
//! which it grows are bounded: a set that does not fit is split, and on a text that needs more states than a set may have,
//! its patterns run one by one.

use std::{fmt, sync::Arc};

use regex_automata::{
    Input, MatchKind, PatternSet,
    hybrid::dfa::{Cache, DFA},
    nfa::thompson::{self, NFA, WhichCaptures},
    util::pool::Pool,
};
use regex_syntax::{ParserBuilder, hir::Hir};

use crate::{
    limits::OutOfSteps,
    search::{
        ScanControl,
        kept_states::{KeptStates, SearchFailed},
        literals::MAX_NESTING,
        pattern::Pattern,
    },
};

/// Patterns of one set, and states of their common NFA. A lazy DFA state walks through all of these states for each byte
/// that it meets for the first time.
const MAX_PATTERNS: usize = 64;
const MAX_STATES: usize = 4_096;

/// Memory of a thread for one set, in bytes.
const CACHE_BYTES: usize = 1 << 20;

/// Sets between two checks of the clock. A set takes some milliseconds if it has to build all of its states.
const SETS_PER_CLOCK_CHECK: usize = 8;

/// Receives the matches of a scan, and pays its costs.
pub(crate) trait Visitor {
    fn is_affordable(&self, pattern: u32) -> bool;

    fn visit_match(&mut self, pattern: u32) -> ScanControl;

    /// True if the conditions with the pattern have used up their steps, so that the pattern does not run any more.
    fn is_spent(&self, pattern: u32) -> bool;

    /// Charges steps beyond those of an automaton. False if the pattern must not run.
    fn charge(&mut self, pattern: u32, steps: u64) -> Result<bool, OutOfSteps>;

    /// Ends the scan if it takes too long.
    fn check_clock(&mut self) -> Result<(), OutOfSteps>;
}

/// Patterns, each identified by its position in the list of construction.
#[derive(Debug, Default)]
pub(crate) struct Patterns {
    sets: Vec<Set>,
    /// Patterns that run one by one.
    single_patterns: Vec<(u32, Arc<Pattern>)>,
}

struct Set {
    automaton: DFA,
    /// Number of each pattern of the automaton.
    patterns: Vec<(u32, Arc<Pattern>)>,
    cache_pool: Pool<SetCache, Box<dyn Fn() -> SetCache + Send + Sync>>,
}

type SetCache = KeptStates<SetStates>;

/// States of a set's automaton, and the patterns that matched the last text.
struct SetStates {
    cache: Cache,
    matches: PatternSet,
}

/// Pattern prepared for a set, with the number of its NFA states.
struct Part {
    number: u32,
    pattern: Arc<Pattern>,
    hir: Hir,
    states: usize,
}

impl Patterns {
    /// `sample`: text similar to the texts of later scans.
    pub(crate) fn new(patterns: &[Arc<Pattern>], sample: &str) -> Self {
        let mut all = Self::default();
        // With Unicode word boundaries an automaton gives up at each character beyond ASCII, so such patterns form sets of
        // their own.
        let (mut plain, mut borders) = (Vec::new(), Vec::new());
        for (number, pattern) in (0_u32..).zip(patterns) {
            match Part::new(number, pattern) {
                Some(part) if part.has_borders() => borders.push(part),
                Some(part) => plain.push(part),
                None => all.single_patterns.push((number, Arc::clone(pattern))),
            }
        }
        for parts in [plain, borders] {
            let mut group: Vec<Part> = Vec::new();
            let mut states = 0;
            for part in parts {
                if group.len() == MAX_PATTERNS || states + part.states > MAX_STATES {
                    all.add_set(std::mem::take(&mut group), sample);
                    states = 0;
                }
                states += part.states;
                group.push(part);
            }
            all.add_set(group, sample);
        }
        all
    }

    /// Adds one set of the patterns, or several if they do not fit into one.
    fn add_set(&mut self, mut parts: Vec<Part>, sample: &str) {
        // A set of one pattern would only duplicate the automaton of the pattern itself.
        if parts.len() > 1 {
            if let Some(set) = Set::new(&parts, sample) {
                self.sets.push(set);
            } else {
                let second_half = parts.split_off(parts.len() / 2);
                self.add_set(parts, sample);
                self.add_set(second_half, sample);
            }
        } else {
            self.single_patterns.extend(parts.into_iter().map(|part| (part.number, part.pattern)));
        }
    }

    /// Reports each matching pattern to the visitor, possibly more than once.
    pub(crate) fn scan(&self, text: &str, visitor: &mut impl Visitor) -> Result<ScanControl, OutOfSteps> {
        for (nth, set) in self.sets.iter().enumerate() {
            if set.scan(text, visitor)? == ScanControl::Stop {
                return Ok(ScanControl::Stop);
            }
            if nth % SETS_PER_CLOCK_CHECK == SETS_PER_CLOCK_CHECK - 1 {
                visitor.check_clock()?;
            }
        }
        scan_one_by_one(&self.single_patterns, text, visitor)
    }

    /// Upper bound of the bytes that one thread keeps.
    pub(crate) fn memory(&self) -> usize {
        self.sets.len() * CACHE_BYTES
    }

    /// Passes over a text that a scan takes.
    #[cfg(test)]
    fn passes(&self) -> usize {
        self.sets.len() + self.single_patterns.len()
    }
}

impl Part {
    /// `None` if the pattern can only run alone.
    fn new(number: u32, pattern: &Arc<Pattern>) -> Option<Self> {
        let hir = ParserBuilder::new().nest_limit(MAX_NESTING).build().parse(pattern.as_str()).ok()?;
        let states = build_nfa(std::slice::from_ref(&hir))?.states().len();
        // A pattern that fills a quarter of a set would leave too few states for the others.
        (states <= MAX_STATES / 4).then(|| Self { number, pattern: Arc::clone(pattern), hir, states })
    }

    fn has_borders(&self) -> bool {
        self.hir.properties().look_set().contains_word_unicode()
    }
}

fn build_nfa(hirs: &[Hir]) -> Option<NFA> {
    let config =
        thompson::Config::new().which_captures(WhichCaptures::None).nfa_size_limit(Some(4 * CACHE_BYTES));
    thompson::Compiler::new().configure(config).build_many_from_hir(hirs).ok()
}

impl Set {
    fn new(parts: &[Part], sample: &str) -> Option<Self> {
        let hirs: Vec<Hir> = parts.iter().map(|part| part.hir.clone()).collect();
        let config = DFA::config()
            .match_kind(MatchKind::All)
            .unicode_word_boundary(true)
            .cache_capacity(CACHE_BYTES)
            // Fail when the cache is full for the first time: clearing and refilling it for the rest of the text would take
            // unbounded time.
            .minimum_cache_clear_count(Some(0));
        let automaton = DFA::builder().configure(config).build_from_nfa(build_nfa(&hirs)?).ok()?;
        // A set that overflows on the sample is too large: `None` makes the caller split it.
        SetStates::new(&automaton).search(&automaton, sample).ok()?;
        let pool_automaton = automaton.clone();
        Some(Self {
            automaton,
            patterns: parts.iter().map(|part| (part.number, Arc::clone(&part.pattern))).collect(),
            cache_pool: Pool::new(Box::new(move || KeptStates::new(SetStates::new(&pool_automaton)))),
        })
    }

    fn scan(&self, text: &str, visitor: &mut impl Visitor) -> Result<ScanControl, OutOfSteps> {
        let mut cache = self.cache_pool.get();
        let create_states = || SetStates::new(&self.automaton);
        if cache.search(create_states, |states| states.search(&self.automaton, text)).is_err() {
            // The states are returned to the pool, because the patterns now use caches of their own.
            drop(cache);
            return scan_one_by_one(&self.patterns, text, visitor);
        }
        for pattern in cache.states.matches.iter() {
            let pattern = self.patterns[pattern.as_usize()].0;
            // The set runs all of its patterns, also those that are too expensive on this text.
            if visitor.is_affordable(pattern) && visitor.visit_match(pattern) == ScanControl::Stop {
                return Ok(ScanControl::Stop);
            }
        }
        Ok(ScanControl::Continue)
    }
}

impl SetStates {
    fn new(automaton: &DFA) -> Self {
        Self { cache: automaton.create_cache(), matches: PatternSet::new(automaton.pattern_len()) }
    }

    fn search(&mut self, automaton: &DFA, text: &str) -> Result<(), SearchFailed> {
        self.matches.clear();
        automaton
            .try_which_overlapping_matches(&mut self.cache, &Input::new(text), &mut self.matches)
            .map_err(|_| SearchFailed)
    }
}

/// Runs patterns one by one. Their automaton steps have been charged already.
fn scan_one_by_one(
    patterns: &[(u32, Arc<Pattern>)],
    text: &str,
    visitor: &mut impl Visitor,
) -> Result<ScanControl, OutOfSteps> {
    for (number, pattern) in patterns {
        if !visitor.is_affordable(*number) || visitor.is_spent(*number) {
            continue;
        }
        let mut affordable = true;
        let is_match = pattern.is_match_beyond_base(text, |steps| {
            affordable = visitor.charge(*number, steps)?;
            if affordable { Ok(()) } else { Err(OutOfSteps) }
        });
        match is_match {
            // A pattern that becomes too expensive also returns `OutOfSteps`, but ends only itself.
            Err(OutOfSteps) if affordable => return Err(OutOfSteps),
            Ok(true) if visitor.visit_match(*number) == ScanControl::Stop => return Ok(ScanControl::Stop),
            _ => {}
        }
    }
    Ok(ScanControl::Continue)
}

impl fmt::Debug for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.patterns.iter().map(|(_, pattern)| pattern.as_str())).finish()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeSet;

    use regex::Regex;

    use super::*;

    fn regexes(patterns: &[String]) -> Vec<Arc<Pattern>> {
        patterns.iter().map(|it| Arc::new(Pattern::new(Regex::new(it).unwrap(), 1))).collect()
    }

    #[derive(Default)]
    struct Found {
        patterns: BTreeSet<u32>,
        charged: u64,
    }

    impl Visitor for Found {
        fn is_affordable(&self, _: u32) -> bool {
            true
        }

        fn visit_match(&mut self, pattern: u32) -> ScanControl {
            self.patterns.insert(pattern);
            ScanControl::Continue
        }

        fn is_spent(&self, _: u32) -> bool {
            false
        }

        fn charge(&mut self, _: u32, steps: u64) -> Result<bool, OutOfSteps> {
            self.charged += steps;
            Ok(true)
        }

        fn check_clock(&mut self) -> Result<(), OutOfSteps> {
            Ok(())
        }
    }

    fn matching(patterns: &Patterns, text: &str) -> BTreeSet<u32> {
        let mut found = Found::default();
        patterns.scan(text, &mut found).unwrap();
        found.patterns
    }

    fn one_at_a_time(regexes: &[Arc<Pattern>], text: &str) -> BTreeSet<u32> {
        (0..).zip(regexes).filter(|(_, it)| it.regex().is_match(text)).map(|(number, _)| number).collect()
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
        // Each pattern needs another distance, so the automaton must know the places of all `a` in the last bytes.
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
    fn charge_of_a_failed_set_is_independent_of_earlier_texts() {
        let patterns: Vec<String> = (10..40).map(|n| format!("a[ab]{{{n}}}c|b[ab]{{{n}}}d")).collect();
        let mut seed = 7_u64;
        let mut letter = |letters: &[u8]| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            char::from(letters[usize::try_from(seed >> 33).unwrap() % letters.len()])
        };
        let texts: Vec<String> =
            [(&b"ab"[..], 30_000), (b"abcdefghijklmnop", 3_000), (b"xyz", 30_000), (b"ab", 40_000)]
                .map(|(letters, length)| (0..length).map(|_| letter(letters)).collect())
                .to_vec();
        let charged = |order: &[usize]| {
            let joined = Patterns::new(&regexes(&patterns), "");
            let mut charged = vec![0; order.len()];
            for nth in order {
                let mut found = Found::default();
                joined.scan(&texts[*nth], &mut found).unwrap();
                charged[*nth] = found.charged;
            }
            charged
        };
        let forth = charged(&[0, 1, 2, 3]);
        assert!(forth[0] > 0 && forth[3] > forth[0] && forth[1] == 0 && forth[2] == 0, "{forth:?}");
        assert_eq!(charged(&[3, 1, 2, 0]), forth);
    }

    #[test]
    fn patterns_that_are_too_large_together_are_split() {
        let patterns: Vec<String> =
            (0..200).map(|n| format!(r"[a-f]{{{}}}[0-9]{{2}}", 20 + n % 50)).collect();
        let joined = Patterns::new(&regexes(&patterns), &"abcdef 12 ".repeat(1_000));
        assert!(joined.passes() > 1 && joined.passes() <= 200, "{}", joined.passes());
    }
}
