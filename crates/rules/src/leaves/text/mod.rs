//! Finds words and patterns in an item's texts.
//!
//! It does not prepare the texts; where one search serves many conditions, `engine` tells what it found.

pub(super) mod needle;

use std::collections::{HashMap, HashSet};

use tidegate_schemas::{banks::BankKind, ids::BankId};

use crate::{
    bank::EntryName,
    compile::Context,
    derived::{Derived, Runs},
    engine::scanner::{Next, Scanner},
    evaluate::Mask,
    explain::{Explained, Hit, TextExplained, excerpt},
    faults::shown,
    form::{Search, Text, View},
    leaves::{Scene, constraint::Constraint},
    limits::{Spent, Steps, wide},
    views::Seen,
};

pub(crate) use self::needle::{Needle, in_word};
use self::needle::{compiled, size_of_weight};

#[derive(Debug)]
pub(crate) struct TextLeaf {
    pub(crate) slots: Vec<usize>,
    pub(crate) view: View,
    pub(crate) needles: Vec<Needle>,
    /// How many needles must be found, each in any of the fields.
    pub(crate) needed: usize,
    bulk: Option<Bulk>,
    /// Where they are from, if they are not the rule's own.
    pub(crate) bank: Option<BankId>,
    /// By needle: the bank's entry that it is.
    entries: Vec<EntryName>,
}

/// One search for all words of a condition that has many.
#[derive(Debug)]
struct Bulk {
    scanner: Scanner,
    /// The needles of each word of the scanner.
    needles: Vec<Vec<usize>>,
}

/// Words that are searched one by one at most.
const FEW_WORDS: usize = 16;

