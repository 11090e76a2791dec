//! Words and patterns that text conditions look for.

use std::sync::Arc;

use memchr::memmem::{self, Finder};
use regex::RegexBuilder;
use regex_syntax::hir::{Hir, HirKind, Look};

use crate::{
    fields::ViewedText,
    limits::{Limits, OutOfSteps, Steps, search, wide},
    search::{likelihood, literals, pattern::Pattern},
    text::{View, derived::Runs, in_word},
};

#[derive(Debug)]
pub(crate) enum Needle {
    Word {
        written: Arc<str>,
        /// The word in its view: `written` itself if that is the same.
        seen: Arc<str>,
        /// Letters that the word has several times in a row, if any; the text must have as many there.
        runs: Option<Box<Runs>>,
        whole: bool,
    },
    /// `literals`: as they stand in lower case; each match holds one of them.
    Pattern { pattern: Arc<Pattern>, literals: Option<Vec<String>> },
}

/// Bytes of text below which `memmem` makes no search either.
const BRIEF: usize = 64;

/// Bytes of program up to which a pattern costs at least this many steps for every four bytes of text.
const WEIGHTS: [(usize, u64); 3] = [(16 << 10, 1), (64 << 10, 8), (usize::MAX, 32)];

/// Why a pattern cannot be used, if it cannot.
pub fn pattern_error(pattern: &str, limits: &Limits) -> Option<String> {
    compiled(pattern, limits.regex_bytes).err()
}

/// A pattern, or why it is none.
pub(crate) fn compiled(pattern: &str, limit: usize) -> Result<Needle, String> {
    let build = |size: usize| {
        // A thread's cache of the lazily built automaton is bounded too: there may be thousands of patterns.
        RegexBuilder::new(pattern).size_limit(size).dfa_size_limit(limit).nest_limit(literals::NEST).build()
    };
    let mut result = build(limit.min(WEIGHTS[0].0));
    let mut weight = WEIGHTS[0].1;
    for (size, heavier) in &WEIGHTS[1..] {
        if !matches!(result, Err(regex::Error::CompiledTooBig(_))) {
            break;
        }
        (result, weight) = (build(limit.min(*size)), *heavier);
    }
    match result {
        Ok(regex) => Ok(Needle::Pattern {
            literals: literals::required(pattern, View::Lower),
            pattern: Arc::new(Pattern::new(regex, weight)),
        }),
        Err(regex::Error::CompiledTooBig(_)) => {
            Err(format!("it takes more than {limit} bytes when compiled: shorten it or its counted repeats"))
        }
        Err(error) => {
            // The library's message draws the pattern with a caret under it; its last line says what is wrong.
            let message = error.to_string();
            let line = message.lines().last().unwrap_or_default().trim_start_matches("error: ");
            Err(format!("it is not valid: {line}"))
        }
    }
}

/// Bytes of program that a pattern of this weight takes at most.
pub(super) fn size_of_weight(weight: u64) -> usize {
    WEIGHTS.iter().find(|(_, known)| *known == weight).map_or(0, |(size, _)| *size)
}

impl Needle {
    /// Guess of how often a text holds it or one of its literals; `None` if only running it can tell.
    pub(super) fn likelihood(&self) -> Option<f32> {
        match self {
            Self::Word { seen, .. } => Some(likelihood(seen.as_bytes())),
            // Where a literal of a pattern is found the pattern is run, which takes longer than to look at a word.
            Self::Pattern { literals: Some(literals), .. } => {
                Some(literals.iter().map(|literal| likelihood(literal.as_bytes())).sum::<f32>() * 4.0)
            }
            // It can be run with others over every text, if it is small; almost anything else is better.
            Self::Pattern { literals: None, pattern } => (pattern.weight == 1).then_some(0.6),
        }
    }

    /// True if nothing can match it, such as `a^b`.
    pub(super) fn is_impossible(&self) -> bool {
        matches!(self, Self::Pattern { pattern, .. } if never(pattern.as_str()))
    }

    /// A word of one or two letters in its view, which is sought inside of others, too.
    pub(super) fn is_short(&self) -> bool {
        matches!(self, Self::Word { seen, whole: false, .. } if seen.chars().count() < 3)
    }

