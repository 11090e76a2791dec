//! Finds rules that add nothing: whatever they match, another one matches too, and leads to as much.
//!
//! It compares conditions as they are written: what follows only from values, such as one range inside another, it does
//! not see.

use std::collections::{HashMap, HashSet};

use crate::{
    compile::{Node, Rule},
    form::View,
    leaves::{Leaf, Needle, TextLeaf},
};

/// Comparisons of conditions that are made at most; so many rules may have a word in common that all pairs are too many.
const WORK: usize = 2_000_000;

/// Which rule, and which other one matches whatever it matches.
pub(super) struct Found {
    pub(super) pairs: Vec<(usize, usize)>,
    /// All rules were compared.
    pub(super) complete: bool,
}

/// What must pass, with `not` pushed down to the conditions: `not` of all is any of `not`, and the other way round,
/// because an outcome is failed just when what decides it has failed.
enum Tree {
    Atom(u32),
    All(Vec<Tree>),
    /// Atoms of which one is enough, and trees.
    Any(HashSet<u32>, Vec<Tree>),
}

#[derive(PartialEq, Eq, Hash)]
enum Atom<'l> {
    Predicate(u32, bool),
    /// One word of a condition for which one is enough.
    Word(&'l [usize], View, &'l str, &'l str, bool),
}

pub(super) fn look(rules: &[&Rule], predicates: &[Leaf]) -> Found {
    let mut atoms = HashMap::new();
    let trees: Vec<Tree> =
        rules.iter().map(|rule| tree(&rule.when, true, rule, predicates, &mut atoms)).collect();
    // By atom: the rules that cannot match without it, or one of its like.
    let mut keyed: HashMap<u32, Vec<usize>> = HashMap::new();
    for (nth, tree) in trees.iter().enumerate() {
        let mut key = Vec::new();
        tree.key(&mut key);
        for atom in key {
            keyed.entry(atom).or_default().push(nth);
        }
    }
    let mut found = Found { pairs: Vec::new(), complete: true };
    let mut left = WORK;
    for (nth, (rule, tree)) in rules.iter().zip(&trees).enumerate() {
        let mut own = Vec::new();
        tree.atoms(&mut own);
        let mut others: Vec<usize> =
            own.iter().filter_map(|atom| keyed.get(atom)).flatten().copied().collect();
        left = left.saturating_sub(own.len() + others.len());
        others.sort_unstable();
        others.dedup();
        // Of two that imply each other the later one adds nothing.
        let wider = others.into_iter().find(|other| {
            left = left.saturating_sub(1);
            *other != nth
                && left > 0
                && covers(rules[*other], rule)
                && implies(tree, &trees[*other], &mut left)
                && (*other < nth || !implies(&trees[*other], tree, &mut left))
        });
        found.pairs.extend(wider.map(|other| (nth, other)));
        if left == 0 {
            found.complete = false;
            break;
        }
    }
    found
}

/// Whether a rule is for whatever the other is for, and leads to all that the other leads to.
fn covers(wider: &Rule, rule: &Rule) -> bool {
    let types = wider.item_types.is_empty()
        || !rule.item_types.is_empty() && rule.item_types.is_subset(&wider.item_types);
    types
        && wider.expires_at >= rule.expires_at.filter(|_| wider.expires_at.is_some())
        && (wider.expires_at.is_none() || rule.expires_at.is_some())
        && wider.head.status == rule.head.status
        && wider.head.life == rule.head.life
        && rule.on.iter().all(|on| wider.on.contains(on))
        && rule.head.policies.iter().all(|policy| wider.head.policies.contains(policy))
        && rule.head.actions.iter().all(|action| wider.head.actions.contains(action))
}

fn tree<'l>(
    node: &Node,
    positive: bool,
    rule: &Rule,
    predicates: &'l [Leaf],
    atoms: &mut HashMap<Atom<'l>, u32>,
) -> Tree {
    let mut number = |atom| {
        let next = u32::try_from(atoms.len()).unwrap_or(u32::MAX);
        *atoms.entry(atom).or_insert(next)
    };
    let (inner, all) = match node {
        Node::Leaf(nth) => {
            let predicate = rule.leaves[*nth];
            return match &predicates[predicate as usize] {
                Leaf::Text(text) if positive && text.needed == 1 => Tree::Any(
                    text.needles.iter().map(|needle| number(atom(text, needle))).collect(),
                    Vec::new(),
                ),
                _ => Tree::Atom(number(Atom::Predicate(predicate, positive))),
            };
        }
        Node::Not(inner) => return tree(inner, !positive, rule, predicates, atoms),
        Node::All(inner) => (inner, positive),
        Node::Any(inner) => (inner, !positive),
    };
    let parts = inner.iter().map(|node| tree(node, positive, rule, predicates, atoms));
    if all {
        return Tree::All(parts.collect());
    }
    let (mut simple, mut rest) = (HashSet::new(), Vec::new());
    for part in parts {
        match part {
            Tree::Atom(atom) => {
                simple.insert(atom);
            }
            Tree::Any(atoms, trees) => {
                simple.extend(atoms);
                rest.extend(trees);
            }
            all @ Tree::All(_) => rest.push(all),
        }
    }
    Tree::Any(simple, rest)
}

fn atom<'l>(text: &'l TextLeaf, needle: &'l Needle) -> Atom<'l> {
    match needle {
        // Its letters as written tell the runs that a collapsed word asks for.
        Needle::Word { written, seen, whole, .. } => {
            Atom::Word(&text.slots, text.view, seen, written, *whole)
        }
        Needle::Pattern { regex, .. } => Atom::Word(&text.slots, text.view, regex.as_str(), "", false),
    }
}

impl Tree {
    fn atoms(&self, atoms: &mut Vec<u32>) {
        match self {
            Self::Atom(atom) => atoms.push(*atom),
            Self::All(parts) => parts.iter().for_each(|part| part.atoms(atoms)),
            Self::Any(simple, rest) => {
                atoms.extend(simple);
                rest.iter().for_each(|part| part.atoms(atoms));
            }
        }
    }

    /// Atoms of which each condition that implies this one has one.
    fn key(&self, key: &mut Vec<u32>) {
        match self {
            Self::All(parts) => {
                if let Some(first) = parts.first() {
                    first.key(key);
                }
            }
            other => other.atoms(key),
        }
    }
}

fn implies(narrow: &Tree, wide: &Tree, left: &mut usize) -> bool {
    *left = left.saturating_sub(1);
    if *left == 0 {
        return false;
    }
    match (narrow, wide) {
        (_, Tree::All(parts)) => parts.iter().all(|part| implies(narrow, part, left)),
        (Tree::Any(simple, rest), _) => {
            let direct = match wide {
                Tree::Any(wide, _) => {
                    *left = left.saturating_sub(simple.len());
                    simple.is_subset(wide)
                }
                Tree::Atom(atom) => simple.iter().all(|one| one == atom),
                Tree::All(_) => false,
            };
            direct && rest.iter().all(|part| implies(part, wide, left))
        }
        (Tree::All(parts), _) if parts.iter().any(|part| implies(part, wide, left)) => true,
        (_, Tree::Any(_, rest)) if rest.iter().any(|part| implies(narrow, part, left)) => true,
        (Tree::Atom(atom), Tree::Any(simple, _)) => simple.contains(atom),
        (Tree::Atom(a), Tree::Atom(b)) => a == b,
        (Tree::All(_), _) => false,
    }
}