impl TextLeaf {
    pub(super) fn compile(text: Text, context: &mut Context<'_>) -> Option<Self> {
        let slots = context.texts(&text.fields, "text");
        let all = matches!(text.search, Search::AllOf { .. });
        let bank = match &text.search {
            Search::Bank { bank, .. } => Some(bank.clone()),
            _ => None,
        };
        let mut entries = Vec::new();
        let mut needles = match text.search {
            Search::Bank { bank, whole } => {
                let found = entries_of(&bank, whole, text.view, context)?;
                let needles;
                (needles, entries) = found.into_iter().unzip();
                needles
            }
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
        let needed = if all { needles.len() } else { text.min_distinct };
        if !all && needed > 1 {
            distinct(&mut needles, &mut entries);
            if bank.is_none() && needles.len() < needed {
                let detail =
                    "words that are the same in this view count once, and too few are left to be found";
                context.at("min_distinct", |c| c.fault("limit", detail.to_owned()));
                return None;
            }
        }
        Some(Self { slots: slots?, view: text.view, needles, needed, bulk: None, bank, entries })
    }

    /// Bytes that its words and patterns take; a pattern as much again for what a thread keeps for it.
    pub(crate) fn memory(&self) -> usize {
        let of = |needle: &Needle| match needle {
            Needle::Word { written, seen, .. } => size_of::<Needle>() + written.len() + seen.len(),
            Needle::Pattern { weight, .. } => 2 * size_of_weight(*weight).min(256 << 10),
        };
        self.needles.iter().map(of).sum()
    }

    pub(super) fn constraints(&self, passes: bool) -> Vec<Constraint> {
        if !passes {
            return Vec::new();
        }
        // A bank may come to hold other entries.
        let possible = self.needles.iter().filter(|needle| !needle.is_impossible()).count();
        if self.bank.is_none() && possible < self.needed {
            return vec![Constraint::never()];
        }
        if let [slot] = self.slots[..] { vec![Constraint::presence(slot, true)] } else { Vec::new() }
    }

    /// Prepares for being judged alone: a long list of words then costs one pass over a text.
    pub(crate) fn gather(&mut self) {
        let words = self.needles.iter().filter(|needle| matches!(needle, Needle::Word { .. })).count();
        if self.bulk.is_some() || words <= FEW_WORDS || words < self.needles.len() {
            return;
        }
        let mut places: HashMap<&[u8], usize> = HashMap::new();
        let mut seen: Vec<&[u8]> = Vec::new();
        let mut needles: Vec<Vec<usize>> = Vec::new();
        for (nth, needle) in self.needles.iter().enumerate() {
            let Needle::Word { seen: word, .. } = needle else { continue };
            let place = *places.entry(word.as_bytes()).or_insert_with_key(|word| {
                seen.push(word);
                needles.push(Vec::new());
                seen.len() - 1
            });
            needles[place].push(nth);
        }
        self.bulk = Some(Bulk { scanner: Scanner::new(&seen), needles });
    }

    pub(super) fn judge(&self, scene: &Scene<'_>, steps: &mut Steps) -> Result<Mask, Spent> {
        if let Some(bulk) = &self.bulk {
            let found = self.gathered(bulk, self.needed, scene, steps)?;
            return Ok(Mask::decided(found.len() >= self.needed));
        }
        let mut missing = self.needed;
        for (nth, needle) in self.needles.iter().enumerate() {
            missing -= usize::from(self.find(needle, scene, steps)?.is_some());
            let left = self.needles.len() - nth - 1;
            if missing == 0 || missing > left {
                break;
            }
        }
        Ok(Mask::decided(missing == 0))
    }

    /// The needles that are found, sorted; no more than `enough`.
    fn gathered(
        &self,
        bulk: &Bulk,
        enough: usize,
        scene: &Scene<'_>,
        steps: &mut Steps,
    ) -> Result<Vec<usize>, Spent> {
        let mut missing = vec![true; self.needles.len()];
        let mut found = Vec::new();
        for slot in &self.slots {
            for seen in scene.views.texts(*slot, self.view) {
                steps.take(1 + wide(seen.text.len()) / 16)?;
                let mut spent = false;
                let next = bulk.scanner.scan(seen.text.as_bytes(), &mut |word, start| {
                    if steps.take(1).is_err() {
                        spent = true;
                        return Next::Stop;
                    }
                    for nth in &bulk.needles[word as usize] {
                        if missing[*nth] && self.needles[*nth].is_at(&seen, start) {
                            missing[*nth] = false;
                            found.push(*nth);
                        }
                    }
                    if found.len() >= enough { Next::Stop } else { Next::Go }
                });
                match next {
                    _ if spent => return Err(Spent),
                    Next::Stop => return Ok(found),
                    Next::Go => {}
                }
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    /// Whether one of the needles is in one of the texts.
    pub(crate) fn finds(&self, nth: usize, seen: &Seen<'_, '_>, steps: &mut Steps) -> Result<bool, Spent> {
        Ok(self.needles[nth].find(seen, steps)?.is_some())
    }

    fn find<'s, 'a>(
        &self,
        needle: &Needle,
        scene: &'s Scene<'a>,
        steps: &mut Steps,
    ) -> Result<Option<(usize, Seen<'s, 'a>, usize, usize)>, Spent> {
        for slot in &self.slots {
            for seen in scene.views.texts(*slot, self.view) {
                if let Some((start, end)) = needle.find(&seen, steps)? {
                    return Ok(Some((*slot, seen, start, end)));
                }
            }
        }
        Ok(None)
    }

    /// Shows where each needle was first found, as far as the steps reach; `found` are those that are, if known.
    pub(super) fn explain(
        &self,
        known: Mask,
        found: Option<&[(u32, u32)]>,
        scene: &Scene<'_>,
        steps: &mut Steps,
    ) -> Explained {
        let (hits, more) = match (found, &self.bulk) {
            _ if known.is_empty() => (Vec::new(), false),
            (Some(found), _) => self.hits(found.iter().map(|(_, nth)| *nth as usize), scene, steps),
            (None, Some(bulk)) => {
                let found = self.gathered(bulk, usize::MAX, scene, steps).unwrap_or_default();
                self.hits(found, scene, steps)
            }
            (None, None) => self.hits(0..self.needles.len(), scene, steps),
        };
        let fields = self.slots.iter().map(|slot| scene.views.path(*slot).to_owned()).collect();
        Explained::Text(TextExplained { outcome: known.verdict(), fields, view: self.view, hits, more })
    }

    /// Where each of these needles is first, and whether there are more than are shown.
    fn hits(
        &self,
        needles: impl IntoIterator<Item = usize>,
        scene: &Scene<'_>,
        steps: &mut Steps,
    ) -> (Vec<Hit>, bool) {
        let mut hits = Vec::new();
        for (nth, needle) in needles.into_iter().map(|nth| (nth, &self.needles[nth])) {
            let Ok(found) = self.find(needle, scene, steps) else { break };
            let Some((slot, seen, start, end)) = found else { continue };
            if hits.len() >= scene.limits.hits {
                return (hits, true);
            }
            let (start, end) = seen.origin(start, end);
            hits.push(Hit {
                field: scene.views.path(slot).to_owned(),
                element: seen.element.name(scene.limits.excerpt_bytes),
                sought: excerpt(needle.written(), scene.limits.excerpt_bytes).to_owned(),
                start,
                end,
                found: excerpt(&seen.original[start..end], scene.limits.excerpt_bytes).to_owned(),
                entry: self.entries.get(nth).cloned(),
            });
        }
        (hits, false)
    }
}

fn words_of(words: Vec<String>, whole: bool, view: View, context: &mut Context<'_>) -> Option<Vec<Needle>> {
    context.count_words(words.len())?;
    let mut needles = Vec::with_capacity(words.len());
    for written in words {
        let (seen, runs) = Derived::of_word(&written, view);
        if seen.is_empty() {
            context.fault("empty", format!("{} has no letters in this view", shown(&written)));
            return None;
        }
        needles.push(Needle::Word { written, seen, runs, whole });
    }
    if let Some(word) = needles.iter().find(|needle| needle.is_short()) {
        let word = shown(word.written());
        let detail = format!("{word} is found inside of many words; `words` finds it only alone");
        context.warn("short_word", detail);
    }
    Some(needles)
}

/// The entries of a bank that can be searched for.
fn entries_of(
    bank: &BankId,
    whole: bool,
    view: View,
    context: &mut Context<'_>,
) -> Option<Vec<(Needle, EntryName)>> {
    let bank = context.bank(bank, &[BankKind::Text, BankKind::Regex])?;
    if bank.kind == BankKind::Regex && (whole || view > View::Lower) {
        let key = if whole { "word" } else { "view" };
        let detail = "patterns search the views raw and lower only, and say themselves where a word ends";
        context.at(key, |c| c.fault("shape", detail.to_owned()));
        return None;
    }
    let mut found = Vec::with_capacity(bank.entries.len());
    for entry in &*bank.entries {
        let needle = if bank.kind == BankKind::Regex {
            context.count_regex()?;
            compiled(&entry.value, context.limits.regex_bytes)
        } else {
            let (seen, runs) = Derived::of_word(&entry.value, view);
            let word = Needle::Word { written: entry.value.clone(), seen, runs, whole };
            if word.length() > 0 { Ok(word) } else { Err("it has no letters in this view".to_owned()) }
        };
        match needle {
            Ok(needle) => found.push((needle, bank.name(entry))),
            Err(why) => context.unusable(&bank.key, entry, &why),
        }
    }
    context.count_words(found.len())?;
    let mut short = found.iter().map(|(needle, _)| needle).filter(|needle| needle.is_short());
    if let Some(first) = short.next() {
        let first = shown(first.written());
        let more = match short.count() {
            0 => String::new(),
            more => format!(", as are {more} more entries"),
        };
        let detail = format!(
            "the entry {first} is found inside of many words{more}; `word: true` finds it only alone"
        );
        context.at("bank", |c| c.warn("short_word", detail));
    }
    Some(found)
}

/// Leaves the first of needles that are found together, each with its entry.
fn distinct(needles: &mut Vec<Needle>, entries: &mut Vec<EntryName>) {
    let mut known = HashSet::new();
    let first: Vec<bool> = needles
        .iter()
        .map(|needle| match needle {
            Needle::Word { seen, runs, .. } => known.insert((seen.clone(), runs.clone())),
            Needle::Pattern { regex, .. } => known.insert((regex.as_str().to_owned(), Runs::default())),
        })
        .collect();
    let mut kept = first.iter();
    needles.retain(|_| kept.next().is_some_and(|first| *first));
    let mut kept = first.iter();
    entries.retain(|_| kept.next().is_some_and(|first| *first));
}

fn pattern_of(pattern: &str, view: View, context: &mut Context<'_>) -> Option<Needle> {
    context.count_regex()?;
    match compiled(pattern, context.limits.regex_bytes) {
        Ok(needle) => {
            if let Needle::Pattern { regex, .. } = &needle
                && regex.is_match("")
            {
                context.warn("regex_empty", "the pattern also matches an empty text".to_owned());
            }
            if let Needle::Pattern { work, .. } = &needle {
                let bytes = (context.limits.steps_per_rule / work).saturating_mul(4);
                if bytes < wide(context.limits.text_bytes) {
                    let detail = format!(
                        "counted repeats make the pattern so large that a text of more than {bytes} bytes takes all \
                         steps of a rule: it ends as `errored: deadline`"
                    );
                    context.warn("regex_costly", detail);
                }
            }
            if view == View::Lower && pattern.chars().any(char::is_uppercase) && !pattern.contains('\\') {
                let detail = "the view `lower` has no upper-case letters for the pattern to find";
                context.warn("regex_case", detail.to_owned());
            }
            Some(needle)
        }
        Err(why) => {
            context.fault("regex", format!("the pattern {}", why.trim_start_matches("it ")));
            None
        }
    }
}
