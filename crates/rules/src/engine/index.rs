//! The way from an item's texts and values to the only rules that it could match.
//!
//! It is built once for the rules of one or several item types.

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
    text::{View, derived::as_seen},
};

/// The finest form of texts in which words are sought.
const FINEST: View = View::Lower;

/// A word that collapses to fewer bytes is found too often to be sought so.
const LEAST_COLLAPSED: usize = 4;

#[derive(Debug, Default)]
pub(crate) struct Index {
    /// All rules that concern the item types.
    pub(crate) rules: Box<[u32]>,
    /// Rules that are not indexed, so that every item is checked against them.
    pub(crate) always: Box<[u32]>,
    pub(crate) scans: Vec<Scan>,
    pub(crate) patterns: Vec<PatternScan>,
    pub(crate) lookups: Box<[(usize, Lookup)]>,
    /// Witnesses by path that any medium nominates: its hashes are not known before they are looked up.
    pub(crate) media: Box<[(usize, Vec<Witness>)]>,
    pub(crate) places: PlaceIndex,
    /// The predicates of which one must pass before a rule can; others refer to them by their place.
    pub(crate) witnesses: Box<[Witness]>,
    /// The rules that witnesses make candidates, and those that need none.
    pub(crate) indexed: IndexedRules,
    /// Text predicates that cannot pass unless the scan has found something, by number.
    scanned: Vec<u64>,
}

/// One pass over each text.
#[derive(Debug)]
pub(crate) struct Scan {
    /// The form of the texts. Whatever a finer form holds, this one holds too.
    pub(crate) view: View,
    /// The number of its first word: words of all scans are numbered together.
    pub(crate) first: u32,
    pub(crate) slots: Box<[usize]>,
    pub(crate) scanner: Scanner,
    pub(crate) words: usize,
    /// Start of each word's entries.
    starts: Box<[u32]>,
    entries: Box<[IndexEntry]>,
}

/// The patterns that is not indexed, run over each text in one form.
#[derive(Debug)]
pub(crate) struct PatternScan {
    pub(crate) view: View,
    pub(crate) slots: Box<[usize]>,
    pub(crate) patterns: Patterns,
    /// Steps of each pattern for four bytes of text, as if it ran alone with an automaton of its own.
    pub(crate) work: Box<[u64]>,
    /// Leads of each pattern.
    entries: Vec<Vec<IndexEntry>>,
}

/// Conclusion from a place of a word to a predicate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexEntry {
    pub(crate) witness: Witness,
    pub(crate) needle: u32,
    /// Bytes of the needle, if it is a word.
    pub(crate) length: u32,
    pub(crate) proof: Proof,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// The place is the needle's.
    Place,
    /// It is, if the word stands alone there.
    WholeWord,
    /// The needle must be looked for in this text.
    Needle,
    /// The predicate must be evaluated as a whole.
    Evaluate,
}

type ByText<T> = HashMap<Box<str>, T, BuildFastHasher>;

