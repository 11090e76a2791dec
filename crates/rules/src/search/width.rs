//! Cost of a pattern for each byte of a text, estimated from the pattern alone. It is counted in places, the positions in
//! the pattern that a text can reach at the same time. `pattern` determines how often the slow engine runs.

use regex_syntax::{
    ParserBuilder,
    hir::{Class, Hir, HirKind},
};

use super::literals::MAX_NESTING;
use crate::limits::to_u64;

/// Places that a byte of text is compared with for a quarter of a step.
const PLACES_PER_STEP: u64 = 4;
/// The same for plain words. Their automaton has at most one state for each letter, so it is soon complete.
const LETTERS_PER_STEP: u64 = 32;

/// Maximum number of variable places of a pattern with few automaton states on every text.
const MAX_HARMLESS_PLACES: u64 = 8;

/// Size of a pattern for a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Width {
    places: u64,
    is_words: bool,
    /// True if a text can make its automaton build more states than a cache holds.
    pub(crate) may_explode: bool,
    /// True if it has Unicode word boundaries.
    pub(crate) has_word_boundaries: bool,
}

pub(crate) fn measure(pattern: &str) -> Width {
    let Ok(hir) = ParserBuilder::new().nest_limit(MAX_NESTING).build().parse(pattern) else {
        return Width { places: 1, is_words: false, may_explode: false, has_word_boundaries: false };
    };
    let (places, is_words) = (count_places(&hir), is_words(&hir));
    let may_explode = !is_words && count_variable_places(&hir) > MAX_HARMLESS_PLACES;
    Width {
        places,
        is_words,
        may_explode,
        has_word_boundaries: hir.properties().look_set().contains_word_unicode(),
    }
}

impl Width {
    /// Steps for every four bytes of text that an automaton reads.
    pub(crate) fn work(self) -> u64 {
        (self.places / if self.is_words { LETTERS_PER_STEP } else { PLACES_PER_STEP }).max(1)
    }

    /// Steps for every four bytes of text without an automaton. Measured: 30 ns for each byte and 4 to 9 ns for each place,
    /// at about 20 ns for a step. In words few places are live at the same time, and in any pattern hardly more than the
    /// text has bytes. Groups and alternatives add states that are no places: each of the `visits` of states for a byte
    /// takes about 5 ns.
    pub(crate) fn slow_work(self, bytes: usize, visits: u64) -> u64 {
        if self.is_words {
            return 4;
        }
        let places = self.places.min(to_u64(bytes));
        let visits = visits.saturating_mul(places) / self.places.max(1);
        4 + visits.max(places + places / 2)
    }
}

/// Places of a pattern with each repetition written out.
fn count_places(hir: &Hir) -> u64 {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) | HirKind::Class(_) => 1,
        HirKind::Literal(literal) => u64::try_from(literal.0.len()).unwrap_or(u64::MAX),
        HirKind::Capture(capture) => count_places(&capture.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            parts.iter().map(count_places).fold(0, u64::saturating_add)
        }
        HirKind::Repetition(repetition) => {
            let times = repetition.max.unwrap_or(repetition.min).max(1);
            // A repetition is a place itself, so that many repetitions of an empty part do not cost zero.
            count_places(&repetition.sub).saturating_mul(u64::from(times)).saturating_add(1)
        }
    }
}

/// Places at which a text has several continuations. Only these cause unbounded states: in a literal part, the last bytes of
/// the text determine the position.
fn count_variable_places(hir: &Hir) -> u64 {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) | HirKind::Literal(_) => 0,
        HirKind::Class(class) => u64::from(!is_letter(class)),
        HirKind::Capture(capture) => count_variable_places(&capture.sub),
        HirKind::Concat(parts) => parts.iter().map(count_variable_places).fold(0, u64::saturating_add),
        // The choice between the branches is itself a place with several continuations.
        HirKind::Alternation(parts) => parts.iter().map(count_variable_places).fold(1, u64::saturating_add),
        HirKind::Repetition(repetition) if is_literal(&repetition.sub) => 1,
        HirKind::Repetition(_) => count_places(hir),
    }
}

fn is_literal(hir: &Hir) -> bool {
    match hir.kind() {
        HirKind::Literal(_) => true,
        HirKind::Capture(capture) => is_literal(&capture.sub),
        _ => false,
    }
}

/// True if the pattern consists of words, in one case or in both, without repetitions.
fn is_words(hir: &Hir) -> bool {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) | HirKind::Literal(_) => true,
        HirKind::Class(class) => is_letter(class),
        HirKind::Capture(capture) => is_words(&capture.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => parts.iter().all(is_words),
        HirKind::Repetition(_) => false,
    }
}

/// True if a class is one letter in its cases. Two such classes are equal or disjoint.
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
    use super::measure;

    fn work(pattern: &str) -> u64 {
        measure(pattern).work()
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
        assert!(harmless.iter().all(|pattern| !measure(pattern).may_explode));
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
        assert!(exploding.iter().all(|pattern| measure(pattern).may_explode));
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
