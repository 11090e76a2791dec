//! Words and patterns that text conditions look for.

use std::sync::Arc;

use memchr::memmem::{self, Finder};
use regex::RegexBuilder;
use regex_syntax::hir::{Hir, HirKind, Look};

use crate::{
    fields::ViewedText,
    limits::{Limits, OutOfSteps, Steps, search_steps, to_u64},
    search::{likelihood, literals, pattern::Pattern},
    text::{View, derived::Runs, in_word},
};

#[derive(Debug)]
pub(crate) enum Needle {
    Word {
        written: Arc<str>,
        /// Form of the word in its view; shared with `written` if equal.
        view_form: Arc<str>,
        /// Repeated letters of the word, if any; the text must repeat them as often.
        runs: Option<Box<Runs>>,
        whole_word: bool,
    },
    /// `literals` are in lower case. Each match contains one of them.
    Pattern { pattern: Arc<Pattern>, literals: Option<Vec<String>> },
}

/// Bytes of text from which a prepared searcher pays off; `memmem` prepares none below this either.
const MIN_FINDER_TEXT: usize = 64;

/// Steps for every four bytes of text, by the maximum size of a pattern's program in bytes.
const WEIGHTS: [(usize, u64); 3] = [(16 << 10, 1), (64 << 10, 8), (usize::MAX, 32)];

/// Returns the reason for which a pattern cannot be used.
pub fn pattern_error(pattern: &str, limits: &Limits) -> Option<String> {
    compile_pattern(pattern, limits.regex_bytes).err()
}

/// Compiles a pattern, or returns the reason for which that fails.
pub(crate) fn compile_pattern(pattern: &str, limit: usize) -> Result<Needle, String> {
    let build = |size: usize| {
        // Each thread keeps a cache of the lazy automaton. It is bounded too, because there may be thousands of patterns.
        RegexBuilder::new(pattern)
            .size_limit(size)
            .dfa_size_limit(limit)
            .nest_limit(literals::MAX_NESTING)
            .build()
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
            literals: literals::find_literals(pattern, View::Lower),
            pattern: Arc::new(Pattern::new(regex, weight)),
        }),
        Err(regex::Error::CompiledTooBig(_)) => {
            Err(format!("it takes more than {limit} bytes when compiled: shorten it or its counted repeats"))
        }
        Err(error) => {
            // The library's message draws the pattern with a caret. Only the last line states the problem.
            let message = error.to_string();
            let line = message.lines().last().unwrap_or_default().trim_start_matches("error: ");
            Err(format!("it is not valid: {line}"))
        }
    }
}

/// Maximum size of the program of a pattern with this weight, in bytes.
pub(super) fn size_of_weight(weight: u64) -> usize {
    WEIGHTS.iter().find(|(_, class_weight)| *class_weight == weight).map_or(0, |(size, _)| *size)
}

impl Needle {
    /// Estimated share of texts that contain the word or one of the literals. `None` if only a run of the pattern can tell.
    pub(super) fn likelihood(&self) -> Option<f32> {
        match self {
            Self::Word { view_form, .. } => Some(likelihood(view_form.as_bytes())),
            // A literal leads to a run of its pattern, which takes longer than the check of a word.
            Self::Pattern { literals: Some(literals), .. } => {
                Some(literals.iter().map(|literal| likelihood(literal.as_bytes())).sum::<f32>() * 4.0)
            }
            // A small pattern can run with others over every text, but almost any other index is cheaper.
            Self::Pattern { literals: None, pattern } => (pattern.weight == 1).then_some(0.6),
        }
    }

    /// True if the pattern cannot match, such as `a^b`.
    pub(super) fn is_impossible(&self) -> bool {
        matches!(self, Self::Pattern { pattern, .. } if is_unmatchable(pattern.as_str()))
    }

    /// True for a word of one or two letters in its view that also counts inside of other words.
    pub(super) fn is_short(&self) -> bool {
        matches!(self, Self::Word { view_form, whole_word: false, .. } if view_form.chars().count() < 3)
    }

    pub(super) fn source(&self) -> &str {
        match self {
            Self::Word { written, .. } => written,
            Self::Pattern { pattern, .. } => pattern.as_str(),
        }
    }

