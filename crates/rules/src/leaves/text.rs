//! The condition `text`: words or patterns in texts of the item. The engine searches the texts once for many conditions; the
//! evaluation of a single condition is here.

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
    kind::{DocumentLeaf, LeafKind, TYPICAL_TEXT_BYTES, guess},
    needle::{Needle, compile_pattern, size_of_weight},
};
use crate::{
    error::{excerpt, quote},
    fields::ViewedText,
    limits::{OutOfSteps, Steps, to_u64},
    logic::{ConditionResult, Mask},
    reader::{Object, Reader, is_present},
    search::{ScanControl, scanner::Scanner, starts},
    text::{
        View,
        derived::{Derived, Runs},
    },
    vocabulary::SelectedEntries,
};

/// Search for words or patterns in named fields.
#[derive(Clone, Debug, PartialEq)]
pub struct Text {
    pub fields: Vec<String>,
    pub view: View,
    pub search: Search,
    /// Number of distinct words or patterns that must be found.
    pub min_distinct: usize,
}

/// Search of a text condition.
#[derive(Clone, Debug, PartialEq)]
pub enum Search {
    /// `any_of`, or `words` for whole words.
    AnyOf { words: Vec<String>, whole_word: bool },
    /// Requires all words: `min_distinct` is their number.
    AllOf { words: Vec<String>, whole_word: bool },
    /// Regular expressions.
    Regex(Vec<String>),
    /// Words or patterns of a bank.
    Bank { bank: BankId, whole_word: bool },
}

#[derive(Debug)]
pub(crate) struct TextLeaf {
    pub(crate) slots: Vec<usize>,
    pub(crate) view: View,
    pub(crate) needles: Vec<Needle>,
    /// Number of needles that must be found, each in any of the fields.
    pub(crate) required_count: usize,
    bulk_search: Option<BulkSearch>,
    /// Bank entry of each needle, if the needles are from a bank.
    entries: Option<SelectedEntries>,
}

/// One search for all words of a condition with many words.
#[derive(Debug)]
struct BulkSearch {
    scanner: Scanner,
    /// Needles grouped by word of the scanner, and the start of each group.
    needles: Box<[u32]>,
    starts: Box<[u32]>,
}

impl BulkSearch {
    fn needles(&self, word: u32) -> impl Iterator<Item = usize> {
        let (from, to) = (self.starts[word as usize], self.starts[word as usize + 1]);
        self.needles[from as usize..to as usize].iter().map(|nth| *nth as usize)
    }
}

/// Maximum number of words that are searched one by one.
const MAX_SINGLE_WORDS: usize = 16;

impl LeafKind for TextLeaf {
    type Spec = Text;
    type Explained = TextExplained;

    fn paths(spec: &Text, _context: &Context<'_>) -> Vec<String> {
        spec.fields.clone()
    }

    fn compile(text: Text, context: &mut Context<'_>) -> Option<Self> {
        let slots = context.resolve_text_slots(&text.fields, "text");
        Self::compile_for_slots(slots, text, context)
    }

    fn witness(&self) -> Option<f32> {
        self.indexed_needles().map(|(likelihood, _)| likelihood)
    }

    fn cost(&self) -> f32 {
        let words = self.needles.iter().filter(|needle| matches!(needle, Needle::Word { .. })).count();
        10.0 + guess(words.min(100)) * 4.0 + self.typical_pattern_steps()
    }

    /// Bytes of the words and patterns, with the cache of one thread for each pattern.
    fn memory(&self) -> usize {
        let needle_bytes = |needle: &Needle| match needle {
            Needle::Word { written, view_form, .. } => size_of::<Needle>() + written.len() + view_form.len(),
            Needle::Pattern { pattern, .. } => {
                pattern.programs() * size_of_weight(pattern.weight).min(256 << 10)
            }
        };
        self.needles.iter().map(needle_bytes).sum()
    }

