//! The condition `text`: words or patterns are found in texts of the item. Where one search serves many conditions, the
//! engine tells what it found.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use tidegate_schemas::{banks::BankKind, ids::BankId};

use super::{
    constraint::Constraint,
    context::Context,
    input::{EvalInput, Hit},
    kind::{DocumentLeaf, LeafKind, USUAL_TEXT, guess},
    needle::{Needle, compiled, size_of_weight},
};
use crate::{
    error::{excerpt, shown},
    fields::ViewedText,
    limits::{OutOfSteps, Steps, wide},
    logic::{ConditionResult, Mask},
    reader::{Object, Reader, present},
    search::{Next, scanner::Scanner, starts},
    text::{
        View,
        derived::{Derived, Runs},
    },
    vocabulary::UsedEntries,
};

/// Words or patterns, searched in named fields.
#[derive(Clone, Debug, PartialEq)]
pub struct Text {
    pub fields: Vec<String>,
    pub view: View,
    pub search: Search,
    /// Number of the words or patterns that must be found, each at least once.
    pub min_distinct: usize,
}

/// Search of a text condition.
#[derive(Clone, Debug, PartialEq)]
pub enum Search {
    /// `any_of`, or `words` for whole words.
    AnyOf { words: Vec<String>, whole: bool },
    /// `min_distinct` is the number of words.
    AllOf { words: Vec<String>, whole: bool },
    /// One of these regular expressions.
    Regex(Vec<String>),
    /// One of a bank's words or patterns.
    Bank { bank: BankId, whole: bool },
}

#[derive(Debug)]
pub(crate) struct TextLeaf {
    pub(crate) slots: Vec<usize>,
    pub(crate) view: View,
    pub(crate) needles: Vec<Needle>,
    /// Number of needles that must be found, each in any of the fields.
    pub(crate) needed: usize,
    bulk: Option<Bulk>,
    /// The bank's entry of each needle, if they are not the rule's own.
    entries: Option<UsedEntries>,
}

/// One search for all words of a condition that has many.
#[derive(Debug)]
struct Bulk {
    scanner: Scanner,
    /// The needles by word of the scanner, and where those of each word start.
    needles: Box<[u32]>,
    starts: Box<[u32]>,
}

impl Bulk {
    fn needles(&self, word: u32) -> impl Iterator<Item = usize> {
        let (from, to) = (self.starts[word as usize], self.starts[word as usize + 1]);
        self.needles[from as usize..to as usize].iter().map(|nth| *nth as usize)
    }
}

/// Words that are searched one by one at most.
const FEW_WORDS: usize = 16;

impl LeafKind for TextLeaf {
    type Spec = Text;
    type Explained = TextExplained;

    fn paths(spec: &Text, _context: &Context<'_>) -> Vec<String> {
        spec.fields.clone()
    }

    fn compile(text: Text, context: &mut Context<'_>) -> Option<Self> {
        let slots = context.texts(&text.fields, "text");
        Self::over(slots, text, context)
    }

    fn witness(&self) -> Option<f32> {
        self.indexed_needles().map(|(likelihood, _)| likelihood)
    }

    fn cost(&self) -> f32 {
        let words = self.needles.iter().filter(|needle| matches!(needle, Needle::Word { .. })).count();
        10.0 + guess(words.min(100)) * 4.0 + self.on_usual_text()
    }

    /// Bytes of its words and patterns, with what a thread keeps for a pattern.
    fn memory(&self) -> usize {
        let of = |needle: &Needle| match needle {
            Needle::Word { written, seen, .. } => size_of::<Needle>() + written.len() + seen.len(),
            Needle::Pattern { pattern, .. } => {
                pattern.programs() * size_of_weight(pattern.weight).min(256 << 10)
            }
        };
        self.needles.iter().map(of).sum()
    }

    fn lint(&self, passes: bool) -> Vec<Constraint> {
        if !passes {
            return Vec::new();
        }
        // A bank may come to hold other entries.
        let possible = self.needles.iter().filter(|needle| !needle.is_impossible()).count();
        if self.entries.is_none() && possible < self.needed {
            return vec![Constraint::never()];
        }
        if let [slot] = self.slots[..] { vec![Constraint::presence(slot, true)] } else { Vec::new() }
    }