/// Values of one path by which predicates are indexed.
#[derive(Debug, Default)]
pub(crate) struct Lookup {
    pub(crate) texts: Texts,
    pub(crate) related: ByText<ByText<Vec<Witness>>>,
    pub(crate) booleans: [Vec<Witness>; 2],
    pub(crate) ranges: Ranges,
    collected: Vec<(f64, f64, u32)>,
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
        let mut places: BTreeMap<u32, u32> = BTreeMap::new();
        let mut by_witness: Vec<(u32, Vec<u32>)> = Vec::new();
        let mut always = Vec::new();
        for number in &rules {
            let rule = all[*number as usize].as_ref();
            let Some(chosen) = witness::of(rule, costs) else {
                always.push(*number);
                continue;
            };
            for predicate in chosen {
                let place = *places.entry(predicate).or_insert_with(|| {
                    by_witness.push((predicate, Vec::new()));
                    u32::try_from(by_witness.len() - 1).unwrap_or(u32::MAX)
                });
                by_witness[place as usize].1.push(*number);
            }
        }
        let mut index = Self {
            rules: rules.into(),
            indexed: IndexedRules::new(&by_witness, &always, all, predicates),
            always: always.into(),
            scanned: vec![0; predicates.len().div_ceil(64)],
            ..Self::default()
        };
        let starts = starts(by_witness.iter().map(|(_, rules)| rules.len()));
        let witness = |((predicate, _), ends): (&(u32, Vec<u32>), &[u32])| Witness {
            predicate: *predicate,
            proved: matches!(&predicates[*predicate as usize], Leaf::Field(field) if field.is_looked_up()),
            from: ends[0],
            to: ends[1],
        };
        index.witnesses = by_witness.iter().zip(starts.windows(2)).map(witness).collect();
        index.add_witnesses(predicates);
        index
    }

    /// True if a predicate has failed when the scan has said nothing of it.
    pub(crate) fn is_scanned(&self, predicate: u32) -> bool {
        let word = self.scanned.get(predicate as usize / 64).copied().unwrap_or_default();
        word >> (predicate % 64) & 1 == 1
    }

    /// Predicates with patterns that run on every text.
    pub(crate) fn run_everywhere(&self) -> impl Iterator<Item = u32> {
        let entries = self.patterns.iter().flat_map(PatternScan::all_entries);
        entries.map(|entry| entry.witness.predicate)
    }

    /// Bytes that the search for words and patterns holds, with what a thread keeps for it.
    pub(crate) fn memory(&self) -> usize {
        let patterns: usize = self.patterns.iter().map(|scan| scan.patterns.memory()).sum();
        patterns
            + self.indexed.memory()
            + self.scans.iter().map(|scan| scan.scanner.memory() + size_of_val(&*scan.entries)).sum::<usize>()
    }

    /// Words of all scans.
    pub(crate) fn words(&self) -> usize {
        self.scans.iter().map(|scan| scan.words).sum()
    }

    fn add_witnesses(&mut self, predicates: &[Leaf]) {
        let witnesses = std::mem::take(&mut self.witnesses);
        let mut sought = IndexTerms::default();
        let texts = witnesses.iter().filter_map(|witness| match &predicates[witness.predicate as usize] {
            Leaf::Text(text) => Some(text.view),
            _ => None,
        });
        let coarsest = texts.max().unwrap_or(FINEST).max(FINEST);
        let mut lookups: BTreeMap<usize, Lookup> = BTreeMap::new();
        let mut media: BTreeMap<usize, Vec<Witness>> = BTreeMap::new();
        for (number, witness) in (0_u32..).zip(&witnesses) {
            let predicate = witness.predicate;
            match &predicates[predicate as usize] {
                Leaf::Text(text) => {
                    add_needles(&mut sought, coarsest, *witness, text);
                    self.scanned[predicate as usize / 64] |= 1 << (predicate % 64);
                }
                Leaf::Field(field) => {
                    lookups.entry(field.slot()).or_default().add(number, *witness, field.sought());
                }
                Leaf::Geo(geo) => self.places.add_areas(number, geo),
                Leaf::Domain(domain) => self.places.add_domains(number, domain),
                Leaf::Media(leaf) => {
                    for slot in leaf.slots() {
                        media.entry(*slot).or_default().push(*witness);
                    }
                }
                // The others are no witnesses.
                _ => {}
            }
        }
        for lookup in lookups.values_mut() {
            lookup.ranges = Ranges::new(std::mem::take(&mut lookup.collected));
            lookup.texts = Texts::new(std::mem::take(&mut lookup.collected_texts));
        }
        self.lookups = lookups.into_iter().collect();
        self.media = media.into_iter().collect();
        self.witnesses = witnesses;
        let sample = sample(sought.words.values().flat_map(Words::words));
        for (view, unindexed) in sought.patterns {
            self.patterns.push(unindexed.scan(view, &sample));
        }
        for (view, words) in sought.words {
            let first = u32::try_from(self.words()).unwrap_or(u32::MAX);
            self.scans.push(words.scan(view, first));
        }
    }
}

/// Words and patterns that are sought, by the view of the texts.
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

/// The distinct words of a scan, and their entries.
#[derive(Default)]
struct Words {
    slots: BTreeSet<usize>,
    places: HashMap<Box<[u8]>, u32>,
    /// Each entry with the place of its word. There may be millions, so a word has no list of its own.
    entries: Vec<(u32, IndexEntry)>,
}

