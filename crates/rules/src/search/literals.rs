//! Texts of which every match of a pattern holds at least one, so that the pattern runs only where one was found.

use regex_syntax::{
    ParserBuilder,
    hir::{Class, Hir, HirKind, Repetition},
};

use super::likelihood;
use crate::text::{View, derived::as_seen};

/// Texts that one pattern may be waiting for.
const MOST: usize = 64;
/// Characters of a class that are told apart.
const CLASS: usize = 64;
/// Bytes of one text: a longer one is hardly rarer.
const LENGTH: usize = 64;
/// A shorter text occurs too often to wait for.
const LEAST: usize = 3;

/// Nesting of groups that a pattern may have.
pub(crate) const NEST: u32 = 64;

/// The texts, as they stand in `view`. `None` if there are none, or only short or too many ones.
pub(crate) fn required(pattern: &str, view: View) -> Option<Vec<String>> {
    let hir = ParserBuilder::new().nest_limit(NEST).build().parse(pattern).ok()?;
    let found = walk(&hir, view);
    best([found.required, found.exact].into_iter().flatten())
}

/// Knowledge about the texts that a part of a pattern matches.
#[derive(Default)]
struct LiteralSet {
    /// All texts that it matches.
    exact: Option<Vec<String>>,
    /// Texts of which each match holds one.
    required: Option<Vec<String>>,
}

impl LiteralSet {
    fn exact(texts: Vec<String>) -> Self {
        Self { exact: Some(texts), required: None }
    }

    /// The better of the two ways to know.
    fn best(self) -> Option<Vec<String>> {
        best([self.required, self.exact].into_iter().flatten())
    }
}

fn walk(hir: &Hir, view: View) -> LiteralSet {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => LiteralSet::exact(vec![String::new()]),
        HirKind::Literal(literal) => match std::str::from_utf8(&literal.0) {
            Ok(text) => LiteralSet::exact(vec![as_seen(text, view)]),
            Err(_) => LiteralSet::default(),
        },
        HirKind::Class(class) => class_of(class, view).map_or_else(LiteralSet::default, LiteralSet::exact),
        HirKind::Capture(capture) => walk(&capture.sub, view),
        HirKind::Repetition(repetition) => repeated(repetition, view),
        HirKind::Concat(parts) => concat(parts.iter().map(|part| walk(part, view))),
        HirKind::Alternation(parts) => alternation(parts.iter().map(|part| walk(part, view))),
    }
}

fn class_of(class: &Class, view: View) -> Option<Vec<String>> {
    let mut characters = Vec::new();
    match class {
        Class::Unicode(class) => {
            for range in class.ranges() {
                characters.extend((range.start()..=range.end()).take(CLASS + 1));
                if characters.len() > CLASS {
                    return None;
                }
            }
        }
        Class::Bytes(class) => {
            for range in class.ranges().iter().filter(|range| range.end() < 0x80) {
                characters.extend((range.start()..=range.end()).map(char::from));
            }
            if class.ranges().iter().any(|range| range.end() >= 0x80) || characters.len() > CLASS {
                return None;
            }
        }
    }
    let mut buffer = [0; 4];
    Some(distinct(characters.into_iter().map(|one| as_seen(one.encode_utf8(&mut buffer), view)).collect()))
}

fn repeated(repetition: &Repetition, view: View) -> LiteralSet {
    let once = walk(&repetition.sub, view);
    match (repetition.min, repetition.max) {
        (0, Some(1)) => {
            let exact = once.exact.map(|mut texts| {
                texts.push(String::new());
                distinct(texts)
            });
            LiteralSet { exact, required: None }
        }
        (0, _) => LiteralSet::default(),
        (min, max) if max == Some(min) && min <= 8 => {
            let parts =
                (0..min).map(|_| LiteralSet { exact: once.exact.clone(), required: once.required.clone() });
            concat(parts)
        }
        _ => LiteralSet { exact: None, required: once.best() },
    }
}

fn concat(parts: impl Iterator<Item = LiteralSet>) -> LiteralSet {
    let mut whole = true;
    let mut running = vec![String::new()];
    let mut candidates = Vec::new();
    for part in parts {
        match part.exact.as_ref().and_then(|texts| product(&running, texts)) {
            Some(longer) => running = longer,
            None => {
                whole = false;
                candidates
                    .push(std::mem::replace(&mut running, part.exact.unwrap_or_else(|| vec![String::new()])));
            }
        }
        candidates.extend(part.required);
    }
    if whole && candidates.is_empty() {
        return LiteralSet::exact(running);
    }
    let exact = whole.then(|| running.clone());
    candidates.push(running);
    LiteralSet { exact, required: best(candidates) }
}

fn product(heads: &[String], tails: &[String]) -> Option<Vec<String>> {
    let long = heads.iter().chain(tails).any(|text| text.len() > LENGTH);
    if long || heads.len().saturating_mul(tails.len()) > MOST {
        return None;
    }
    Some(distinct(
        heads.iter().flat_map(|head| tails.iter().map(move |tail| format!("{head}{tail}"))).collect(),
    ))
}

fn alternation(parts: impl Iterator<Item = LiteralSet>) -> LiteralSet {
    let (mut exact, mut required) = (Some(Vec::new()), Some(Vec::new()));
    for part in parts {
        exact = exact.zip(part.exact.clone()).map(|(mut all, texts)| {
            all.extend(texts);
            all
        });
        required = required.zip(part.best()).map(|(mut all, texts)| {
            all.extend(texts);
            all
        });
    }
    let few = |texts: Option<Vec<String>>| texts.map(distinct).filter(|texts| texts.len() <= MOST);
    LiteralSet { exact: few(exact), required: few(required) }
}

/// The texts that are the least likely to occur, of those that are long enough and few enough.
fn best(choices: impl IntoIterator<Item = Vec<String>>) -> Option<Vec<String>> {
    let good = |texts: &Vec<String>| {
        !texts.is_empty() && texts.len() <= MOST && texts.iter().all(|text| text.len() >= LEAST)
    };
    let cost = |texts: &Vec<String>| texts.iter().map(|text| likelihood(text.as_bytes())).sum::<f32>();
    choices.into_iter().filter(good).min_by(|a, b| cost(a).total_cmp(&cost(b)))
}

fn distinct(mut texts: Vec<String>) -> Vec<String> {
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
            let found = required(pattern, View::Lower);
            assert_eq!(
                found.as_deref(),
                expected.map(|texts| texts.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>()).as_deref(),
                "{pattern}"
            );
        }
        // A long s and a Kelvin sign match too, and a text with them holds no `s` or `k`.
        assert_eq!(required("(?i)ask", View::Lower).unwrap(), ["ask", "aſk"]);
    }
}
