//! Finds every occurrence of many words in a text at once. The method is chosen by their number and length.

use aho_corasick::{AhoCorasick, AhoCorasickKind, Input, MatchKind};
use memchr::memmem::Finder;

use super::{Next, grams::Grams};

/// Up to so many words are searched one by one; beyond, one pass over the text is cheaper.
const FEW: usize = 6;

/// Memory that the fastest automaton may take; beyond it, a denser and slower one is built.
const DFA_BYTES: usize = 16 << 20;

/// A search for words. It may tell of a word again at a place behind one that was found, never too seldom.
#[derive(Debug, Default)]
pub(crate) struct Scanner {
    few: Vec<(u32, Finder<'static>)>,
    grams: Option<Box<Grams>>,
    rest: Option<Box<Rest>>,
}

/// Words that are too short or too alike for the table of grams.
#[derive(Debug)]
struct Rest {
    automaton: AhoCorasick,
    words: Vec<u32>,
}

impl Scanner {
    /// A search for `words`, none of them empty and none twice; they are named by their place in the list.
    pub(crate) fn new(words: &[&[u8]]) -> Self {
        let all = (0_u32..).zip(words.iter().copied());
        if words.len() <= FEW {
            return Self {
                few: all.map(|(nth, word)| (nth, Finder::new(word).into_owned())).collect(),
                ..Self::default()
            };
        }
        let (grams, rest) = Grams::new(words);
        Self { few: Vec::new(), grams: grams.map(Box::new), rest: Rest::new(words, rest).map(Box::new) }
    }

    /// Calls `found` with a word and where it starts, in no order.
    pub(crate) fn scan(&self, text: &[u8], found: &mut impl FnMut(u32, usize) -> Next) -> Next {
        for (word, finder) in &self.few {
            let mut from = 0;
            while let Some(at) = finder.find(&text[from..]) {
                if found(*word, from + at) == Next::Stop {
                    return Next::Stop;
                }
                from += at + 1;
            }
        }
        if let Some(grams) = &self.grams
            && grams.scan(text, found) == Next::Stop
        {
            return Next::Stop;
        }
        self.rest.as_ref().map_or(Next::Go, |rest| rest.scan(text, found))
    }

    /// Bytes that the search holds.
    pub(crate) fn memory(&self) -> usize {
        let few = self.few.len() * size_of::<(u32, Finder<'static>)>();
        let grams = self.grams.as_ref().map_or(0, |grams| grams.memory());
        few + grams + self.rest.as_ref().map_or(0, |rest| rest.automaton.memory_usage())
    }
}

impl Rest {
    fn new(words: &[&[u8]], rest: Vec<u32>) -> Option<Self> {
        if rest.is_empty() {
            return None;
        }
        let of = |nth: &u32| words[*nth as usize];
        let bytes: usize = rest.iter().map(|nth| of(nth).len()).sum();
        let build = |kind| {
            let mut builder = AhoCorasick::builder();
            builder.match_kind(MatchKind::Standard).kind(Some(kind)).prefilter(false);
            builder.build(rest.iter().map(of)).ok()
        };
        // A state a byte at most, and a transition of four bytes for each class of bytes.
        let small = bytes.saturating_mul(4 * 64) <= DFA_BYTES;
        let automaton = small.then(|| build(AhoCorasickKind::DFA)).flatten();
        let automaton = automaton.or_else(|| build(AhoCorasickKind::ContiguousNFA));
        let automaton = automaton.or_else(|| build(AhoCorasickKind::NoncontiguousNFA))?;
        Some(Self { automaton, words: rest })
    }

    fn scan(&self, text: &[u8], found: &mut impl FnMut(u32, usize) -> Next) -> Next {
        for hit in self.automaton.find_overlapping_iter(Input::new(text)) {
            if found(self.words[hit.pattern().as_usize()], hit.start()) == Next::Stop {
                return Next::Stop;
            }
        }
        Next::Go
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
            Next::Go
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
                        Next::Go
                    });
                    assert!(found.contains(&(nth, before)), "{word:?} {before} {behind:?}");
                }
            }
        }
    }

    #[test]
    fn a_search_ends_when_nothing_more_is_wanted() {
        for words in [vec![b"aaaaaaaa".as_slice()], (1..20).map(|n| &[b'a'; 20][..n]).collect()] {
            let mut calls = 0;
            let scanner = Scanner::new(&words);
            let next = scanner.scan(&[b'a'; 100], &mut |_, _| {
                calls += 1;
                if calls == 5 { Next::Stop } else { Next::Go }
            });
            assert_eq!((next, calls), (Next::Stop, 5));
        }
    }
}
