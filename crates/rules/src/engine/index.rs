//! Index of rules by the texts and values that they require, built once for the rules of one or several item types.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use super::{
    guards::IndexedRules,
    patterns::Patterns,
    places::PlaceIndex,
    ranges::Ranges,
    values::Texts,
    witness::{self, Costs, Witness},
};
use crate::{
    compile::Rule,
    leaves::{Leaf, field::SearchedValues as Values, needle::Needle, text::TextLeaf},
    search::{hashing::BuildFastHasher, pattern::Pattern, scanner::Scanner, starts},
    text::{View, derived::word_in_view},
};

/// Finest form of texts in which words are searched.
const FINEST: View = View::Lower;

/// A word that collapses to fewer bytes occurs too often, so it is searched in a finer form.
const MIN_COLLAPSED_BYTES: usize = 4;

#[derive(Debug, Default)]
pub(crate) struct Index {
    /// All rules for these item types.
    pub(crate) rules: Box<[u32]>,
    /// Rules that no value indexes, so that every item is checked against them.
    pub(crate) unindexed_rules: Box<[u32]>,
    pub(crate) scans: Vec<Scan>,
    pub(crate) patterns: Vec<PatternScan>,
    pub(crate) lookups: Box<[(usize, Lookup)]>,
    /// Witnesses by the path of a medium. Every medium nominates them, because its hashes are unknown before the look-up.
    pub(crate) media: Box<[(usize, Vec<Witness>)]>,
    pub(crate) places: PlaceIndex,
    /// Predicates of which one must pass before a rule can. Referred to by their position.
    pub(crate) witnesses: Box<[Witness]>,
    /// Rules by witness, and rules without one.
    pub(crate) rule_lists: IndexedRules,
    /// Bit set of the text predicates that fail unless the scan finds one of their needles.
    scanned_predicates: Vec<u64>,
}

/// One pass over each text for a set of words.
#[derive(Debug)]
pub(crate) struct Scan {
    /// Form of the texts. A word found in a finer form is also found in this one.
    pub(crate) view: View,
    /// Number of its first word; words of all scans share one numbering.
    pub(crate) first_word: u32,
    pub(crate) slots: Box<[usize]>,
    pub(crate) scanner: Scanner,
    pub(crate) words: usize,
    /// Start of each word's entries.
    starts: Box<[u32]>,
    entries: Box<[IndexEntry]>,
}

/// Patterns without a literal, run over each text in one form.
#[derive(Debug)]
pub(crate) struct PatternScan {
    pub(crate) view: View,
    pub(crate) slots: Box<[usize]>,
    pub(crate) patterns: Patterns,
    /// Steps of each pattern for four bytes of text, as if it ran alone with its own automaton.
    pub(crate) work: Box<[u64]>,
    /// Entries of each pattern.
    entries: Vec<Vec<IndexEntry>>,
}

/// Predicate that a word in a text may prove.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexEntry {
    pub(crate) witness: Witness,
    pub(crate) needle: u32,
    /// Bytes of the needle, if it is a word.
    pub(crate) length: u32,
    pub(crate) proof: Proof,
}

/// Check that remains between the word in a text and the proof of the predicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// None: the word is the needle.
    Place,
    /// The word must stand alone.
    WholeWord,
    /// The needle must be searched in this text.
    Needle,
    /// The whole predicate must be evaluated.
    Evaluate,
}

type ByText<T> = HashMap<Box<str>, T, BuildFastHasher>;

/// Witnesses by the values of one path.
#[derive(Debug, Default)]
pub(crate) struct Lookup {
    pub(crate) texts: Texts,
    pub(crate) related: ByText<ByText<Vec<Witness>>>,
    pub(crate) booleans: [Vec<Witness>; 2],
    pub(crate) ranges: Ranges,
    collected_ranges: Vec<(f64, f64, u32)>,
    collected_texts: ByText<Vec<Witness>>,
}

impl Scan {
    pub(crate) fn entries(&self, word: u32) -> &[IndexEntry] {
        &self.entries[self.starts[word as usize] as usize..self.starts[word as usize + 1] as usize]
    }
}

