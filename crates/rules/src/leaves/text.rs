//! Finds words and patterns in an item's texts.
//!
//! It does not prepare the texts, and shares no search between conditions.

use std::sync::LazyLock;

use regex::{Regex, RegexBuilder};

use crate::{
    compile::Context,
    evaluate::Mask,
    explain::{Explained, Hit, TextExplained, excerpt},
    faults::shown,
    form::{Search, Text, View},
    leaves::Scene,
    limits::{Spent, Steps},
    views::{Element, Seen, as_seen},
    vocabulary::Kind,
};

#[derive(Debug)]
pub(crate) struct TextLeaf {
    slots: Vec<usize>,
    view: View,
    needles: Vec<Needle>,
    /// Every needle must be found, each in any of the fields; otherwise one is enough.
    all: bool,
}

#[derive(Debug)]
enum Needle {
    Word { written: String, seen: String, whole: bool },
    Pattern { regex: Regex, weight: u64 },
}

/// Bytes of program up to which a pattern costs this many steps for every four bytes of text.
const WEIGHTS: [(usize, u64); 3] = [(16 << 10, 1), (64 << 10, 8), (usize::MAX, 32)];

impl TextLeaf {
    pub(super) fn compile(text: Text, context: &mut Context<'_>) -> Option<Self> {
        let named = text.fields.len();
        let mut slots = Vec::with_capacity(named);
        context.at("in", |c| {
            for (nth, field) in text.fields.iter().enumerate() {
                c.at(nth, |c| {
                    let (slot, kinds) = c.path(field)?;
                    if let Some((type_id, kind)) = kinds.iter().find(|(_, kind)| *kind != Kind::Text) {
                        let (field, kind) = (shown(field), kind.name());
                        c.fault("type", format!("{field} of item type {type_id} is {kind}, and no text"));
                        return None;
                    }
                    slots.push(slot);
                    Some(())
                });
            }
        });
        let all = matches!(text.search, Search::AllOf { .. });
        let needles = match text.search {
            Search::AnyOf { words, whole } | Search::AllOf { words, whole } => {
                words_of(words, whole, text.view, context)?
            }
            Search::Regex(patterns) => {
                let mut regexes = Vec::with_capacity(patterns.len());
                context.at("regex", |c| {
                    for (nth, pattern) in patterns.iter().enumerate() {
                        // A single pattern may stand without a list, so its path must hold for both.
                        regexes.extend(match patterns.len() {
                            1 => pattern_of(pattern, text.view, c),
                            _ => c.at(nth, |c| pattern_of(pattern, text.view, c)),
                        });
                    }
                });
                (regexes.len() == patterns.len()).then_some(regexes)?
            }
        };
        (slots.len() == named).then_some(Self { slots, view: text.view, needles, all })
    }

    pub(super) fn judge(&self, scene: &Scene<'_>, steps: &mut Steps) -> Result<Mask, Spent> {
        for needle in &self.needles {
            let found = self.find(needle, scene, steps)?.is_some();
            if found != self.all {
                return Ok(Mask::decided(found));
            }
        }
        Ok(Mask::decided(self.all))
    }

    fn find<'s, 'a>(
        &self,
        needle: &Needle,
        scene: &'s Scene<'a>,
        steps: &mut Steps,
    ) -> Result<Option<(usize, Seen<'s, 'a>, usize, usize)>, Spent> {
        for slot in &self.slots {
            for seen in scene.views.texts(*slot, self.view) {
                if let Some((start, end)) = needle.find(seen.text, steps)? {
                    return Ok(Some((*slot, seen, start, end)));
                }
            }
        }
        Ok(None)
    }

    /// Shows where each needle was first found, as far as the steps reach.
    pub(super) fn explain(&self, known: Mask, scene: &Scene<'_>, steps: &mut Steps) -> Explained {
        let mut hits = Vec::new();
        for needle in &self.needles {
            if hits.len() >= scene.limits.hits || known.is_empty() {
                break;
            }
            let Ok(found) = self.find(needle, scene, steps) else { break };
            let Some((slot, seen, start, end)) = found else { continue };
            let (start, end) = seen.origin(start, end);
            hits.push(Hit {
                field: scene.views.path(slot).to_owned(),
                element: match seen.element {
                    Element::Only => None,
                    Element::Index(nth) => Some(nth.to_string()),
                    Element::Key(key) => Some(excerpt(key, scene.limits.excerpt_bytes).to_owned()),
                },
                sought: excerpt(needle.written(), scene.limits.excerpt_bytes).to_owned(),
                start,
                end,
                found: excerpt(&seen.original[start..end], scene.limits.excerpt_bytes).to_owned(),
            });
        }
        let fields = self.slots.iter().map(|slot| scene.views.path(*slot).to_owned()).collect();
        Explained::Text(TextExplained { outcome: known.verdict(), fields, view: self.view, hits })
    }
}

