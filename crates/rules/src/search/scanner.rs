//! Finds all occurrences of many words in a text at once. The number and the lengths of the words determine the method.

use aho_corasick::{AhoCorasick, AhoCorasickKind, Input, MatchKind};
use memchr::memmem::Finder;

use super::{ScanControl, grams::Grams};

/// Maximum number of words that are searched one by one. Beyond it, one pass over the text is cheaper.
const MAX_SINGLE_WORDS: usize = 6;

/// Maximum memory of the fastest automaton. A larger one is built denser and slower.
const DFA_BYTES: usize = 16 << 20;

/// Search for words. Occurrences may overlap, and each is reported.
#[derive(Debug, Default)]
pub(crate) struct Scanner {
    finders: Vec<(u32, Finder<'static>)>,
    grams: Option<Box<Grams>>,
    remaining: Option<Box<RemainingWords>>,
}

/// Words that are too short or too similar for the table of grams.
#[derive(Debug)]
struct RemainingWords {
    automaton: AhoCorasick,
    words: Vec<u32>,
}

impl Scanner {
    /// Builds a search for `words`, which are distinct and not empty. Hits name a word by its position in the list.
    pub(crate) fn new(words: &[&[u8]]) -> Self {
        let all = (0_u32..).zip(words.iter().copied());
        if words.len() <= MAX_SINGLE_WORDS {
            return Self {
                finders: all.map(|(nth, word)| (nth, Finder::new(word).into_owned())).collect(),
                ..Self::default()
            };
        }
        let (grams, rest) = Grams::new(words);
        Self {
            finders: Vec::new(),
            grams: grams.map(Box::new),
            remaining: RemainingWords::new(words, rest).map(Box::new),
        }
    }

    /// Calls `visit` with a word and its start, in no particular order.
    pub(crate) fn scan(&self, text: &[u8], visit: &mut impl FnMut(u32, usize) -> ScanControl) -> ScanControl {
        for (word, finder) in &self.finders {
            let mut from = 0;
            while let Some(at) = finder.find(&text[from..]) {
                if visit(*word, from + at) == ScanControl::Stop {
                    return ScanControl::Stop;
                }
                // Occurrences may overlap, so the search continues one byte after the start.
                from += at + 1;
            }
        }
        if let Some(grams) = &self.grams
            && grams.scan(text, visit) == ScanControl::Stop
        {
            return ScanControl::Stop;
        }
        self.remaining.as_ref().map_or(ScanControl::Continue, |rest| rest.scan(text, visit))
    }

    /// Bytes of the search.
    pub(crate) fn memory(&self) -> usize {
        let finder_bytes = self.finders.len() * size_of::<(u32, Finder<'static>)>();
        let grams = self.grams.as_ref().map_or(0, |grams| grams.memory());
        finder_bytes + grams + self.remaining.as_ref().map_or(0, |rest| rest.automaton.memory_usage())
    }
}

impl RemainingWords {
    fn new(words: &[&[u8]], rest: Vec<u32>) -> Option<Self> {
        if rest.is_empty() {
            return None;
        }
        let word_at = |nth: &u32| words[*nth as usize];
        let bytes: usize = rest.iter().map(|nth| word_at(nth).len()).sum();
        let build = |kind| {
            let mut builder = AhoCorasick::builder();
            builder.match_kind(MatchKind::Standard).kind(Some(kind)).prefilter(false);
            builder.build(rest.iter().map(word_at)).ok()
        };
        // The automaton has at most one state for each byte, with a transition of four bytes for each class of bytes.
        let small = bytes.saturating_mul(4 * 64) <= DFA_BYTES;
        let automaton = small.then(|| build(AhoCorasickKind::DFA)).flatten();
        // Slower kinds have larger limits, and are tried if a faster one cannot be built.
        let automaton = automaton.or_else(|| build(AhoCorasickKind::ContiguousNFA));
        let automaton = automaton.or_else(|| build(AhoCorasickKind::NoncontiguousNFA))?;
        Some(Self { automaton, words: rest })
    }

