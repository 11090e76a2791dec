//! Which atoms hold wherever another one does: a word in a longer one, a domain above another, a part of a text.
//!
//! It knows no trees. What it does not find is only not said, so it may stop anywhere.

use std::{
    cell::Cell,
    collections::{BTreeSet, HashMap},
};

use crate::{
    derived::{as_seen, lower},
    form::{Op, View},
    hosts,
    leaves::in_word,
};

use super::claims::Operand;

/// What is known of an atom beside its name.
#[derive(Clone, Debug)]
pub(super) enum Meaning {
    /// `runs`: its letters must stand so often, too.
    Word {
        slot: usize,
        view: View,
        seen: String,
        whole: bool,
        runs: bool,
    },
    Host {
        slot: usize,
        name: String,
    },
    /// Of one source of places.
    Cell {
        of: String,
        hash: String,
    },
    Circle {
        centre: String,
        metres: f64,
    },
    /// One of the parts is there, in a text or in its lower case.
    Part {
        slot: usize,
        lower: bool,
        op: Op,
        parts: Vec<String>,
    },
}

/// Parts of texts that are looked up for all atoms, and found for one.
const WORK: usize = 4_000_000;
const MOST: usize = 64;

/// Texts of one condition that are looked at.
const TEXTS: usize = 16;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Words(usize, View),
    Whole(usize, View),
    Parts(usize, bool, Op),
    Hosts(usize),
    Cells(String),
}

/// Atoms by a text that stands for them.
#[derive(Default)]
struct Known {
    lengths: BTreeSet<usize>,
    atoms: HashMap<String, Vec<u32>>,
}

#[derive(Default)]
pub(super) struct Coarser {
    known: HashMap<Kind, Known>,
    circles: HashMap<String, Vec<(f64, u32)>>,
    /// By atom.
    of: Vec<Box<[u32]>>,
    left: Cell<usize>,
}

impl Coarser {
    pub(super) fn new(meanings: &[Option<Meaning>]) -> Self {
        let mut made = Self { left: Cell::new(WORK), ..Self::default() };
        for (atom, meaning) in (0..).zip(meanings) {
            made.learn(atom, meaning.as_ref());
        }
        made.of = (0..)
            .zip(meanings)
            .map(|(atom, meaning)| {
                let mut found = meaning.as_ref().map_or_else(BTreeSet::new, |meaning| made.implied(meaning));
                found.remove(&atom);
                found.into_iter().collect()
            })
            .collect();
        made.left.set(WORK);
        made
    }

    /// The atoms that hold wherever this one does, apart from itself.
    pub(super) fn of(&self, atom: u32) -> &[u32] {
        self.of.get(atom as usize).map_or(&[], |atoms| atoms)
    }

    /// The atoms that hold where an operand has one of these texts.
    pub(super) fn of_texts(&self, operand: &Operand, texts: &BTreeSet<String>) -> BTreeSet<u32> {
        let of = |text: &String| match operand {
            Operand::Text(slot) => {
                let mut found = self.parts_of(*slot, false, Op::Eq, text);
                found.extend(self.parts_of(*slot, true, Op::Eq, &lower(text)));
                found
            }
            Operand::Lower(slot) => self.parts_of(*slot, true, Op::Eq, text),
            _ => BTreeSet::new(),
        };
        in_all(texts.iter(), of)
    }

    fn learn(&mut self, atom: u32, meaning: Option<&Meaning>) {
        let mut learn = |kind: Kind, text: &str| {
            let known = self.known.entry(kind).or_default();
            known.lengths.insert(text.len());
            known.atoms.entry(text.to_owned()).or_default().push(atom);
        };
        match meaning {
            Some(Meaning::Word { slot, view, seen, whole: false, runs: false }) => {
                learn(Kind::Words(*slot, *view), seen);
            }
            Some(Meaning::Word { slot, view, seen, whole: true, runs: false }) if *view <= View::Lower => {
                learn(Kind::Whole(*slot, *view), seen);
            }
            Some(Meaning::Part { slot, lower, op, parts }) => {
                parts.iter().take(TEXTS).for_each(|part| learn(Kind::Parts(*slot, *lower, *op), part));
            }
            Some(Meaning::Host { slot, name }) => learn(Kind::Hosts(*slot), name),
            Some(Meaning::Cell { of, hash }) => learn(Kind::Cells(of.clone()), hash),
            Some(Meaning::Circle { centre, metres }) => {
                self.circles.entry(centre.clone()).or_default().push((*metres, atom));
            }
            Some(Meaning::Word { .. }) | None => {}
        }
    }

