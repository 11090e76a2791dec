//! Literals of a pattern: texts of which every match contains at least one, so that the pattern runs only after one was
//! found.

use regex_syntax::{
    ParserBuilder,
    hir::{Class, Hir, HirKind, Repetition},
};

use super::likelihood;
use crate::text::{View, derived::word_in_view};

/// Maximum number of literals of one pattern.
const MAX_LITERALS: usize = 64;
/// Maximum number of characters of a class that are listed one by one.
const MAX_CLASS_CHARS: usize = 64;
/// Maximum bytes of one literal. A longer one is hardly rarer.
const MAX_LITERAL_BYTES: usize = 64;
/// Minimum bytes of a literal. A shorter one occurs too often.
const MIN_LITERAL_BYTES: usize = 3;

/// Maximum nesting of groups in a pattern.
pub(crate) const MAX_NESTING: u32 = 64;

/// Returns the literals in their form in `view`. `None` if there are none, or only short or too many ones.
pub(crate) fn find_literals(pattern: &str, view: View) -> Option<Vec<String>> {
    let hir = ParserBuilder::new().nest_limit(MAX_NESTING).build().parse(pattern).ok()?;
    let literals = find_in_part(&hir, view);
    choose_best([literals.required, literals.exact].into_iter().flatten())
}

/// Literals of a part of a pattern.
#[derive(Default)]
struct LiteralSet {
    /// All texts that the part matches.
    exact: Option<Vec<String>>,
    /// Texts of which each match contains one.
    required: Option<Vec<String>>,
}

impl LiteralSet {
    fn exact(texts: Vec<String>) -> Self {
        Self { exact: Some(texts), required: None }
    }

    /// Chooses the better of the two lists.
    fn best(self) -> Option<Vec<String>> {
        choose_best([self.required, self.exact].into_iter().flatten())
    }
}

fn find_in_part(hir: &Hir, view: View) -> LiteralSet {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => LiteralSet::exact(vec![String::new()]),
        HirKind::Literal(literal) => match std::str::from_utf8(&literal.0) {
            Ok(text) => LiteralSet::exact(vec![word_in_view(text, view)]),
            Err(_) => LiteralSet::default(),
        },
        HirKind::Class(class) => class_texts(class, view).map_or_else(LiteralSet::default, LiteralSet::exact),
        HirKind::Capture(capture) => find_in_part(&capture.sub, view),
        HirKind::Repetition(repetition) => walk_repetition(repetition, view),
        HirKind::Concat(parts) => join_parts(parts.iter().map(|part| find_in_part(part, view))),
        HirKind::Alternation(parts) => join_branches(parts.iter().map(|part| find_in_part(part, view))),
    }
}

fn class_texts(class: &Class, view: View) -> Option<Vec<String>> {
    let mut characters = Vec::new();
    match class {
        Class::Unicode(class) => {
            for range in class.ranges() {
                characters.extend((range.start()..=range.end()).take(MAX_CLASS_CHARS + 1));
                if characters.len() > MAX_CLASS_CHARS {
                    return None;
                }
            }
        }
        Class::Bytes(class) => {
            for range in class.ranges().iter().filter(|range| range.end() < 0x80) {
                characters.extend((range.start()..=range.end()).map(char::from));
            }
            // Bytes beyond ASCII are parts of characters, and form no text by themselves.
            if class.ranges().iter().any(|range| range.end() >= 0x80) || characters.len() > MAX_CLASS_CHARS {
                return None;
            }
        }
    }
    let mut buffer = [0; 4];
    Some(sort_and_dedup(
        characters
            .into_iter()
            .map(|character| word_in_view(character.encode_utf8(&mut buffer), view))
            .collect(),
    ))
}

fn walk_repetition(repetition: &Repetition, view: View) -> LiteralSet {
    let single = find_in_part(&repetition.sub, view);
    match (repetition.min, repetition.max) {
        // An optional part also matches the empty text.
        (0, Some(1)) => {
            let exact = single.exact.map(|mut texts| {
                texts.push(String::new());
                sort_and_dedup(texts)
            });
            LiteralSet { exact, required: None }
        }
        (0, _) => LiteralSet::default(),
        // A small fixed number of repetitions is written out.
        (min, max) if max == Some(min) && min <= 8 => {
            let parts = (0..min)
                .map(|_| LiteralSet { exact: single.exact.clone(), required: single.required.clone() });
            join_parts(parts)
        }
        // The part occurs at least once, so each match contains its literals.
        _ => LiteralSet { exact: None, required: single.best() },
    }
}