impl PatternScan {
    pub(crate) fn entries(&self, pattern: u32) -> &[IndexEntry] {
        &self.entries[pattern as usize]
    }

    pub(crate) fn all_entries(&self) -> impl Iterator<Item = &IndexEntry> {
        self.entries.iter().flatten()
    }
}

impl Index {
    pub(crate) fn new(rules: Vec<u32>, all: &[impl AsRef<Rule>], predicates: &[Leaf], costs: &Costs) -> Self {
        let mut witness_places: BTreeMap<u32, u32> = BTreeMap::new();
        let mut by_witness: Vec<(u32, Vec<u32>)> = Vec::new();
        let mut always = Vec::new();
        for number in &rules {
            let rule = all[*number as usize].as_ref();
            let Some(witness_predicates) = witness::choose_witnesses(rule, costs) else {
                always.push(*number);
                continue;
            };
            for predicate in witness_predicates {
                let place = *witness_places.entry(predicate).or_insert_with(|| {
                    by_witness.push((predicate, Vec::new()));
                    u32::try_from(by_witness.len() - 1).unwrap_or(u32::MAX)
                });
                by_witness[place as usize].1.push(*number);
            }
        }
        let mut index = Self {
            rules: rules.into(),
            rule_lists: IndexedRules::new(&by_witness, &always, all, predicates),
            unindexed_rules: always.into(),
            scanned_predicates: vec![0; predicates.len().div_ceil(64)],
            ..Self::default()
        };
        let starts = starts(by_witness.iter().map(|(_, rules)| rules.len()));
        let witness = |((predicate, _), ends): (&(u32, Vec<u32>), &[u32])| Witness {
            predicate: *predicate,
            is_proved: matches!(&predicates[*predicate as usize], Leaf::Field(field) if field.is_proved_by_lookup()),
            from: ends[0],
            to: ends[1],
        };
        index.witnesses = by_witness.iter().zip(starts.windows(2)).map(witness).collect();
        index.add_witnesses(predicates);
        index
    }

    /// True if the predicate has failed unless the scan has noted it.
    pub(crate) fn is_scanned(&self, predicate: u32) -> bool {
        let word = self.scanned_predicates.get(predicate as usize / 64).copied().unwrap_or_default();
        word >> (predicate % 64) & 1 == 1
    }

    /// Predicates with a pattern that runs on every text.
    pub(crate) fn unindexed_pattern_predicates(&self) -> impl Iterator<Item = u32> {
        let entries = self.patterns.iter().flat_map(PatternScan::all_entries);
        entries.map(|entry| entry.witness.predicate)
    }

    /// Bytes of the search for words and patterns, with the caches of one thread.
    pub(crate) fn memory(&self) -> usize {
        let patterns: usize = self.patterns.iter().map(|scan| scan.patterns.memory()).sum();
        patterns
            + self.rule_lists.memory()
            + self.scans.iter().map(|scan| scan.scanner.memory() + size_of_val(&*scan.entries)).sum::<usize>()
    }

    /// Number of words of all scans.
    pub(crate) fn words(&self) -> usize {
        self.scans.iter().map(|scan| scan.words).sum()
    }