    fn evaluate(&self, input: &EvalInput<'_>, steps: &mut Steps) -> Result<Mask, OutOfSteps> {
        if let Some(bulk) = &self.bulk {
            let found = self.gathered(bulk, self.needed, input, steps)?;
            return Ok(Mask::decided(found.len() >= self.needed));
        }
        let mut missing = self.needed;
        for (nth, needle) in self.needles.iter().enumerate() {
            missing -= usize::from(self.has(needle, input, steps)?);
            let left = self.needles.len() - nth - 1;
            if missing == 0 || missing > left {
                break;
            }
        }
        Ok(Mask::decided(missing == 0))
    }

    /// Shows where each needle was first found, as far as the steps reach; `found` are those that are, if known.
    fn explain(
        &self,
        known: Mask,
        found: Option<&[(u32, u32)]>,
        input: &EvalInput<'_>,
        steps: &mut Steps,
    ) -> TextExplained {
        let (hits, more) = match (found, &self.bulk) {
            _ if known.is_empty() => (Vec::new(), false),
            (Some(found), _) => self.hits(found.iter().map(|(_, nth)| *nth as usize), input, steps),
            (None, Some(bulk)) => {
                let found = self.gathered(bulk, usize::MAX, input, steps).unwrap_or_default();
                self.hits(found, input, steps)
            }
            (None, None) => self.hits(0..self.needles.len(), input, steps),
        };
        let fields = self.slots.iter().map(|slot| input.fields.path(*slot).to_owned()).collect();
        TextExplained { outcome: known.result(), fields, view: self.view, hits, more }
    }
}

impl DocumentLeaf for TextLeaf {
    const KEY: &'static str = "text";

    fn parse(reader: &mut Reader<'_>, value: &Json) -> Option<Text> {
        reader.text_search(value, "in", Reader::paths)
    }
}

impl Reader<'_> {
    /// Reads a search in the texts that stand under the key `place`.
    pub(crate) fn text_search(
        &mut self,
        value: &Json,
        place: &'static str,
        texts: impl FnOnce(&mut Self, &Json) -> Option<Vec<String>>,
    ) -> Option<Text> {
        const SEARCHES: [&str; 5] = ["any_of", "all_of", "words", "regex", "bank"];
        let object = self.object(
            value,
            &[
                place,
                "view",
                "word",
                "min_distinct",
                SEARCHES[0],
                SEARCHES[1],
                SEARCHES[2],
                SEARCHES[3],
                SEARCHES[4],
            ],
        )?;
        let fields = self.required(object, place, texts);
        let view = self.optional(object, "view", |r, v| r.variant(v, View::ALL, View::as_str));
        let word = self.optional(object, "word", Self::boolean);
        let distinct = self.optional(object, "min_distinct", |r, v| {
            let distinct = r.whole(v)?;
            usize::try_from(distinct)
                .ok()
                .filter(|n| *n >= 1)
                .or_else(|| r.error("type", "expected 1 or more"))
        });
        let named: Vec<_> = SEARCHES.into_iter().filter(|name| present(object, name)).collect();
        // Whatever does not fit, the rest is read for its own errors.
        let mut fits = present(object, "min_distinct") == distinct.is_some();
        if named.len() != 1 {
            self.error::<()>("shape", format!("expected exactly one of {}", SEARCHES.join(", ")));
            fits = false;
        }
        if word.is_some() && named.iter().any(|kind| !matches!(*kind, "any_of" | "all_of" | "bank")) {
            self.error::<()>("shape", "`word` goes with any_of, all_of and bank only: remove it");
            fits = false;
        }
        let mut searches: Vec<_> = named.iter().map(|kind| self.search(object, kind, word)).collect();
        let (kind, search) = named.last().zip(searches.pop())?;
        let usual = if *kind == "regex" { View::Raw } else { View::Lower };
        let view = view.unwrap_or(usual);
        if *kind == "regex" && view > View::Lower {
            // A pattern has no folded form: it could name characters that the folded text never has.
            self.at("view", |r| {
                r.error::<()>("shape", "patterns search the views raw and lower only: choose one of them")
            });
            fits = false;
        }
        let search = search.filter(|_| fits)?;
        let count = match &search {
            Search::AnyOf { words, .. } | Search::AllOf { words, .. } => words.len(),
            Search::Regex(patterns) => patterns.len(),
            // How many there are is seen when it is at hand.
            Search::Bank { .. } => usize::MAX,
        };
        if distinct.is_some() && *kind == "all_of" {
            return self.error("shape", "`min_distinct` does not go with `all_of`: remove it");
        }
        if distinct.is_some_and(|distinct| distinct > count) {
            return self.at("min_distinct", |r| {
                r.error("limit", format!("larger than the number of words or patterns, which is {count}"))
            });
        }
        let min_distinct = if *kind == "all_of" { count } else { distinct.unwrap_or(1) };
        Some(Text { fields: fields?, view, search, min_distinct })
    }

    fn search(&mut self, text: &Object, kind: &str, word: Option<bool>) -> Option<Search> {
        let whole = word.unwrap_or(kind == "words");
        self.required(text, kind, |r, v| match kind {
            "regex" => r.regexes(v).map(Search::Regex),
            "bank" => r.text(v).map(|bank| Search::Bank { bank: BankId::new(bank), whole }),
            "all_of" => r.words(v).map(|words| Search::AllOf { words, whole }),
            _ => r.words(v).map(|words| Search::AnyOf { words, whole }),
        })
    }

    /// One pattern, or a list of which one must be found.
    fn regexes(&mut self, value: &Json) -> Option<Vec<String>> {
        let limit = self.limits.regex_source_bytes;
        let pattern = |r: &mut Self, v: &Json| match v.as_str() {
            Some("") => r.error("empty", "the pattern is empty"),
            Some(text) if text.len() > limit => {
                r.error("limit", format!("the pattern is {} bytes long, the limit is {limit}", text.len()))
            }
            Some(text) => Some(text.to_owned()),
            None => r.error("shape", "expected a pattern"),
        };
        let patterns =
            if value.is_array() { self.filled(value, pattern) } else { Some(vec![pattern(self, value)?]) }?;
        self.counted(patterns.len())?;
        Some(patterns)
    }

    fn words(&mut self, value: &Json) -> Option<Vec<String>> {
        let words = self.filled(value, |r, v| r.text(v).map(str::to_owned))?;
        self.counted(words.len())?;
        Some(words)
    }
}