    fn scan(&self, text: &[u8], visit: &mut impl FnMut(u32, usize) -> ScanControl) -> ScanControl {
        for hit in self.automaton.find_overlapping_iter(Input::new(text)) {
            if visit(self.words[hit.pattern().as_usize()], hit.start()) == ScanControl::Stop {
                return ScanControl::Stop;
            }
        }
        ScanControl::Continue
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn naive(words: &[&[u8]], text: &[u8]) -> BTreeSet<(u32, usize)> {
        let mut found = BTreeSet::new();
        for (nth, word) in (0..).zip(words) {
            found.extend((0..text.len()).filter(|at| text[*at..].starts_with(word)).map(|at| (nth, at)));
        }
        found
    }

    fn scanned(words: &[&[u8]], text: &[u8]) -> BTreeSet<(u32, usize)> {
        let mut found = BTreeSet::new();
        Scanner::new(words).scan(text, &mut |word, at| {
            found.insert((word, at));
            ScanControl::Continue
        });
        found
    }

    struct Dice(u64);

    impl Dice {
        fn roll(&mut self, sides: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(self.0 >> 33).unwrap_or_default() % sides
        }

        fn bytes(&mut self, most: usize, letters: usize) -> Vec<u8> {
            let length = 1 + self.roll(most);
            (0..length).map(|_| b"ab c\0\xc3\xa9de"[self.roll(letters)]).collect()
        }
    }

    #[test]
    fn every_search_finds_every_occurrence() {
        let mut found = 0;
        for seed in 0..400 {
            let mut dice = Dice(seed);
            let letters = [1, 2, 4, 9][dice.roll(4)];
            let count = [0, 1, 3, 7, 40, 700][dice.roll(6)];
            let longest = [1, 3, 5, 9, 40][dice.roll(5)];
            let words: BTreeSet<Vec<u8>> = (0..count).map(|_| dice.bytes(longest, letters)).collect();
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            for length in [1, 8, 17, 120, 1_100] {
                let mut text = dice.bytes(length, letters);
                if let Some(word) = words.last().filter(|_| dice.roll(2) == 0) {
                    text.extend_from_slice(word);
                }
                let expected = naive(&words, &text);
                found += expected.len();
                assert_eq!(scanned(&words, &text), expected, "seed {seed}");
            }
            assert_eq!(scanned(&words, b""), BTreeSet::new());
        }
        assert!(found > 10_000, "{found}");
    }

    #[test]
    fn short_words_among_long_ones_are_found_at_every_position() {
        let mut dice = Dice(11);
        let mut word = |length: usize| {
            (0..length).map(|_| b"etaoinshrdlucmfwypvbgkjqxz"[dice.roll(26)]).collect::<Vec<u8>>()
        };
        let mut words: Vec<Vec<u8>> = (0..3_000).map(|nth| word(8 + nth % 4)).collect();
        words.extend((0..4).map(|_| word(6)));
        words.extend((0..20).map(|_| word(7)));
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let scanner = Scanner::new(&words);
        for (nth, word) in (0_u32..).zip(&words).skip(2_990) {
            for before in 0..20 {
                for behind in [&b""[..], b"\0", b"\xff", b"ab", b" and so on, until there are several blocks"]
                {
                    let text = [&[b' '; 20][..before], word, behind].concat();
                    let mut found = BTreeSet::new();
                    scanner.scan(&text, &mut |word, at| {
                        found.insert((word, at));
                        ScanControl::Continue
                    });
                    assert!(found.contains(&(nth, before)), "{word:?} {before} {behind:?}");
                }
            }
        }
    }

    #[test]
    fn scan_ends_when_the_visitor_stops_it() {
        for words in [vec![b"aaaaaaaa".as_slice()], (1..20).map(|n| &[b'a'; 20][..n]).collect()] {
            let mut calls = 0;
            let scanner = Scanner::new(&words);
            let next = scanner.scan(&[b'a'; 100], &mut |_, _| {
                calls += 1;
                if calls == 5 { ScanControl::Stop } else { ScanControl::Continue }
            });
            assert_eq!((next, calls), (ScanControl::Stop, 5));
        }
    }
}