    fn add_witnesses(&mut self, predicates: &[Leaf]) {
        let witnesses = std::mem::take(&mut self.witnesses);
        let mut terms = IndexTerms::default();
        let texts = witnesses.iter().filter_map(|witness| match &predicates[witness.predicate as usize] {
            Leaf::Text(text) => Some(text.view),
            _ => None,
        });
        // One pass in the coarsest form in use serves the words of all finer forms.
        let coarsest = texts.max().unwrap_or(FINEST).max(FINEST);
        let mut lookups: BTreeMap<usize, Lookup> = BTreeMap::new();
        let mut media: BTreeMap<usize, Vec<Witness>> = BTreeMap::new();
        for (number, witness) in (0_u32..).zip(&witnesses) {
            let predicate = witness.predicate;
            match &predicates[predicate as usize] {
                Leaf::Text(text) => {
                    add_needles(&mut terms, coarsest, *witness, text);
                    self.scanned_predicates[predicate as usize / 64] |= 1 << (predicate % 64);
                }
                Leaf::Field(field) => {
                    lookups.entry(field.slot()).or_default().add(number, *witness, field.searched_values());
                }
                Leaf::Geo(geo) => self.places.add_areas(number, geo),
                Leaf::Domain(domain) => self.places.add_domains(number, domain),
                Leaf::Media(leaf) => {
                    for slot in leaf.slots() {
                        media.entry(*slot).or_default().push(*witness);
                    }
                }
                // Leaves of the other kinds are never chosen as witnesses.
                _ => {}
            }
        }
        for lookup in lookups.values_mut() {
            lookup.ranges = Ranges::new(std::mem::take(&mut lookup.collected_ranges));
            lookup.texts = Texts::new(std::mem::take(&mut lookup.collected_texts));
        }
        self.lookups = lookups.into_iter().collect();
        self.media = media.into_iter().collect();
        self.witnesses = witnesses;
        let sample = build_sample(terms.words.values().flat_map(Words::words));
        for (view, unindexed) in terms.patterns {
            self.patterns.push(unindexed.into_scan(view, &sample));
        }
        for (view, words) in terms.words {
            let first = u32::try_from(self.words()).unwrap_or(u32::MAX);
            self.scans.push(words.into_scan(view, first));
        }
    }
}

/// Words and patterns to search, by the form of the texts.
#[derive(Default)]
struct IndexTerms {
    words: BTreeMap<View, Words>,
    patterns: BTreeMap<View, UnindexedPatterns>,
}

/// Patterns without a literal, and their entries.
#[derive(Default)]
struct UnindexedPatterns {
    slots: BTreeSet<usize>,
    places: HashMap<Box<str>, usize>,
    patterns: Vec<Arc<Pattern>>,
    entries: Vec<Vec<IndexEntry>>,
}

/// Distinct words of a scan, and their entries.
#[derive(Default)]
struct Words {
    slots: BTreeSet<usize>,
    places: HashMap<Box<[u8]>, u32>,
    /// Each entry with the place of its word. A single list, because there may be millions of words.
    entries: Vec<(u32, IndexEntry)>,
}

/// Adds the needles that index a condition, each in the coarsest suitable form.
fn add_needles(terms: &mut IndexTerms, coarsest: View, witness: Witness, text: &TextLeaf) {
    let finest = text.view.max(FINEST);
    let indexed = text.indexed_needles().map(|(_, needles)| needles).unwrap_or_default();
    for nth in indexed {
        let length = u32::try_from(text.needles[nth as usize].length()).unwrap_or(u32::MAX);
        let mut add = |view: View, word: &str, proof| {
            // One needle does not prove a condition that requires several.
            let proof = if text.required_count > 1 { Proof::Evaluate } else { proof };
            let entry = IndexEntry { witness, needle: nth, length, proof };
            let words = terms.words.entry(view).or_default();
            words.slots.extend(&text.slots);
            words.add(word, entry);
        };
        match &text.needles[nth as usize] {
            Needle::Word { view_form, runs, whole_word, .. } => {
                let (view, word) = choose_form(view_form, finest, coarsest);
                // In a coarser form, or with repeated letters, a hit still has to be checked in the form of the condition.
                let proof = match (view == text.view && runs.is_none(), whole_word) {
                    (true, false) => Proof::Place,
                    (true, true) => Proof::WholeWord,
                    (false, _) => Proof::Needle,
                };
                add(view, &word, proof);
            }
            Needle::Pattern { literals: Some(literals), .. } => {
                for literal in literals {
                    let (view, word) = choose_form(literal, finest, coarsest);
                    add(view, &word, Proof::Needle);
                }
            }
            Needle::Pattern { pattern, literals: None } => {
                let proof = if text.required_count > 1 { Proof::Evaluate } else { Proof::Place };
                let patterns = terms.patterns.entry(text.view).or_default();
                patterns.slots.extend(&text.slots);
                patterns.add(pattern, IndexEntry { witness, needle: nth, length, proof });
            }
        }
    }
}