    pub(super) fn written(&self) -> &str {
        match self {
            Self::Word { written, .. } => written,
            Self::Pattern { pattern, .. } => pattern.as_str(),
        }
    }

    /// True if it is in the text.
    pub(super) fn is_in(&self, seen: &ViewedText<'_, '_>, steps: &mut Steps) -> Result<bool, OutOfSteps> {
        match self {
            // To say where a match starts takes a second search.
            Self::Pattern { pattern, .. } => pattern.is_match(seen.text, steps),
            Self::Word { .. } => Ok(self.find(seen, steps)?.is_some()),
        }
    }

    pub(super) fn find(
        &self,
        seen: &ViewedText<'_, '_>,
        steps: &mut Steps,
    ) -> Result<Option<(usize, usize)>, OutOfSteps> {
        let text = seen.text;
        match self {
            Self::Pattern { pattern, .. } => pattern.find(text, steps),
            Self::Word { seen: word, .. } => {
                steps.take(search(text.len(), word.len()))?;
                if word.len() > text.len() {
                    return Ok(None);
                }
                // In a few bytes one is found sooner than a search is made.
                let finder = (text.len() >= BRIEF).then(|| Finder::new(word.as_bytes()));
                let find = |rest: &[u8]| match &finder {
                    Some(finder) => finder.find(rest),
                    None => memmem::find(rest, word.as_bytes()),
                };
                let again = 1 + wide(word.len()) / 64;
                let mut from = 0;
                while let Some(at) = find(&text.as_bytes()[from..]) {
                    let start = from + at;
                    if self.is_at(seen, start) {
                        return Ok(Some((start, start + word.len())));
                    }
                    // A text made of near misses would otherwise cost its length times the word's for free.
                    steps.take(again)?;
                    from = start + word.chars().next().map_or(1, char::len_utf8);
                }
                Ok(None)
            }
        }
    }

    /// Bytes of a word as it stands in its view.
    pub(crate) fn length(&self) -> usize {
        match self {
            Self::Word { seen, .. } => seen.len(),
            Self::Pattern { .. } => 0,
        }
    }

    /// True if a word whose letters are at this place counts as found there.
    pub(super) fn is_at(&self, text: &ViewedText<'_, '_>, start: usize) -> bool {
        match self {
            Self::Word { seen, runs, whole, .. } => {
                runs.as_ref().is_none_or(|runs| text.has_runs(runs, start))
                    && (!*whole || text.stands_alone(start, start + seen.len(), in_word))
            }
            Self::Pattern { .. } => false,
        }
    }
}

/// True if it is certain that nothing matches.
fn never(pattern: &str) -> bool {
    regex_syntax::Parser::new().parse(pattern).is_ok_and(|hir| fails(&hir))
}

fn fails(hir: &Hir) -> bool {
    match hir.kind() {
        // It has no shortest match if it has no members.
        HirKind::Class(_) => hir.properties().minimum_len().is_none(),
        HirKind::Capture(capture) => fails(&capture.sub),
        HirKind::Repetition(repetition) => repetition.min > 0 && fails(&repetition.sub),
        HirKind::Alternation(parts) => parts.iter().all(fails),
        HirKind::Concat(parts) => {
            let length = |part: &Hir| part.properties().minimum_len().unwrap_or_default();
            let letters = |parts: &[Hir]| parts.iter().any(|part| length(part) > 0);
            parts.iter().any(fails)
                || parts.iter().enumerate().any(|(nth, part)| {
                    let needs = part.properties();
                    needs.look_set_prefix().contains(Look::Start) && letters(&parts[..nth])
                        || needs.look_set_suffix().contains(Look::End) && letters(&parts[nth + 1..])
                })
        }
        HirKind::Empty | HirKind::Literal(_) | HirKind::Look(_) => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn impossible_pattern_is_detected() {
        for pattern in
            ["a^b", r"a\Ab", "a$b", r"a\zb", "[a&&b]", "x(^y|^z)", "(a|b)+^", "($)[0-9]", "(a^b|c$d)"]
        {
            assert!(never(pattern), "{pattern}");
        }
        for pattern in
            ["^ab$", "(?m)a\n^b", "a*^b", "x?$y?", "(^a|b)c", "b(^a|c)", "([a&&b])?", r"\bx\b", "("]
        {
            assert!(!never(pattern), "{pattern}");
        }
    }
}
