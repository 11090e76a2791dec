//! The way from an item's texts and values to the only rules that it could match.
//!
//! It is built once for the rules of one or several item types, and evaluates nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap, hash_map::Entry};

use super::{
    literals,
    ranges::Ranges,
    scanner::Scanner,
    witness::{self, Costs},
};
use crate::{
    compile::Rule,
    form::View,
    leaves::{Leaf, Needle, Sought, TextLeaf},
    views::as_seen,
};

/// The form of the texts in which words of all conditions are sought. Whatever a finer form holds, this one holds too.
pub(crate) const SCANNED: View = View::Lower;

#[derive(Debug, Default)]
pub(crate) struct Index {
    /// All rules that concern the item types.
    pub(crate) rules: Box<[u32]>,
    /// Rules that nothing in an item has to announce.
    pub(crate) always: Box<[u32]>,
    /// Paths whose texts some rule searches.
    pub(crate) texts: Box<[usize]>,
    pub(crate) scan: Option<Scan>,
    pub(crate) lookups: Box<[(usize, Lookup)]>,
    /// The predicates of which one must pass before a rule can; others refer to them by their place.
    pub(crate) witnesses: Box<[u32]>,
    /// By witness: the rules that it makes candidates.
    pub(crate) unlocked: Lists,
    /// Text predicates that cannot pass unless the scan has found something, by number.
    scanned: Vec<u64>,
}

/// One pass over each text.
#[derive(Debug)]
pub(crate) struct Scan {
    pub(crate) slots: Box<[usize]>,
    pub(crate) scanner: Scanner,
    pub(crate) words: usize,
    /// By word: where its places lead.
    starts: Box<[u32]>,
    leads: Box<[Lead]>,
}

/// What a place of a word says about a predicate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lead {
    pub(crate) witness: u32,
    pub(crate) needle: u32,
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
    /// The predicate must be judged as a whole.
    Judge,
}

/// Values of one path that announce predicates.
#[derive(Debug, Default)]
pub(crate) struct Lookup {
    pub(crate) texts: HashMap<Box<str>, Vec<u32>>,
    pub(crate) related: HashMap<Box<str>, HashMap<Box<str>, Vec<u32>>>,
    pub(crate) booleans: [Vec<u32>; 2],
    pub(crate) ranges: Ranges,
    collected: Vec<(f64, f64, u32)>,
}

/// Lists of numbers, one behind the other.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    starts: Box<[u32]>,
    all: Box<[u32]>,
}

impl Lists {
    fn new(lists: &[Vec<u32>]) -> Self {
        let starts = starts(lists.iter().map(Vec::len));
        Self { starts, all: lists.concat().into() }
    }

    pub(crate) fn get(&self, nth: u32) -> &[u32] {
        &self.all[self.starts[nth as usize] as usize..self.starts[nth as usize + 1] as usize]
    }
}

fn starts(lengths: impl Iterator<Item = usize>) -> Box<[u32]> {
    let mut at = 0;
    let mut starts = vec![0];
    for length in lengths {
        at += length;
        starts.push(u32::try_from(at).unwrap_or(u32::MAX));
    }
    starts.into()
}

impl Scan {
    pub(crate) fn leads(&self, word: u32) -> &[Lead] {
        &self.leads[self.starts[word as usize] as usize..self.starts[word as usize + 1] as usize]
    }
}

impl Index {
    pub(crate) fn new(rules: Vec<u32>, all: &[impl AsRef<Rule>], predicates: &[Leaf], costs: &Costs) -> Self {
        let mut places: BTreeMap<u32, u32> = BTreeMap::new();
        let mut unlocked: Vec<Vec<u32>> = Vec::new();
        let (mut witnesses, mut always) = (Vec::new(), Vec::new());
        let mut texts = BTreeSet::new();
        for number in &rules {
            let rule = all[*number as usize].as_ref();
            for predicate in &rule.leaves {
                if let Leaf::Text(text) = &predicates[*predicate as usize] {
                    texts.extend(&text.slots);
                }
            }
            let Some(chosen) = witness::of(rule, costs) else {
                always.push(*number);
                continue;
            };
            for predicate in chosen {
                let place = *places.entry(predicate).or_insert_with(|| {
                    witnesses.push(predicate);
                    unlocked.push(Vec::new());
                    u32::try_from(witnesses.len() - 1).unwrap_or(u32::MAX)
                });
                unlocked[place as usize].push(*number);
            }
        }
        let mut index = Self {
            rules: rules.into(),
            always: always.into(),
            texts: texts.into_iter().collect(),
            unlocked: Lists::new(&unlocked),
            scanned: vec![0; predicates.len().div_ceil(64)],
            ..Self::default()
        };
        index.announce(&witnesses, predicates);
        index.witnesses = witnesses.into();
        index
    }