    fn lint(&self, passes: bool) -> Vec<Constraint> {
        // A failed search says only that words are absent, which no constraint expresses.
        if !passes {
            return Vec::new();
        }
        // A bank can get other entries later, so only the rule's own needles can make the condition impossible.
        let possible = self.needles.iter().filter(|needle| !needle.is_impossible()).count();
        if self.entries.is_none() && possible < self.required_count {
            return vec![Constraint::impossible()];
        }
        // Of several fields only one must be present, so they give no constraint.
        if let [slot] = self.slots[..] { vec![Constraint::presence(slot, true)] } else { Vec::new() }
    }

    fn evaluate(&self, input: &EvalInput<'_>, steps: &mut Steps) -> Result<Mask, OutOfSteps> {
        if let Some(bulk) = &self.bulk_search {
            let found_needles = self.find_in_bulk(bulk, self.required_count, input, steps)?;
            return Ok(Mask::from_bool(found_needles.len() >= self.required_count));
        }
        let mut missing_count = self.required_count;
        for (nth, needle) in self.needles.iter().enumerate() {
            missing_count -= usize::from(self.item_contains(needle, input, steps)?);
            let remaining_needles = self.needles.len() - nth - 1;
            // The remaining needles are too few, or none of them is needed any more.
            if missing_count == 0 || missing_count > remaining_needles {
                break;
            }
        }
        Ok(Mask::from_bool(missing_count == 0))
    }

    /// Shows the first place of each needle, as far as the steps suffice.
    fn explain(
        &self,
        mask: Mask,
        found_needles: Option<&[(u32, u32)]>,
        input: &EvalInput<'_>,
        steps: &mut Steps,
    ) -> TextExplained {
        let (hits, more) = match (found_needles, &self.bulk_search) {
            // A skipped condition was not searched, and its explanation must not search it either.
            _ if mask.is_empty() => (Vec::new(), false),
            (Some(needles), _) => {
                self.collect_hits(needles.iter().map(|(_, nth)| *nth as usize), input, steps)
            }
            // Out of steps, the explanation lists no hits instead of failing.
            (None, Some(bulk)) => {
                let needles = self.find_in_bulk(bulk, usize::MAX, input, steps).unwrap_or_default();
                self.collect_hits(needles, input, steps)
            }
            (None, None) => self.collect_hits(0..self.needles.len(), input, steps),
        };
        let fields = self.slots.iter().map(|slot| input.fields.path(*slot).to_owned()).collect();
        TextExplained { outcome: mask.result(), fields, view: self.view, hits, more }
    }
}

impl DocumentLeaf for TextLeaf {
    const KEY: &'static str = "text";

    fn parse(reader: &mut Reader<'_>, value: &Json) -> Option<Text> {
        reader.text_search(value, "in", Reader::paths)
    }
}