    /// True if the text contains the needle.
    pub(super) fn is_in(&self, viewed: &ViewedText<'_, '_>, steps: &mut Steps) -> Result<bool, OutOfSteps> {
        match self {
            // A test without the position saves a second search for the start of the match.
            Self::Pattern { pattern, .. } => pattern.is_match(viewed.text, steps),
            Self::Word { .. } => Ok(self.find(viewed, steps)?.is_some()),
        }
    }

    pub(super) fn find(
        &self,
        viewed: &ViewedText<'_, '_>,
        steps: &mut Steps,
    ) -> Result<Option<(usize, usize)>, OutOfSteps> {
        let text = viewed.text;
        match self {
            Self::Pattern { pattern, .. } => pattern.find(text, steps),
            Self::Word { view_form: word, .. } => {
                steps.take(search_steps(text.len(), word.len()))?;
                if word.len() > text.len() {
                    return Ok(None);
                }
                // A short text is searched faster than a searcher is prepared.
                let finder = (text.len() >= MIN_FINDER_TEXT).then(|| Finder::new(word.as_bytes()));
                let find = |tail: &[u8]| match &finder {
                    Some(finder) => finder.find(tail),
                    None => memmem::find(tail, word.as_bytes()),
                };
                let retry_steps = 1 + to_u64(word.len()) / 64;
                let mut from = 0;
                while let Some(at) = find(&text.as_bytes()[from..]) {
                    let start = from + at;
                    if self.is_at(viewed, start) {
                        return Ok(Some((start, start + word.len())));
                    }
                    // Each near miss is charged. Otherwise a text made of near misses would cost its length times the word's
                    // length at the price of one search.
                    steps.take(retry_steps)?;
                    from = start + word.chars().next().map_or(1, char::len_utf8);
                }
                Ok(None)
            }
        }
    }

    /// Bytes of the word in its view; 0 for a pattern.
    pub(crate) fn length(&self) -> usize {
        match self {
            Self::Word { view_form, .. } => view_form.len(),
            Self::Pattern { .. } => 0,
        }
    }

    /// True if a word with its letters at this place counts as found there.
    pub(super) fn is_at(&self, text: &ViewedText<'_, '_>, start: usize) -> bool {
        match self {
            Self::Word { view_form, runs, whole_word, .. } => {
                runs.as_ref().is_none_or(|runs| text.has_runs(runs, start))
                    && (!*whole_word || text.stands_alone(start, start + view_form.len(), in_word))
            }
            Self::Pattern { .. } => false,
        }
    }
}

/// True if the pattern certainly matches no text.
fn is_unmatchable(pattern: &str) -> bool {
    regex_syntax::Parser::new().parse(pattern).is_ok_and(|hir| cannot_match(&hir))
}

fn cannot_match(hir: &Hir) -> bool {
    match hir.kind() {
        // A class without members has no shortest match.
        HirKind::Class(_) => hir.properties().minimum_len().is_none(),
        HirKind::Capture(capture) => cannot_match(&capture.sub),
        HirKind::Repetition(repetition) => repetition.min > 0 && cannot_match(&repetition.sub),
        HirKind::Alternation(parts) => parts.iter().all(cannot_match),
        HirKind::Concat(parts) => {
            let length = |part: &Hir| part.properties().minimum_len().unwrap_or_default();
            let letters = |parts: &[Hir]| parts.iter().any(|part| length(part) > 0);
            parts.iter().any(cannot_match)
                || parts.iter().enumerate().any(|(nth, part)| {
                    let properties = part.properties();
                    properties.look_set_prefix().contains(Look::Start) && letters(&parts[..nth])
                        || properties.look_set_suffix().contains(Look::End) && letters(&parts[nth + 1..])
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
            assert!(is_unmatchable(pattern), "{pattern}");
        }
        for pattern in
            ["^ab$", "(?m)a\n^b", "a*^b", "x?$y?", "(^a|b)c", "b(^a|c)", "([a&&b])?", r"\bx\b", "("]
        {
            assert!(!is_unmatchable(pattern), "{pattern}");
        }
    }
}