fn words_of(words: Vec<String>, whole: bool, view: View, context: &mut Context<'_>) -> Option<Vec<Needle>> {
    context.count_words(words.len())?;
    let short = words.iter().find(|word| !whole && word.chars().count() < 3 && word.is_ascii());
    if let Some(word) = short {
        let detail = format!("{} is found inside of many words; `words` finds it only alone", shown(word));
        context.warn("short_word", detail);
    }
    let word = |written: String| Needle::Word { seen: as_seen(&written, view), written, whole };
    Some(words.into_iter().map(word).collect())
}

fn pattern_of(pattern: &str, view: View, context: &mut Context<'_>) -> Option<Needle> {
    context.count_regex()?;
    let limit = context.limits.regex_bytes;
    let build = |size: usize| {
        // A thread's cache of the lazily built automaton is bounded too: there may be thousands of patterns.
        RegexBuilder::new(pattern).size_limit(size).dfa_size_limit(limit).nest_limit(64).build()
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
        Ok(regex) => {
            if regex.is_match("") {
                context.warn("regex_empty", "the pattern also matches an empty text".to_owned());
            }
            if view == View::Lower && pattern.chars().any(char::is_uppercase) && !pattern.contains('\\') {
                let detail = "the view `lower` has no upper-case letters for the pattern to find";
                context.warn("regex_case", detail.to_owned());
            }
            Some(Needle::Pattern { regex, weight })
        }
        Err(regex::Error::CompiledTooBig(_)) => {
            context.fault("regex", format!("the pattern is larger than {limit} bytes when compiled"));
            None
        }
        Err(fault) => {
            // The library's message draws the pattern with a caret under it; its last line says what is wrong.
            let message = fault.to_string();
            let line = message.lines().last().unwrap_or_default().trim_start_matches("error: ");
            context.fault("regex", format!("the pattern is not valid: {line}"));
            None
        }
    }
}

impl Needle {
    fn written(&self) -> &str {
        match self {
            Self::Word { written, .. } => written,
            Self::Pattern { regex, .. } => regex.as_str(),
        }
    }

    fn find(&self, text: &str, steps: &mut Steps) -> Result<Option<(usize, usize)>, Spent> {
        let length = u64::try_from(text.len()).unwrap_or(u64::MAX);
        match self {
            Self::Pattern { regex, weight } => {
                steps.take((length / 4).saturating_mul(*weight))?;
                Ok(regex.find(text).map(|found| (found.start(), found.end())))
            }
            Self::Word { seen, whole, .. } => {
                steps.take(length / 64)?;
                let again = 1 + u64::try_from(seen.len()).unwrap_or(u64::MAX) / 64;
                let mut from = 0;
                while let Some(start) = text[from..].find(seen).map(|at| from + at) {
                    let end = start + seen.len();
                    if !*whole || stands_alone(text, start, end) {
                        return Ok(Some((start, end)));
                    }
                    // A text made of near misses would otherwise cost its length times the word's for free.
                    steps.take(again)?;
                    from = start + seen.chars().next().map_or(1, char::len_utf8);
                }
                Ok(None)
            }
        }
    }
}

/// No word character on either side, whatever the word itself begins and ends with.
fn stands_alone(text: &str, start: usize, end: usize) -> bool {
    !text[..start].chars().next_back().is_some_and(in_word)
        && !text[end..].chars().next().is_some_and(in_word)
}

/// What `\w` stands for in regular expressions, so that `words` and `\b` agree: marks and joiners belong to a word.
fn in_word(character: char) -> bool {
    static WORD: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\A\w").ok());
    if character.is_ascii() {
        return character.is_ascii_alphanumeric() || character == '_';
    }
    let mut buffer = [0; 4];
    character.is_alphanumeric()
        || WORD.as_ref().is_some_and(|word| word.is_match(character.encode_utf8(&mut buffer)))
}