/// Adds the needles by which a condition is indexed, each in the coarsest form that suits it.
fn add_needles(sought: &mut IndexTerms, coarsest: View, witness: Witness, text: &TextLeaf) {
    let finest = text.view.max(FINEST);
    let indexed = text.indexed_needles().map(|(_, needles)| needles).unwrap_or_default();
    for nth in indexed {
        let length = u32::try_from(text.needles[nth as usize].length()).unwrap_or(u32::MAX);
        let mut add = |view: View, word: &str, proof| {
            let proof = if text.needed > 1 { Proof::Evaluate } else { proof };
            let entry = IndexEntry { witness, needle: nth, length, proof };
            let words = sought.words.entry(view).or_default();
            words.slots.extend(&text.slots);
            words.add(word, entry);
        };
        match &text.needles[nth as usize] {
            Needle::Word { seen, runs, whole, .. } => {
                let (view, word) = home(seen, finest, coarsest);
                let proof = match (view == text.view && runs.is_none(), whole) {
                    (true, false) => Proof::Place,
                    (true, true) => Proof::WholeWord,
                    (false, _) => Proof::Needle,
                };
                add(view, &word, proof);
            }
            Needle::Pattern { literals: Some(literals), .. } => {
                for literal in literals {
                    let (view, word) = home(literal, finest, coarsest);
                    add(view, &word, Proof::Needle);
                }
            }
            Needle::Pattern { pattern, literals: None } => {
                let proof = if text.needed > 1 { Proof::Evaluate } else { Proof::Place };
                let patterns = sought.patterns.entry(text.view).or_default();
                patterns.slots.extend(&text.slots);
                patterns.add(pattern, IndexEntry { witness, needle: nth, length, proof });
            }
        }
    }
}

/// Makes a sample of what texts may look like of the words that are sought in them; nothing else is known of them.
fn sample<'w>(words: impl Iterator<Item = &'w [u8]>) -> String {
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

    fn scan(self, view: View, sample: &str) -> PatternScan {
        PatternScan {
            view,
            slots: self.slots.into_iter().collect(),
            work: self.patterns.iter().map(|pattern| pattern.work).collect(),
            patterns: Patterns::new(&self.patterns, sample),
            entries: self.entries,
        }
    }
}

/// The form in which a word is sought: the coarsest in use, so that one pass over a text serves all, unless too little
/// of the word is left in it.
fn home(word: &str, finest: View, coarsest: View) -> (View, String) {
    let coarse = as_seen(word, coarsest);
    let suits =
        !coarse.is_empty() && (coarsest < View::Collapsed || coarse.len() >= LEAST_COLLAPSED.min(word.len()));
    if suits || finest == coarsest { (coarsest, coarse) } else { (finest, as_seen(word, finest)) }
}

impl Words {
    fn add(&mut self, word: &str, entry: IndexEntry) {
        let next = u32::try_from(self.places.len()).unwrap_or(u32::MAX);
        let place = *self.places.entry(word.as_bytes().into()).or_insert(next);
        self.entries.push((place, entry));
    }

    /// The words in the order in which they came.
    fn words(&self) -> Vec<&[u8]> {
        let mut words: Vec<&[u8]> = vec![&[]; self.places.len()];
        for (word, place) in &self.places {
            words[*place as usize] = word;
        }
        words
    }

    fn scan(mut self, view: View, first: u32) -> Scan {
        // Stable: the entries of a word stay in their order.
        self.entries.sort_by_key(|(place, _)| *place);
        let mut lengths = vec![0_usize; self.places.len()];
        for (place, _) in &self.entries {
            lengths[*place as usize] += 1;
        }
        let entries = std::mem::take(&mut self.entries).into_iter().map(|(_, entry)| entry).collect();
        let words = self.words();
        Scan {
            view,
            first,
            slots: self.slots.iter().copied().collect(),
            scanner: Scanner::new(&words),
            words: words.len(),
            starts: starts(lengths.into_iter()),
            entries,
        }
    }
}

impl Lookup {
    fn add(&mut self, number: u32, witness: Witness, sought: Option<Values<'_>>) {
        match sought {
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
                self.collected.extend(ranges.into_iter().map(|(low, high)| (low, high, number)));
            }
            None => {}
        }
    }
}