fn join_parts(parts: impl Iterator<Item = LiteralSet>) -> LiteralSet {
    let mut is_exact = true;
    let mut running = vec![String::new()];
    let mut candidates = Vec::new();
    for part in parts {
        match part.exact.as_ref().and_then(|texts| combine(&running, texts)) {
            Some(longer) => running = longer,
            None => {
                // The product is too large: the texts so far are a candidate, and a new list begins here.
                is_exact = false;
                candidates
                    .push(std::mem::replace(&mut running, part.exact.unwrap_or_else(|| vec![String::new()])));
            }
        }
        candidates.extend(part.required);
    }
    if is_exact && candidates.is_empty() {
        return LiteralSet::exact(running);
    }
    let exact = is_exact.then(|| running.clone());
    candidates.push(running);
    LiteralSet { exact, required: choose_best(candidates) }
}

fn combine(heads: &[String], tails: &[String]) -> Option<Vec<String>> {
    let long = heads.iter().chain(tails).any(|text| text.len() > MAX_LITERAL_BYTES);
    if long || heads.len().saturating_mul(tails.len()) > MAX_LITERALS {
        return None;
    }
    Some(sort_and_dedup(
        heads.iter().flat_map(|head| tails.iter().map(move |tail| format!("{head}{tail}"))).collect(),
    ))
}

fn join_branches(parts: impl Iterator<Item = LiteralSet>) -> LiteralSet {
    let (mut exact, mut required) = (Some(Vec::new()), Some(Vec::new()));
    for part in parts {
        // An alternation has literals only if each of its branches has some.
        exact = exact.zip(part.exact.clone()).map(|(mut all, texts)| {
            all.extend(texts);
            all
        });
        required = required.zip(part.best()).map(|(mut all, texts)| {
            all.extend(texts);
            all
        });
    }
    let deduplicate =
        |texts: Option<Vec<String>>| texts.map(sort_and_dedup).filter(|texts| texts.len() <= MAX_LITERALS);
    LiteralSet { exact: deduplicate(exact), required: deduplicate(required) }
}

/// Chooses the list with the least likely texts, among those with texts that are long enough and few enough.
fn choose_best(choices: impl IntoIterator<Item = Vec<String>>) -> Option<Vec<String>> {
    let is_usable = |texts: &Vec<String>| {
        !texts.is_empty()
            && texts.len() <= MAX_LITERALS
            && texts.iter().all(|text| text.len() >= MIN_LITERAL_BYTES)
    };
    let cost = |texts: &Vec<String>| texts.iter().map(|text| likelihood(text.as_bytes())).sum::<f32>();
    choices.into_iter().filter(is_usable).min_by(|a, b| cost(a).total_cmp(&cost(b)))
}

fn sort_and_dedup(mut texts: Vec<String>) -> Vec<String> {
    texts.sort_unstable();
    texts.dedup();
    texts
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_rarest_part_that_every_match_has_is_chosen() {
        let cases: [(&str, Option<&[&str]>); 20] = [
            ("scam", Some(&["scam"])),
            ("(?i)Fake", Some(&["fake"])),
            (r"\bbuy\s+crypto\b", Some(&["crypto"])),
            (r"foo|barn\d", Some(&["barn", "foo"])),
            (
                r"(?:free|cheap) (?:money|coins)",
                Some(&["cheap coins", "cheap money", "free coins", "free money"]),
            ),
            (r"a+b*", None),
            (r"\d{3}-\d{4}", None),
            (r"(wallet)+x?", Some(&["wallet"])),
            (r"x?wallet", Some(&["wallet", "xwallet"])),
            (r"(?:ab){3}", Some(&["ababab"])),
            (r"[^a]+", None),
            (r"^https?://evil\.", Some(&["http://evil.", "https://evil."])),
            (r"colou?r(?:ed)*", Some(&["color", "colour"])),
            (r"(?:a|bc)de|.*", None),
            (r"h[e3]llo", Some(&["h3llo", "hello"])),
            (r"GRÜN", Some(&["grün"])),
            (r"", None),
            (r"x{2,}yz", None),
            (r"[a-z]{1,9}crypto[0-9]+quiz", Some(&["crypto"])),
            (r"(?:)", None),
        ];
        for (pattern, expected) in cases {
            let found = find_literals(pattern, View::Lower);
            assert_eq!(
                found.as_deref(),
                expected.map(|texts| texts.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>()).as_deref(),
                "{pattern}"
            );
        }
        // A long s and a Kelvin sign match too, and a text with them holds no `s` or `k`.
        assert_eq!(find_literals("(?i)ask", View::Lower).unwrap(), ["ask", "aſk"]);
    }
}