impl TextLeaf {
    /// Compiles a search of the texts in these slots.
    pub(crate) fn over(slots: Option<Vec<usize>>, text: Text, context: &mut Context<'_>) -> Option<Self> {
        let all = matches!(text.search, Search::AllOf { .. });
        let mut entries = None;
        let mut needles = match text.search {
            Search::Bank { bank, whole } => {
                let (needles, used) = entries_of(&bank, whole, text.view, context)?;
                entries = Some(used);
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
            distinct(&mut needles, entries.as_mut());
            if entries.is_none() && needles.len() < needed {
                let detail =
                    "words that are the same in this view count once, and too few are left to be found";
                context.at("min_distinct", |c| c.error("limit", detail.to_owned()));
                return None;
            }
        }
        Some(Self { slots: slots?, view: text.view, needles, needed, bulk: None, entries })
    }

    /// Bank of the needles, if they are not the rule's own.
    pub(crate) fn bank(&self) -> Option<&BankId> {
        self.entries.as_ref().map(UsedEntries::bank)
    }

    /// The needles of which one must be found for the condition to pass, and how often one will be: if `k` of `n` are
    /// needed, the `n - k + 1` rarest.
    pub(crate) fn indexed_needles(&self) -> Option<(f32, Vec<u32>)> {
        let costs =
            (0_u32..).zip(&self.needles).filter_map(|(nth, needle)| Some((needle.likelihood()?, nth)));
        let mut costs: Vec<_> = costs.collect();
        costs.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        // A bank may have too few entries: then the condition is not indexed, and it cannot pass.
        let enough = (self.needles.len() + 1).saturating_sub(self.needed);
        if costs.len() < enough {
            return None;
        }
        costs.truncate(enough);
        let mut needles: Vec<_> = costs.iter().map(|(_, nth)| *nth).collect();
        needles.sort_unstable();
        Some((costs.iter().map(|(cost, _)| cost).sum(), needles))
    }

    /// Steps that the patterns take on the usual text.
    #[allow(clippy::cast_precision_loss, reason = "a guess")]
    pub(crate) fn on_usual_text(&self) -> f32 {
        let patterns = self.needles.iter().map(|needle| match needle {
            Needle::Pattern { pattern, .. } => (1 + wide(USUAL_TEXT) / 4).saturating_mul(pattern.work) as f32,
            Needle::Word { .. } => 0.0,
        });
        patterns.sum()
    }

    /// Prepares for being evaluated alone: a long list of words then costs one pass over a text.
    pub(crate) fn gather(&mut self) {
        let words = self.needles.iter().filter(|needle| matches!(needle, Needle::Word { .. })).count();
        if self.bulk.is_some() || words <= FEW_WORDS || words < self.needles.len() {
            return;
        }
        let mut places: HashMap<&[u8], usize> = HashMap::new();
        let mut seen: Vec<&[u8]> = Vec::new();
        let mut needles: Vec<(usize, u32)> = Vec::new();
        for (nth, needle) in (0_u32..).zip(&self.needles) {
            let Needle::Word { seen: word, .. } = needle else { continue };
            let place = *places.entry(word.as_bytes()).or_insert_with_key(|word| {
                seen.push(word);
                seen.len() - 1
            });
            needles.push((place, nth));
        }
        // Stable: the needles of a word stay in their order.
        needles.sort_by_key(|(place, _)| *place);
        let mut lengths = vec![0; seen.len()];
        for (place, _) in &needles {
            lengths[*place] += 1;
        }
        let starts = starts(lengths.into_iter());
        let scanner = Scanner::new(&seen);
        self.bulk =
            Some(Bulk { scanner, needles: needles.into_iter().map(|(_, nth)| nth).collect(), starts });
    }

    /// The needles that are found, sorted; no more than `enough`.
    fn gathered(
        &self,
        bulk: &Bulk,
        enough: usize,
        input: &EvalInput<'_>,
        steps: &mut Steps,
    ) -> Result<Vec<usize>, OutOfSteps> {
        let mut missing = vec![true; self.needles.len()];
        let mut found = Vec::new();
        for slot in &self.slots {
            for seen in input.fields.texts(*slot, self.view) {
                steps.take(1 + wide(seen.text.len()) / 16)?;
                let mut spent = false;
                let next = bulk.scanner.scan(seen.text.as_bytes(), &mut |word, start| {
                    if steps.take(1).is_err() {
                        spent = true;
                        return Next::Stop;
                    }
                    for nth in bulk.needles(word) {
                        if missing[nth] && self.needles[nth].is_at(&seen, start) {
                            missing[nth] = false;
                            found.push(nth);
                        }
                    }
                    if found.len() >= enough { Next::Stop } else { Next::Go }
                });
                match next {
                    _ if spent => return Err(OutOfSteps),
                    Next::Stop => return Ok(found),
                    Next::Go => {}
                }
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    /// True if one of the needles is in one of the texts.
    pub(crate) fn finds(
        &self,
        nth: usize,
        seen: &ViewedText<'_, '_>,
        steps: &mut Steps,
    ) -> Result<bool, OutOfSteps> {
        self.needles[nth].is_in(seen, steps)
    }

    fn has(&self, needle: &Needle, input: &EvalInput<'_>, steps: &mut Steps) -> Result<bool, OutOfSteps> {
        for slot in &self.slots {
            for seen in input.fields.texts(*slot, self.view) {
                if needle.is_in(&seen, steps)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    fn find<'s, 'a>(
        &self,
        needle: &Needle,
        input: &'s EvalInput<'a>,
        steps: &mut Steps,
    ) -> Result<Option<(usize, ViewedText<'s, 'a>, usize, usize)>, OutOfSteps> {
        for slot in &self.slots {
            for seen in input.fields.texts(*slot, self.view) {
                if let Some((start, end)) = needle.find(&seen, steps)? {
                    return Ok(Some((*slot, seen, start, end)));
                }
            }
        }
        Ok(None)
    }

    /// First place of each of these needles, and true if there are more than are shown.
    fn hits(
        &self,
        needles: impl IntoIterator<Item = usize>,
        input: &EvalInput<'_>,
        steps: &mut Steps,
    ) -> (Vec<Hit>, bool) {
        let mut hits = Vec::new();
        for (nth, needle) in needles.into_iter().map(|nth| (nth, &self.needles[nth])) {
            let Ok(found) = self.find(needle, input, steps) else { break };
            let Some((slot, seen, start, end)) = found else { continue };
            if hits.len() >= input.limits.hits {
                return (hits, true);
            }
            let (start, end) = seen.origin(start, end);
            hits.push(Hit {
                field: input.fields.path(slot).to_owned(),
                element: seen.element.name(input.limits.excerpt_bytes),
                sought: excerpt(needle.written(), input.limits.excerpt_bytes).to_owned(),
                start,
                end,
                found: excerpt(&seen.original[start..end], input.limits.excerpt_bytes).to_owned(),
                entry: self.entries.as_ref().and_then(|entries| entries.name(nth)),
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
            context.error(
                "empty",
                format!(
                    "word {} has no letters in this view: remove it or choose a finer view",
                    shown(&written)
                ),
            );
            return None;
        }
        needles.push(word_of(written.into(), seen, runs, whole));
    }
    if let Some(word) = needles.iter().find(|needle| needle.is_short()) {
        let word = shown(word.written());
        let detail = format!("{word} is found inside of many words: `word: true` finds it only alone");
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
) -> Option<(Vec<Needle>, UsedEntries)> {
    let bank = context.bank(bank, &[BankKind::Text, BankKind::Regex])?;
    if bank.kind == BankKind::Regex && (whole || view > View::Lower) {
        let key = if whole { "word" } else { "view" };
        let detail = "patterns search the views raw and lower only, and say themselves where a word ends";
        context.at(key, |c| c.error("shape", detail.to_owned()));
        return None;
    }
    let (mut needles, mut used) =
        (Vec::with_capacity(bank.entries.len()), Vec::with_capacity(bank.entries.len()));
    for (nth, entry) in (0_u32..).zip(&*bank.entries) {
        let needle = if bank.kind == BankKind::Regex {
            context.count_regex()?;
            compiled(&entry.value, context.limits.regex_bytes)
        } else {
            let (seen, runs) = Derived::of_word(&entry.value, view);
            let word = word_of(Arc::clone(&entry.value), seen, runs, whole);
            if word.length() > 0 { Ok(word) } else { Err("it has no letters in this view".to_owned()) }
        };
        match needle {
            Ok(needle) => {
                needles.push(needle);
                used.push(nth);
            }
            Err(why) => context.unusable(&bank.key, entry, &why),
        }
    }
    let used = UsedEntries::new(bank, used);
    context.count_words(needles.len())?;
    let mut short = needles.iter().filter(|needle| needle.is_short());
    if let Some(first) = short.next() {
        let first = shown(first.written());
        let more = match short.count() {
            0 => String::new(),
            more => format!(", as are {more} more entries"),
        };
        let detail =
            format!("entry {first} is found inside of many words{more}: `word: true` finds it only alone");
        context.at("bank", |c| c.warn("short_word", detail));
    }
    Some((needles, used))
}

fn word_of(written: Arc<str>, seen: String, runs: Runs, whole: bool) -> Needle {
    let seen = if *seen == *written { Arc::clone(&written) } else { seen.into() };
    Needle::Word { written, seen, runs: (!runs.is_empty()).then(|| Box::new(runs)), whole }
}

/// Leaves the first of needles that are found together, each with its entry.
fn distinct(needles: &mut Vec<Needle>, entries: Option<&mut UsedEntries>) {
    let mut known = HashSet::new();
    let first: Vec<bool> = needles
        .iter()
        .map(|needle| match needle {
            Needle::Word { seen, runs, .. } => known.insert((Arc::clone(seen), runs.clone())),
            Needle::Pattern { pattern, .. } => known.insert((pattern.as_str().into(), None)),
        })
        .collect();
    let mut kept = first.iter();
    needles.retain(|_| kept.next().is_some_and(|first| *first));
    if let Some(entries) = entries {
        entries.retain(&first);
    }
}

fn pattern_of(pattern: &str, view: View, context: &mut Context<'_>) -> Option<Needle> {
    context.count_regex()?;
    match compiled(pattern, context.limits.regex_bytes) {
        Ok(needle) => {
            if let Needle::Pattern { pattern, .. } = &needle
                && pattern.regex().is_match("")
            {
                context.warn("regex_empty", "the pattern also matches an empty text".to_owned());
            }
            if let Needle::Pattern { pattern, .. } = &needle {
                let bytes = (context.limits.steps_per_rule / pattern.work).saturating_mul(4);
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
            context.error("regex", format!("the pattern {}", why.trim_start_matches("it ")));
            None
        }
    }
}

/// The evaluation of a text condition, as explanations show it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TextExplained {
    pub outcome: ConditionResult,
    #[serde(rename = "in")]
    pub fields: Vec<String>,
    pub view: View,
    /// The first place of each word or pattern that was found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hits: Vec<Hit>,
    /// More words or patterns were found than are shown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
}