impl Reader<'_> {
    /// Reads a search in the texts that the key `place` names.
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
        let min_distinct = self.optional(object, "min_distinct", |r, v| {
            let number = r.whole_number(v)?;
            usize::try_from(number).ok().filter(|n| *n >= 1).or_else(|| r.error("type", "expected 1 or more"))
        });
        let search_keys: Vec<_> = SEARCHES.into_iter().filter(|name| is_present(object, name)).collect();
        // The other keys are read even after an error, so that each reports its own errors.
        let mut is_consistent = is_present(object, "min_distinct") == min_distinct.is_some();
        if search_keys.len() != 1 {
            self.error::<()>("shape", format!("expected exactly one of {}", SEARCHES.join(", ")));
            is_consistent = false;
        }
        if word.is_some() && search_keys.iter().any(|kind| !matches!(*kind, "any_of" | "all_of" | "bank")) {
            self.error::<()>("shape", "`word` applies to any_of, all_of and bank only: remove it");
            is_consistent = false;
        }
        let mut searches: Vec<_> = search_keys.iter().map(|kind| self.search(object, kind, word)).collect();
        let (kind, search) = search_keys.last().zip(searches.pop())?;
        let default_view = if *kind == "regex" { View::Raw } else { View::Lower };
        let view = view.unwrap_or(default_view);
        if *kind == "regex" && view > View::Lower {
            // A pattern has no folded form: it could name characters that a folded text never contains.
            self.at("view", |r| {
                r.error::<()>("shape", "patterns search the views raw and lower only: choose one of them")
            });
            is_consistent = false;
        }
        let search = search.filter(|_| is_consistent)?;
        let count = match &search {
            Search::AnyOf { words, .. } | Search::AllOf { words, .. } => words.len(),
            Search::Regex(patterns) => patterns.len(),
            // The number of entries is unknown until the bank is resolved.
            Search::Bank { .. } => usize::MAX,
        };
        if min_distinct.is_some() && *kind == "all_of" {
            return self.error("shape", "`min_distinct` cannot be combined with `all_of`: remove it");
        }
        if min_distinct.is_some_and(|distinct| distinct > count) {
            return self.at("min_distinct", |r| {
                r.error("limit", format!("larger than the number of words or patterns, which is {count}"))
            });
        }
        let min_distinct = if *kind == "all_of" { count } else { min_distinct.unwrap_or(1) };
        Some(Text { fields: fields?, view, search, min_distinct })
    }

    fn search(&mut self, text: &Object, kind: &str, word: Option<bool>) -> Option<Search> {
        let whole_word = word.unwrap_or(kind == "words");
        self.required(text, kind, |r, v| match kind {
            "regex" => r.regexes(v).map(Search::Regex),
            "bank" => r.text(v).map(|bank| Search::Bank { bank: BankId::new(bank), whole_word }),
            "all_of" => r.words(v).map(|words| Search::AllOf { words, whole_word }),
            _ => r.words(v).map(|words| Search::AnyOf { words, whole_word }),
        })
    }

    /// Reads one pattern, or a list of which one must match.
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
        let patterns = if value.is_array() {
            self.non_empty_list(value, pattern)
        } else {
            Some(vec![pattern(self, value)?])
        }?;
        self.count_words(patterns.len())?;
        Some(patterns)
    }

    fn words(&mut self, value: &Json) -> Option<Vec<String>> {
        let words = self.non_empty_list(value, |r, v| r.text(v).map(str::to_owned))?;
        self.count_words(words.len())?;
        Some(words)
    }
}

impl TextLeaf {
    /// Compiles a search of the texts in these slots.
    pub(crate) fn compile_for_slots(
        slots: Option<Vec<usize>>,
        text: Text,
        context: &mut Context<'_>,
    ) -> Option<Self> {
        let all = matches!(text.search, Search::AllOf { .. });
        let mut entries = None;
        let mut needles = match text.search {
            Search::Bank { bank, whole_word } => {
                let (needles, used_entries) = bank_needles(&bank, whole_word, text.view, context)?;
                entries = Some(used_entries);
                needles
            }
            Search::AnyOf { words, whole_word } | Search::AllOf { words, whole_word } => {
                word_needles(words, whole_word, text.view, context)?
            }
            Search::Regex(patterns) => {
                let mut regexes = Vec::with_capacity(patterns.len());
                context.at("regex", |c| {
                    // All patterns are compiled before failing, so that each reports its own error.
                    for (nth, pattern) in patterns.iter().enumerate() {
                        // A single pattern may be written without a list, so its error path must suit both forms.
                        regexes.extend(match patterns.len() {
                            1 => pattern_needle(pattern, text.view, c),
                            _ => c.at(nth, |c| pattern_needle(pattern, text.view, c)),
                        });
                    }
                });
                (regexes.len() == patterns.len()).then_some(regexes)?
            }
        };
        let required_count = if all { needles.len() } else { text.min_distinct };
        // Words with the same form are found together, and must not count as several.
        if !all && required_count > 1 {
            remove_duplicates(&mut needles, entries.as_mut());
            if entries.is_none() && needles.len() < required_count {
                let detail = "words with the same form in this view count once, and fewer than `min_distinct` are left: lower it";
                context.at("min_distinct", |c| c.error("limit", detail.to_owned()));
                return None;
            }
        }
        Some(Self { slots: slots?, view: text.view, needles, required_count, bulk_search: None, entries })
    }

    /// Bank of the needles, if they are from a bank.
    pub(crate) fn bank(&self) -> Option<&BankId> {
        self.entries.as_ref().map(SelectedEntries::bank)
    }

