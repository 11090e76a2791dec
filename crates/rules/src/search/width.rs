//! Cost of a pattern for each byte of a text, seen from the pattern alone.
//!
//! It is counted in places that a text can be at at once. How often the slow engine has to run depends on the text, see
//! `pattern`.

use regex_syntax::{
    ParserBuilder,
    hir::{Class, Hir, HirKind},
};

use super::literals::NEST;
use crate::limits::wide;

/// Places that a byte of text is held against for a quarter of a step.
const PLACES: u64 = 4;
/// The same of plain words: their automaton has no more states than they have letters, so it is soon complete.
const LETTERS: u64 = 32;

/// Variable places of a pattern up to which its automaton has few states, whatever the text.
const FEW: u64 = 8;

/// Size of a pattern as a search meets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Width {
    places: u64,
    is_words: bool,
    /// True if a text can make its automaton build more states than a cache holds.
    pub(crate) may_explode: bool,
    /// True if it has Unicode's borders of words.
    pub(crate) has_borders: bool,
}

pub(crate) fn of(pattern: &str) -> Width {
    let Ok(hir) = ParserBuilder::new().nest_limit(NEST).build().parse(pattern) else {
        return Width { places: 1, is_words: false, may_explode: false, has_borders: false };
    };
    let (places, is_words) = (width(&hir), is_words(&hir));
    let may_explode = !is_words && variable(&hir) > FEW;
    Width { places, is_words, may_explode, has_borders: hir.properties().look_set().contains_word_unicode() }
}

impl Width {
    /// Steps for every four bytes of text that an automaton reads.
    pub(crate) fn work(self) -> u64 {
        (self.places / if self.is_words { LETTERS } else { PLACES }).max(1)
    }

    /// Steps for every four bytes of text where there is no automaton: measured, 30 ns a byte and 4 to 9 ns for each
    /// place, at about 20 ns a step. Of words few places are live at once, and of any pattern hardly more than there are bytes.
    /// Groups and alternatives add states that are no places: each of the `visits` of states for a byte takes about 5 ns.
    pub(crate) fn slow_work(self, bytes: usize, visits: u64) -> u64 {
        if self.is_words {
            return 4;
        }
        let places = self.places.min(wide(bytes));
        let visits = visits.saturating_mul(places) / self.places.max(1);
        4 + visits.max(places + places / 2)
    }
}

/// Places of a pattern with each repeat written out.
fn width(hir: &Hir) -> u64 {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) | HirKind::Class(_) => 1,
        HirKind::Literal(literal) => u64::try_from(literal.0.len()).unwrap_or(u64::MAX),
        HirKind::Capture(capture) => width(&capture.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            parts.iter().map(width).fold(0, u64::saturating_add)
        }
        HirKind::Repetition(repetition) => {
            let times = repetition.max.unwrap_or(repetition.min).max(1);
            // A repeat is a place itself: one of nothing, often enough, would else cost nothing.
            width(&repetition.sub).saturating_mul(u64::from(times)).saturating_add(1)
        }
    }
}

/// Places at which a text can go on in several ways. Only these make states without end: where a pattern spells out what
/// comes next, the last bytes of the text say how far it has got.
fn variable(hir: &Hir) -> u64 {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) | HirKind::Literal(_) => 0,
        HirKind::Class(class) => u64::from(!is_letter(class)),
        HirKind::Capture(capture) => variable(&capture.sub),
        HirKind::Concat(parts) => parts.iter().map(variable).fold(0, u64::saturating_add),
        HirKind::Alternation(parts) => parts.iter().map(variable).fold(1, u64::saturating_add),
        HirKind::Repetition(repetition) if is_literal(&repetition.sub) => 1,
        HirKind::Repetition(_) => width(hir),
    }
}

fn is_literal(hir: &Hir) -> bool {
    match hir.kind() {
        HirKind::Literal(_) => true,
        HirKind::Capture(capture) => is_literal(&capture.sub),
        _ => false,
    }
}

/// True if it is made of words, in one case or in either, and of nothing that repeats.
fn is_words(hir: &Hir) -> bool {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) | HirKind::Literal(_) => true,
        HirKind::Class(class) => is_letter(class),
        HirKind::Capture(capture) => is_words(&capture.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => parts.iter().all(is_words),
        HirKind::Repetition(_) => false,
    }
}

/// True if a class is one letter in its cases: two such classes are the same or have nothing in common.
fn is_letter(class: &Class) -> bool {
    let Class::Unicode(class) = class else { return false };
    let mut letters = class.iter().flat_map(|range| range.start()..=range.end());
    let Some(first) = letters.next() else { return false };
    let mut cases =
        regex_syntax::hir::ClassUnicode::new([regex_syntax::hir::ClassUnicodeRange::new(first, first)]);
    cases.case_fold_simple();
    cases == *class
}

#[cfg(test)]
mod tests {
    use super::of;

    fn work(pattern: &str) -> u64 {
        of(pattern).work()
    }

    #[test]
    fn only_patterns_of_many_variable_places_may_explode() {
        let harmless = [
            r"crypto giveaway\s+today",
            "scam[0-9]{2,}coin",
            "(?i)(?:free|win) ?lottery",
            "(?i)\\bviagras?\\b",
            "(?:abc){50}",
            "wallet.*seed phrase",
            r"(?:free|cheap|best|new|good)\s*(?:viagra|cialis|pills)\s*(?:now|here)",
        ];
        assert!(harmless.iter().all(|pattern| !of(pattern).may_explode));
        let exploding = [
            "a.{0,200}b",
            "x[ab]{20}",
            "(?:.*a){12}z",
            "x(?:x?a?){50}",
            "(?:ab|a){20}c",
            "(?:ab|a)(?:ba|b)?(?:ab|a)(?:ba|b)?(?:ab|a)(?:ba|b)?(?:ab|a)(?:ba|b)?c",
            "(?i)x[a-c]{9}",
            "[ab][ac][ad][ae][af][ag][ah][ai][aj]",
        ];
        assert!(exploding.iter().all(|pattern| of(pattern).may_explode));
    }

    #[test]
    fn pattern_cost_follows_its_width() {
        let cases = [
            ("[0-9]q", 1),
            (r"\d{3}[- ]?\d{4}", 2),
            ("i[a-z ]{0,40}[0-9]q", 11),
            ("i[a-z ]{0,1900}[0-9]q", 476),
            ("(?:[ab]{20}x){30}", 165),
            ("(?:a?){999}", 499),
            ("(?:)", 1),
            // Patterns of words alone do not make states without end.
            ("(?i)lottery", 1),
            ("(?i)\\b(?:viagra|lottery|crypto giveaway|free money)\\b", 1),
            ("[ab]cdefgh", 1),
            ("[ab][ac][ad][ae][af][ag][ah][ai]", 2),
        ];
        for (pattern, expected) in cases {
            assert_eq!(work(pattern), expected, "{pattern}");
        }
        let words: Vec<String> = (0..100).map(|nth| format!("word{nth:04}")).collect();
        let either = work(&format!("(?i){}", words.join("|")));
        assert!((10..=30).contains(&either), "{either}");
    }
}