    /// Whether a predicate of which the scan has said nothing has failed.
    pub(crate) fn is_scanned(&self, predicate: u32) -> bool {
        let word = self.scanned.get(predicate as usize / 64).copied().unwrap_or_default();
        word >> (predicate % 64) & 1 == 1
    }

    /// Bytes that the search for words holds.
    pub(crate) fn memory(&self) -> usize {
        self.scan.as_ref().map_or(0, |scan| scan.scanner.memory() + size_of_val(&*scan.leads))
    }

    fn announce(&mut self, witnesses: &[u32], predicates: &[Leaf]) {
        let mut words = Words::default();
        let mut slots = BTreeSet::new();
        let mut lookups: BTreeMap<usize, Lookup> = BTreeMap::new();
        for (witness, predicate) in (0_u32..).zip(witnesses) {
            match &predicates[*predicate as usize] {
                Leaf::Text(text) => {
                    slots.extend(text.slots.iter().copied());
                    words.announce(witness, text);
                    self.scanned[*predicate as usize / 64] |= 1 << (predicate % 64);
                }
                Leaf::Field(field) => {
                    lookups.entry(field.slot()).or_default().announce(witness, field.sought());
                }
                Leaf::Strikes(_) => {}
            }
        }
        for lookup in lookups.values_mut() {
            lookup.ranges = Ranges::new(std::mem::take(&mut lookup.collected));
        }
        self.lookups = lookups.into_iter().collect();
        self.scan = words.scan(slots.into_iter().collect());
    }
}

/// The distinct words of a scan, and their leads.
#[derive(Default)]
struct Words {
    places: HashMap<Box<[u8]>, usize>,
    words: Vec<Box<[u8]>>,
    leads: Vec<Vec<Lead>>,
}

impl Words {
    fn add(&mut self, word: &str, lead: Lead) {
        let next = self.words.len();
        let place = match self.places.entry(word.as_bytes().into()) {
            Entry::Occupied(place) => *place.get(),
            Entry::Vacant(place) => {
                self.words.push(word.as_bytes().into());
                self.leads.push(Vec::new());
                *place.insert(next)
            }
        };
        self.leads[place].push(lead);
    }

    fn announce(&mut self, witness: u32, text: &TextLeaf) {
        let announcing = witness::needles(text);
        for (needle, nth) in
            (0_u32..).zip(&text.needles).filter(|(nth, _)| announcing.contains(nth)).map(|(n, it)| (it, n))
        {
            let lead =
                |proof| Lead { witness, needle: nth, proof: if text.all { Proof::Judge } else { proof } };
            match needle {
                Needle::Word { seen, whole, .. } => {
                    let proof = match (text.view == SCANNED, whole) {
                        (true, false) => Proof::Place,
                        (true, true) => Proof::WholeWord,
                        (false, _) => Proof::Needle,
                    };
                    self.add(&as_seen(seen, SCANNED), lead(proof));
                }
                Needle::Pattern { regex, .. } => {
                    for literal in literals::required(regex.as_str(), SCANNED).unwrap_or_default() {
                        self.add(&literal, lead(Proof::Needle));
                    }
                }
            }
        }
    }

    fn scan(self, slots: Box<[usize]>) -> Option<Scan> {
        if self.words.is_empty() {
            return None;
        }
        let words: Vec<&[u8]> = self.words.iter().map(|word| &**word).collect();
        Some(Scan {
            slots,
            scanner: Scanner::new(&words),
            words: words.len(),
            starts: starts(self.leads.iter().map(Vec::len)),
            leads: self.leads.concat().into(),
        })
    }
}

impl Lookup {
    fn announce(&mut self, witness: u32, sought: Option<Sought<'_>>) {
        match sought {
            Some(Sought::Texts(texts)) => {
                for text in texts {
                    self.texts.entry(text.into()).or_default().push(witness);
                }
            }
            Some(Sought::Related(keys)) => {
                for key in keys {
                    let ids = self.related.entry(key.type_id.as_str().into()).or_default();
                    ids.entry(key.id.as_str().into()).or_default().push(witness);
                }
            }
            Some(Sought::Boolean(boolean)) => self.booleans[usize::from(boolean)].push(witness),
            Some(Sought::Ranges(ranges)) => {
                self.collected.extend(ranges.into_iter().map(|(low, high)| (low, high, witness)));
            }
            None => {}
        }
    }
}