    /// Needles of which one must be found for the condition to pass, and the estimated share of items with one. If `k` of
    /// `n` needles are required, these are the `n - k + 1` rarest: the others alone are too few.
    pub(crate) fn indexed_needles(&self) -> Option<(f32, Vec<u32>)> {
        let costs =
            (0_u32..).zip(&self.needles).filter_map(|(nth, needle)| Some((needle.likelihood()?, nth)));
        let mut costs: Vec<_> = costs.collect();
        costs.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        // A bank with fewer entries than required leaves no needle to index: no word nominates the condition, which cannot
        // pass.
        let indexed_count = (self.needles.len() + 1).saturating_sub(self.required_count);
        if costs.len() < indexed_count {
            return None;
        }
        costs.truncate(indexed_count);
        let mut needles: Vec<_> = costs.iter().map(|(_, nth)| *nth).collect();
        needles.sort_unstable();
        Some((costs.iter().map(|(cost, _)| cost).sum(), needles))
    }

    /// Estimated steps of the patterns on a typical text.
    #[allow(clippy::cast_precision_loss, reason = "a guess")]
    pub(crate) fn typical_pattern_steps(&self) -> f32 {
        let patterns = self.needles.iter().map(|needle| match needle {
            Needle::Pattern { pattern, .. } => {
                (1 + to_u64(TYPICAL_TEXT_BYTES) / 4).saturating_mul(pattern.work) as f32
            }
            Needle::Word { .. } => 0.0,
        });
        patterns.sum()
    }

    /// Prepares the evaluation without a scan of the engine: a long list of words then costs one pass over a text.
    pub(crate) fn build_bulk_search(&mut self) {
        let words = self.needles.iter().filter(|needle| matches!(needle, Needle::Word { .. })).count();
        // Patterns cannot join the bulk search, so a condition with some is searched one by one.
        if self.bulk_search.is_some() || words <= MAX_SINGLE_WORDS || words < self.needles.len() {
            return;
        }
        let mut places: HashMap<&[u8], usize> = HashMap::new();
        let mut distinct_words: Vec<&[u8]> = Vec::new();
        let mut needles: Vec<(usize, u32)> = Vec::new();
        for (nth, needle) in (0_u32..).zip(&self.needles) {
            let Needle::Word { view_form: word, .. } = needle else { continue };
            let place = *places.entry(word.as_bytes()).or_insert_with_key(|word| {
                distinct_words.push(word);
                distinct_words.len() - 1
            });
            needles.push((place, nth));
        }
        // A stable sort keeps the needles of each word in their order.
        needles.sort_by_key(|(place, _)| *place);
        let mut lengths = vec![0; distinct_words.len()];
        for (place, _) in &needles {
            lengths[*place] += 1;
        }
        let starts = starts(lengths.into_iter());
        let scanner = Scanner::new(&distinct_words);
        self.bulk_search =
            Some(BulkSearch { scanner, needles: needles.into_iter().map(|(_, nth)| nth).collect(), starts });
    }

    /// Searches all words in one pass, and stops after `enough` needles. A complete result is sorted.
    fn find_in_bulk(
        &self,
        bulk: &BulkSearch,
        enough: usize,
        input: &EvalInput<'_>,
        steps: &mut Steps,
    ) -> Result<Vec<usize>, OutOfSteps> {
        let mut is_missing = vec![true; self.needles.len()];
        let mut found_needles = Vec::new();
        for slot in &self.slots {
            for viewed in input.fields.texts(*slot, self.view) {
                steps.take(1 + to_u64(viewed.text.len()) / 16)?;
                let mut ran_out = false;
                let next = bulk.scanner.scan(viewed.text.as_bytes(), &mut |word, start| {
                    if steps.take(1).is_err() {
                        ran_out = true;
                        return ScanControl::Stop;
                    }
                    for nth in bulk.needles(word) {
                        // Each needle counts once, however often it occurs.
                        if is_missing[nth] && self.needles[nth].is_at(&viewed, start) {
                            is_missing[nth] = false;
                            found_needles.push(nth);
                        }
                    }
                    if found_needles.len() >= enough { ScanControl::Stop } else { ScanControl::Continue }
                });
                match next {
                    // The visitor also stops the scan without steps, which is no result.
                    _ if ran_out => return Err(OutOfSteps),
                    ScanControl::Stop => return Ok(found_needles),
                    ScanControl::Continue => {}
                }
            }
        }
        found_needles.sort_unstable();
        Ok(found_needles)
    }