    fn implied(&self, meaning: &Meaning) -> BTreeSet<u32> {
        let mut found = BTreeSet::new();
        match meaning {
            Meaning::Word { slot, view, seen, whole, .. } => {
                for coarse in [View::Raw, View::Lower, View::Folded, View::Collapsed] {
                    // What a form of a text holds, the coarser ones hold as well: the search for words rests on it.
                    if coarse >= *view {
                        let seen = if coarse == *view { seen.clone() } else { as_seen(seen, coarse) };
                        self.look(&Kind::Words(*slot, coarse), &seen, |_, _| true, &mut found);
                    }
                }
                let alone = |start: usize, end: usize| {
                    let before = seen[..start].chars().next_back();
                    let behind = seen[end..].chars().next();
                    [before, behind].into_iter().all(|beside| beside.map_or(*whole, |c| !in_word(c)))
                };
                self.look(&Kind::Whole(*slot, *view), seen, alone, &mut found);
            }
            Meaning::Host { slot, name } => {
                let known = self.known.get(&Kind::Hosts(*slot));
                let above = hosts::upwards(name).filter_map(|name| known?.atoms.get(name)).flatten();
                found.extend(above.take(MOST));
            }
            Meaning::Cell { of, hash } => {
                self.look(&Kind::Cells(of.clone()), hash, |start, _| start == 0, &mut found);
            }
            Meaning::Circle { centre, metres } => {
                let wider = self.circles.get(centre).into_iter().flatten();
                found.extend(wider.filter(|(wide, _)| wide >= metres).map(|(_, atom)| atom).take(MOST));
            }
            Meaning::Part { slot, lower, op, parts } => {
                found = in_all(parts.iter(), |part| self.parts_of(*slot, *lower, *op, part));
            }
        }
        found
    }

    /// The atoms on parts of a text that hold if this is its beginning, its end, in it, or all of it.
    fn parts_of(&self, slot: usize, lower: bool, as_what: Op, text: &str) -> BTreeSet<u32> {
        let mut found = BTreeSet::new();
        for op in [Op::StartsWith, Op::EndsWith, Op::Contains] {
            if op == Op::Contains || as_what == op || as_what == Op::Eq {
                let fits = |start: usize, end: usize| match op {
                    Op::StartsWith => start == 0,
                    Op::EndsWith => end == text.len(),
                    _ => true,
                };
                self.look(&Kind::Parts(slot, lower, op), text, fits, &mut found);
            }
        }
        found
    }

    /// Finds what stands for atoms in a text, where it stands as it must.
    fn look(&self, kind: &Kind, text: &str, fits: impl Fn(usize, usize) -> bool, found: &mut BTreeSet<u32>) {
        let Some(known) = self.known.get(kind) else { return };
        for length in known.lengths.range(..=text.len()) {
            for start in 0..=text.len() - length {
                let end = start + length;
                if self.left.get() == 0 || found.len() >= MOST {
                    return;
                }
                self.left.set(self.left.get() - 1);
                let part = text.get(start..end).filter(|_| fits(start, end));
                found.extend(part.and_then(|part| known.atoms.get(part)).into_iter().flatten().take(MOST));
            }
        }
    }
}

/// What is found for each of some texts.
fn in_all<'t>(
    texts: impl ExactSizeIterator<Item = &'t String>,
    find: impl Fn(&'t String) -> BTreeSet<u32>,
) -> BTreeSet<u32> {
    if texts.len() > TEXTS {
        return BTreeSet::new();
    }
    texts.map(find).reduce(|all, one| &all & &one).unwrap_or_default()
}