/// Builds a sample of the texts to expect from the searched words, because real texts are not available to the compiler.
fn build_sample<'w>(words: impl Iterator<Item = &'w [u8]>) -> String {
    const BYTES: usize = 8 << 10;
    let mut sample =
        String::from("On 12/31 at 09:45, call +1 (555) 010-9999 or mail a.b@c.example: $5.00 #1! ÄÖ ");
    for word in words.map(|word| String::from_utf8_lossy(word)) {
        sample.push_str(&word);
        sample.push_str([" ", ", ", " 7 ", ". "][sample.len() % 4]);
        if sample.len() > BYTES {
            break;
        }
    }
    sample
}

impl UnindexedPatterns {
    fn add(&mut self, pattern: &Arc<Pattern>, entry: IndexEntry) {
        let next = self.patterns.len();
        let place = *self.places.entry(pattern.as_str().into()).or_insert_with(|| {
            self.patterns.push(Arc::clone(pattern));
            self.entries.push(Vec::new());
            next
        });
        self.entries[place].push(entry);
    }

    fn into_scan(self, view: View, sample: &str) -> PatternScan {
        PatternScan {
            view,
            slots: self.slots.into_iter().collect(),
            work: self.patterns.iter().map(|pattern| pattern.work).collect(),
            patterns: Patterns::new(&self.patterns, sample),
            entries: self.entries,
        }
    }
}

/// Chooses the form in which a word is searched: the coarsest in use, so that one pass over a text serves all words, unless
/// too few bytes of the word remain in it.
fn choose_form(word: &str, finest: View, coarsest: View) -> (View, String) {
    let coarse = word_in_view(word, coarsest);
    let suits = !coarse.is_empty()
        && (coarsest < View::Collapsed || coarse.len() >= MIN_COLLAPSED_BYTES.min(word.len()));
    if suits || finest == coarsest { (coarsest, coarse) } else { (finest, word_in_view(word, finest)) }
}

impl Words {
    fn add(&mut self, word: &str, entry: IndexEntry) {
        let next = u32::try_from(self.places.len()).unwrap_or(u32::MAX);
        let place = *self.places.entry(word.as_bytes().into()).or_insert(next);
        self.entries.push((place, entry));
    }

    /// Words in order of insertion.
    fn words(&self) -> Vec<&[u8]> {
        let mut words: Vec<&[u8]> = vec![&[]; self.places.len()];
        for (word, place) in &self.places {
            words[*place as usize] = word;
        }
        words
    }

    fn into_scan(mut self, view: View, first: u32) -> Scan {
        // A stable sort keeps the entries of each word in their order.
        self.entries.sort_by_key(|(place, _)| *place);
        let mut lengths = vec![0_usize; self.places.len()];
        for (place, _) in &self.entries {
            lengths[*place as usize] += 1;
        }
        let entries = std::mem::take(&mut self.entries).into_iter().map(|(_, entry)| entry).collect();
        let words = self.words();
        Scan {
            view,
            first_word: first,
            slots: self.slots.iter().copied().collect(),
            scanner: Scanner::new(&words),
            words: words.len(),
            starts: starts(lengths.into_iter()),
            entries,
        }
    }
}

impl Lookup {
    fn add(&mut self, number: u32, witness: Witness, values: Option<Values<'_>>) {
        match values {
            Some(Values::Texts(texts)) => {
                for text in texts {
                    self.collected_texts.entry(text.into()).or_default().push(witness);
                }
            }
            Some(Values::Related(keys)) => {
                for key in keys {
                    let ids = self.related.entry(key.type_id.as_str().into()).or_default();
                    ids.entry(key.id.as_str().into()).or_default().push(witness);
                }
            }
            Some(Values::Boolean(boolean)) => self.booleans[usize::from(boolean)].push(witness),
            Some(Values::Ranges(ranges)) => {
                self.collected_ranges.extend(ranges.into_iter().map(|(low, high)| (low, high, number)));
            }
            None => {}
        }
    }
}
