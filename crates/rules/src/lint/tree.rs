//! A rule's condition in the form in which conditions are compared: what values pass, which words are found, joined by
//! `all` and `any`.
//!
//! Notation is gone: brackets, order, `not` (it is pushed down to the conditions, because an outcome is failed just when
//! what decides it has failed), ranges in one condition or in several.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{
    claims::Operand,
    coarser::{Coarser, Meaning},
    domain::Domain,
};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tree {
    /// The operand is there, and has one of these values.
    Claim(Operand, Domain),
    /// Atoms of which one is enough, and trees.
    Any(BTreeSet<u32>, Vec<Tree>),
    /// All of these atoms have failed.
    Without(BTreeSet<u32>),
    All(Vec<Tree>),
}

/// What can only hold or not: a word in a field, a comparison with all values of a list.
#[derive(Default)]
pub(super) struct Atoms {
    numbers: HashMap<String, u32>,
    /// By atom: the field without which it does not hold.
    pub(super) slots: Vec<Option<usize>>,
    /// Atoms that are tests of one text: by predicate and place in it.
    pub(super) tests: HashMap<u32, (usize, usize)>,
    /// By atom.
    meanings: Vec<Option<Meaning>>,
    pub(super) coarser: Coarser,
}

impl Atoms {
    pub(super) fn number(&mut self, key: String, slot: Option<usize>) -> u32 {
        self.meaning(key, slot, None)
    }

    pub(super) fn meaning(&mut self, key: String, slot: Option<usize>, meaning: Option<Meaning>) -> u32 {
        let next = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX);
        *self.numbers.entry(key).or_insert_with(|| {
            self.slots.push(slot);
            self.meanings.push(meaning);
            next
        })
    }

    /// To be done once all are numbered.
    pub(super) fn relate(&mut self) {
        self.coarser = Coarser::new(&self.meanings);
    }
}

impl Tree {
    pub(super) fn never() -> Self {
        Self::Any(BTreeSet::new(), Vec::new())
    }

    pub(super) fn always() -> Self {
        Self::All(Vec::new())
    }

    pub(super) fn one(atom: u32) -> Self {
        Self::Any([atom].into(), Vec::new())
    }

    pub(super) fn all(parts: impl IntoIterator<Item = Self>) -> Self {
        let mut claims: BTreeMap<Operand, Domain> = BTreeMap::new();
        let (mut without, mut rest) = (BTreeSet::new(), Vec::new());
        let mut add = |part| match part {
            Self::Claim(operand, domain) => join(&mut claims, operand, domain, Domain::and),
            Self::Without(atoms) => without.extend(atoms),
            other => rest.push(other),
        };
        for part in parts {
            match part {
                Self::All(inner) => inner.into_iter().for_each(&mut add),
                other => add(other),
            }
        }
        rest.extend(claims.into_iter().map(|(operand, domain)| Self::Claim(operand, domain)));
        rest.extend((!without.is_empty()).then_some(Self::Without(without)));
        only(rest, Self::All)
    }

    pub(super) fn any(parts: impl IntoIterator<Item = Self>) -> Self {
        let mut claims: BTreeMap<Operand, Domain> = BTreeMap::new();
        let (mut simple, mut rest) = (BTreeSet::new(), Vec::new());
        let mut add = |part| match part {
            Self::Claim(operand, domain) => join(&mut claims, operand, domain, Domain::or),
            other => rest.push(other),
        };
        for part in parts {
            match part {
                Self::Any(atoms, inner) => {
                    simple.extend(atoms);
                    inner.into_iter().for_each(&mut add);
                }
                other => add(other),
            }
        }
        rest.extend(claims.into_iter().map(|(operand, domain)| Self::Claim(operand, domain)));
        if simple.is_empty() {
            return only(rest, |rest| Self::Any(BTreeSet::new(), rest));
        }
        rest.sort_unstable();
        rest.dedup();
        Self::Any(simple, rest)
    }

    /// All atoms and operands, as numbers: what implies something has one of its keys.
    pub(super) fn marks(&self, coarser: &Coarser, marks: &mut Vec<Mark>) {
        match self {
            Self::Claim(operand, domain) => {
                claimed(operand, domain, marks, true);
                if let Domain::Listed(texts) = domain {
                    marks.extend(coarser.of_texts(operand, texts).into_iter().map(Mark::Atom));
                }
            }
            Self::Any(atoms, rest) => {
                for atom in atoms {
                    marks.extend([*atom].iter().chain(coarser.of(*atom)).copied().map(Mark::Atom));
                }
                rest.iter().for_each(|part| part.marks(coarser, marks));
            }
            Self::Without(atoms) => marks.extend(atoms.iter().map(|atom| Mark::Not(*atom))),
            Self::All(parts) => parts.iter().for_each(|part| part.marks(coarser, marks)),
        }
    }

    /// Of ranges there are more than of words.
    fn is_vague(&self) -> bool {
        match self {
            Self::Claim(_, domain) => !matches!(domain, Domain::Listed(_)),
            Self::Any(atoms, rest) => atoms.is_empty() && rest.iter().all(Self::is_vague),
            Self::Without(_) | Self::All(_) => false,
        }
    }

    /// Marks of which each condition that implies this one has one.
    pub(super) fn key(&self, coarser: &Coarser, key: &mut Vec<Mark>) {
        match self {
            Self::All(parts) => {
                if let Some(part) = parts.iter().find(|part| !part.is_vague()).or(parts.first()) {
                    part.key(coarser, key);
                }
            }
            Self::Without(atoms) => {
                if let Some(atom) = atoms.first() {
                    key.extend([*atom].iter().chain(coarser.of(*atom)).copied().map(Mark::Not));
                }
            }
            Self::Claim(operand, domain) => claimed(operand, domain, key, false),
            Self::Any(atoms, rest) => {
                key.extend(atoms.iter().map(|atom| Mark::Atom(*atom)));
                rest.iter().for_each(|part| part.key(coarser, key));
            }
        }
    }
}

/// What two conditions must share for one to imply the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Mark {
    Atom(u32),
    Not(u32),
    Operand(Operand),
    Value(Operand, String),
}

fn claimed(operand: &Operand, domain: &Domain, marks: &mut Vec<Mark>, whole: bool) {
    match domain {
        Domain::Listed(texts) => {
            marks.extend(texts.iter().map(|text| Mark::Value(operand.clone(), text.clone())));
        }
        Domain::Line(_) | Domain::Except(_) => marks.push(Mark::Operand(operand.clone())),
    }
    if whole {
        marks.push(Mark::Operand(operand.clone()));
        marks.extend(operand.slot().map(|slot| Mark::Operand(Operand::Present(slot))));
    }
}

fn join(
    claims: &mut BTreeMap<Operand, Domain>,
    operand: Operand,
    domain: Domain,
    joined: fn(&Domain, &Domain) -> Domain,
) {
    let known = claims.get(&operand).map(|known| joined(known, &domain));
    claims.insert(operand, known.unwrap_or(domain));
}

fn only(mut parts: Vec<Tree>, whole: impl Fn(Vec<Tree>) -> Tree) -> Tree {
    parts.sort_unstable();
    parts.dedup();
    match parts.pop() {
        Some(only) if parts.is_empty() => only,
        last => {
            parts.extend(last);
            whole(parts)
        }
    }
}