    /// True if the text contains the needle with this number.
    pub(crate) fn contains_needle(
        &self,
        nth: usize,
        viewed: &ViewedText<'_, '_>,
        steps: &mut Steps,
    ) -> Result<bool, OutOfSteps> {
        self.needles[nth].is_in(viewed, steps)
    }

    fn item_contains(
        &self,
        needle: &Needle,
        input: &EvalInput<'_>,
        steps: &mut Steps,
    ) -> Result<bool, OutOfSteps> {
        for slot in &self.slots {
            for viewed in input.fields.texts(*slot, self.view) {
                if needle.is_in(&viewed, steps)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    fn find_in_item<'s, 'a>(
        &self,
        needle: &Needle,
        input: &'s EvalInput<'a>,
        steps: &mut Steps,
    ) -> Result<Option<(usize, ViewedText<'s, 'a>, usize, usize)>, OutOfSteps> {
        for slot in &self.slots {
            for viewed in input.fields.texts(*slot, self.view) {
                if let Some((start, end)) = needle.find(&viewed, steps)? {
                    return Ok(Some((*slot, viewed, start, end)));
                }
            }
        }
        Ok(None)
    }

    /// Returns the first place of each of these needles, and true if more were found than the limit shows.
    fn collect_hits(
        &self,
        needles: impl IntoIterator<Item = usize>,
        input: &EvalInput<'_>,
        steps: &mut Steps,
    ) -> (Vec<Hit>, bool) {
        let mut hits = Vec::new();
        for (nth, needle) in needles.into_iter().map(|nth| (nth, &self.needles[nth])) {
            // Out of steps: the hits so far are shown.
            let Ok(place) = self.find_in_item(needle, input, steps) else { break };
            let Some((slot, viewed, start, end)) = place else { continue };
            if hits.len() >= input.limits.hits {
                return (hits, true);
            }
            // Moderators read the original, so hits are mapped back from the searched form.
            let (start, end) = viewed.origin(start, end);
            hits.push(Hit {
                field: input.fields.path(slot).to_owned(),
                element: viewed.element.name(input.limits.excerpt_bytes),
                sought: excerpt(needle.source(), input.limits.excerpt_bytes).to_owned(),
                start,
                end,
                found: excerpt(&viewed.original[start..end], input.limits.excerpt_bytes).to_owned(),
                entry: self.entries.as_ref().and_then(|entries| entries.name(nth)),
            });
        }
        (hits, false)
    }
}

fn word_needles(
    words: Vec<String>,
    whole_word: bool,
    view: View,
    context: &mut Context<'_>,
) -> Option<Vec<Needle>> {
    context.count_words(words.len())?;
    let mut needles = Vec::with_capacity(words.len());
    for written in words {
        let (view_form, runs) = Derived::word_with_runs(&written, view);
        if view_form.is_empty() {
            context.error(
                "empty",
                format!(
                    "word {} has no letters in this view: remove it or choose a finer view",
                    quote(&written)
                ),
            );
            return None;
        }
        needles.push(word_needle(written.into(), view_form, runs, whole_word));
    }
    if let Some(word) = needles.iter().find(|needle| needle.is_short()) {
        let word = quote(word.source());
        let detail = format!("{word} is found inside of many words: `word: true` finds whole words only");
        context.warn("short_word", detail);
    }
    Some(needles)
}

/// Needles of the usable entries of a bank.
fn bank_needles(
    bank: &BankId,
    whole_word: bool,
    view: View,
    context: &mut Context<'_>,
) -> Option<(Vec<Needle>, SelectedEntries)> {
    let bank = context.resolve_bank(bank, &[BankKind::Text, BankKind::Regex])?;
    if bank.kind == BankKind::Regex && (whole_word || view > View::Lower) {
        let key = if whole_word { "word" } else { "view" };
        let detail =
            "patterns search the views raw and lower only, without `word`: mark the end of a word with `\\b`";
        context.at(key, |c| c.error("shape", detail.to_owned()));
        return None;
    }
    let (mut needles, mut entry_numbers) =
        (Vec::with_capacity(bank.entries.len()), Vec::with_capacity(bank.entries.len()));
    for (nth, entry) in (0_u32..).zip(&*bank.entries) {
        let needle = if bank.kind == BankKind::Regex {
            context.count_regex()?;
            compile_pattern(&entry.value, context.limits.regex_bytes)
        } else {
            let (view_form, runs) = Derived::word_with_runs(&entry.value, view);
            let word = word_needle(Arc::clone(&entry.value), view_form, runs, whole_word);
            if word.length() > 0 { Ok(word) } else { Err("it has no letters in this view".to_owned()) }
        };
        match needle {
            Ok(needle) => {
                needles.push(needle);
                entry_numbers.push(nth);
            }
            Err(reason) => context.warn_unusable_entry(&bank.key, entry, &reason),
        }
    }
    let used_entries = SelectedEntries::new(bank, entry_numbers);
    context.count_words(needles.len())?;
    let mut short = needles.iter().filter(|needle| needle.is_short());
    if let Some(first_needle) = short.next() {
        let first_word = quote(first_needle.source());
        let further_entries = match short.count() {
            0 => String::new(),
            count => format!(", as are {count} more entries"),
        };
        let detail = format!(
            "entry {first_word} is found inside of many words{further_entries}: `word: true` finds whole words only"
        );
        context.at("bank", |c| c.warn("short_word", detail));
    }
    Some((needles, used_entries))
}

fn word_needle(written: Arc<str>, view_form: String, runs: Runs, whole_word: bool) -> Needle {
    // Most words equal their form in the view; shared texts halve the memory of a bank.
    let shared_form = if *view_form == *written { Arc::clone(&written) } else { view_form.into() };
    Needle::Word {
        written,
        view_form: shared_form,
        runs: (!runs.is_empty()).then(|| Box::new(runs)),
        whole_word,
    }
}

/// Keeps the first of several needles with the same matches, with its entry.
fn remove_duplicates(needles: &mut Vec<Needle>, entries: Option<&mut SelectedEntries>) {
    let mut distinct_needles = HashSet::new();
    let is_first: Vec<bool> = needles
        .iter()
        .map(|needle| match needle {
            Needle::Word { view_form, runs, .. } => {
                distinct_needles.insert((Arc::clone(view_form), runs.clone()))
            }
            Needle::Pattern { pattern, .. } => distinct_needles.insert((pattern.as_str().into(), None)),
        })
        .collect();
    let mut flags = is_first.iter();
    needles.retain(|_| flags.next().is_some_and(|flag| *flag));
    if let Some(entries) = entries {
        entries.retain(&is_first);
    }
}

fn pattern_needle(pattern: &str, view: View, context: &mut Context<'_>) -> Option<Needle> {
    context.count_regex()?;
    match compile_pattern(pattern, context.limits.regex_bytes) {
        Ok(needle) => {
            if let Needle::Pattern { pattern, .. } = &needle
                && pattern.regex().is_match("")
            {
                context.warn("regex_empty", "the pattern also matches an empty text".to_owned());
            }
            if let Needle::Pattern { pattern, .. } = &needle {
                let bytes = (context.limits.steps_per_rule / pattern.work).saturating_mul(4);
                if bytes < to_u64(context.limits.text_bytes) {
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
        Err(reason) => {
            context.error("regex", format!("the pattern {}", reason.trim_start_matches("it ")));
            None
        }
    }
}

/// Explanation of a text condition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TextExplained {
    pub outcome: ConditionResult,
    #[serde(rename = "in")]
    pub fields: Vec<String>,
    pub view: View,
    /// First place of each word or pattern that was found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hits: Vec<Hit>,
    /// True if more words or patterns were found than are listed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
}
