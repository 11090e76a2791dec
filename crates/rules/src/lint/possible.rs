//! Whether a condition can hold at all.
//!
//! It sees what follows from values of one operand and from what must hold together; alternatives are tried one by one.

use std::{collections::BTreeMap, collections::HashSet, rc::Rc};

use super::{
    claims::Operand,
    domain::Domain,
    tree::{Atoms, Tree},
};
use crate::{
    derived::lower,
    leaves::{FieldLeaf, Leaf},
};

/// Steps for one condition; what takes more may be possible.
const WORK: usize = 100_000;

/// What must hold at once.
#[derive(Clone, Default)]
struct Facts {
    claims: BTreeMap<Operand, Rc<Domain>>,
    required: HashSet<u32>,
    without: HashSet<u32>,
}

struct Look<'l> {
    atoms: &'l Atoms,
    predicates: &'l [Leaf],
    left: usize,
}

pub(super) fn possible(tree: &Tree, atoms: &Atoms, predicates: &[Leaf]) -> bool {
    Look { atoms, predicates, left: WORK }.holds(tree, &Facts::default())
}

impl Look<'_> {
    fn holds(&mut self, tree: &Tree, facts: &Facts) -> bool {
        self.left = self.left.saturating_sub(1 + facts.claims.len());
        if self.left == 0 {
            return true;
        }
        match tree {
            Tree::Any(simple, rest) => {
                simple.iter().any(|atom| self.may_be(*atom, facts))
                    || rest.iter().any(|part| self.holds(part, facts))
            }
            Tree::All(parts) => self.together(parts, facts),
            one => self.together(std::slice::from_ref(one), facts),
        }
    }

    fn may_be(&self, atom: u32, facts: &Facts) -> bool {
        let absent = |slot| facts.claims.get(&Operand::Present(slot)) == Some(&Rc::new(absent(slot)));
        let coarser = || self.atoms.coarser.of(atom).iter();
        !facts.without.contains(&atom)
            && !coarser().any(|coarse| facts.without.contains(coarse))
            && !self.atoms.slots[atom as usize].is_some_and(absent)
    }

    fn together(&mut self, parts: &[Tree], facts: &Facts) -> bool {
        let mut facts = facts.clone();
        for part in parts {
            match part {
                Tree::Claim(operand, domain) => {
                    facts.claim(operand, domain);
                    if let Some(slot) = operand.slot() {
                        facts.present(slot);
                    }
                }
                Tree::Without(atoms) => facts.without.extend(atoms),
                Tree::Any(simple, rest) if rest.is_empty() => {
                    if simple.len() == 1 {
                        facts.required.extend(simple);
                    }
                    let mut slots = simple.iter().map(|atom| self.atoms.slots[*atom as usize]);
                    if let Some(Some(slot)) = slots.next()
                        && slots.all(|other| other == Some(slot))
                    {
                        facts.present(slot);
                    }
                }
                Tree::Any(..) | Tree::All(_) => {}
            }
        }
        if facts.required.iter().any(|atom| !self.may_be(*atom, &facts)) {
            return false;
        }
        self.narrow(&mut facts);
        if facts.claims.values().any(|domain| domain.is_empty()) {
            return false;
        }
        let mut open = parts.iter().filter(|part| matches!(part, Tree::Any(..) | Tree::All(_)));
        open.all(|part| self.holds(part, &facts))
    }

    /// Where few texts are left, each must pass what is asked of its letters.
    fn narrow(&self, facts: &mut Facts) {
        let tests: Vec<_> = (facts.required.iter().map(|atom| (atom, true)))
            .chain(facts.without.iter().map(|atom| (atom, false)))
            .filter_map(|(atom, passes)| {
                let (predicate, nth) = self.atoms.tests.get(atom)?;
                let Leaf::Field(field) = &self.predicates[*predicate] else { return None };
                Some((field, *nth, passes))
            })
            .collect();
        let lowered = facts.claims.clone();
        for (operand, domain) in &mut facts.claims {
            let (Operand::Text(slot) | Operand::Lower(slot), Domain::Listed(texts)) = (operand, &**domain)
            else {
                continue;
            };
            // Of a text in lower case nobody knows what it was before.
            let is_lower = *operand == Operand::Lower(*slot);
            let own = |field: &FieldLeaf| field.slot() == *slot && (field.ignores_case() || !is_lower);
            let fits = |text: &&String| {
                let mut own = tests.iter().filter(|(field, ..)| own(field));
                let known = lowered.get(&Operand::Lower(*slot)).filter(|_| !is_lower);
                known.is_none_or(|known| known.has(&lower(text)))
                    && own.all(|(field, nth, passes)| field.meets(*nth, text) == *passes)
            };
            let left = texts.iter().filter(fits).cloned().collect();
            *domain = Rc::new(Domain::Listed(left));
        }
    }
}

fn absent(slot: usize) -> Domain {
    match Operand::present(slot, false) {
        Tree::Claim(_, domain) => domain,
        _ => Domain::line(),
    }
}

impl Facts {
    fn claim(&mut self, operand: &Operand, domain: &Domain) {
        let joined = self.claims.get(operand).map_or_else(|| domain.clone(), |known| known.and(domain));
        self.claims.insert(operand.clone(), Rc::new(joined));
    }

    fn present(&mut self, slot: usize) {
        if let Tree::Claim(operand, domain) = Operand::present(slot, true) {
            self.claim(&operand, &domain);
        }
    }
}
