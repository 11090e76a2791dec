//! What one condition says: of values of operands, and of what can only hold or not.
//!
//! It does not combine conditions.

use std::{collections::BTreeSet, fmt::Display};

use tidegate_schemas::ids::BankId;

use super::{
    coarser::Meaning,
    domain::{Domain, Grain},
    patterns,
    tree::{Atoms, Tree},
};
use crate::{
    form::{Of, Op, View},
    item::Number,
    leaves::{FieldLeaf, FieldTest, GeoLeaf, Leaf, Needle, Operand as Value, Places, TextLeaf},
};

/// What has one value, if it has one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Operand {
    /// Whether a field is there.
    Present(usize),
    /// Whether a field, or a pair of them, holds a place.
    Place(usize, Option<usize>),
    Number(usize),
    Boolean(usize),
    Instant(usize),
    /// Milliseconds after the item came in.
    Since(usize),
    Text(usize),
    /// In lower case.
    Lower(usize),
    Related(usize),
    /// Characters of a text, or values of a list.
    Size(usize),
    Score(String, Option<String>),
    /// Within so many milliseconds.
    Strikes(Option<i64>),
    /// In millionths.
    Count(String),
}

impl Operand {
    pub(super) fn slot(&self) -> Option<usize> {
        match self {
            Self::Number(slot)
            | Self::Boolean(slot)
            | Self::Instant(slot)
            | Self::Since(slot)
            | Self::Text(slot)
            | Self::Lower(slot)
            | Self::Related(slot)
            | Self::Size(slot)
            | Self::Place(slot, _) => Some(*slot),
            Self::Present(_) | Self::Score(..) | Self::Strikes(_) | Self::Count(_) => None,
        }
    }

    fn grain(&self) -> Grain {
        if matches!(self, Self::Number(_) | Self::Score(..)) { Grain::Dense } else { Grain::Whole }
    }

    /// All values that it can have.
    fn all(&self) -> Domain {
        let from = |least: i64| Domain::ordered(Op::Gte, least.into(), Grain::Whole);
        match self {
            Self::Present(_) | Self::Place(..) | Self::Boolean(_) => {
                from(0).and(&Domain::ordered(Op::Lte, 1.into(), Grain::Whole))
            }
            Self::Size(_) | Self::Strikes(_) | Self::Count(_) => from(0),
            Self::Number(_) | Self::Instant(_) | Self::Since(_) | Self::Score(..) => Domain::line(),
            Self::Text(_) | Self::Lower(_) | Self::Related(_) => Domain::Except(BTreeSet::new()),
        }
    }

    fn claim(self, op: Op, number: Number, positive: bool) -> Tree {
        let domain = Domain::ordered(op, number, self.grain());
        self.among(domain, positive)
    }

    pub(super) fn among(self, domain: Domain, positive: bool) -> Tree {
        let domain = if positive { domain } else { domain.not() };
        let domain = domain.and(&self.all());
        Tree::Claim(self, domain)
    }

    pub(super) fn present(slot: usize, there: bool) -> Tree {
        Self::Present(slot).claim(Op::Eq, i64::from(there).into(), true)
    }
}

/// The condition as it passes, or as it fails.
pub(super) fn tree(predicate: usize, leaf: &Leaf, positive: bool, atoms: &mut Atoms) -> Tree {
    match leaf {
        Leaf::Field(field) if field.is_single() => single(predicate, field, positive, atoms),
        Leaf::Field(field) => several(field, positive, atoms),
        Leaf::Text(text) => texts(text, positive, atoms),
        Leaf::Score(score) => {
            let of = || Operand::Score(score.model().to_owned(), score.label().map(str::to_owned));
            let tests = score.tests().iter().map(|(op, end)| of().claim(*op, *end, positive));
            join(positive, tests)
        }
        Leaf::Strikes(strikes) => {
            let within = strikes.0.within.map(crate::facts::Within::millis);
            Operand::Strikes(within).claim(Op::Gte, strikes.0.at_least.into(), positive)
        }
        Leaf::Count(count) => {
            Operand::Count(count.window().to_string()).claim(Op::Gte, count.at_least().0.into(), positive)
        }
        Leaf::Domain(domain) => {
            let each = domain.slots.iter().flat_map(|slot| {
                let host = |name: &str| Meaning::Host { slot: *slot, name: name.to_owned() };
                let names = domain.names();
                let names =
                    names.map(move |name| (format!("host {slot} {name}"), Some(*slot), Some(host(name))));
                names.chain(later(domain.bank.as_ref(), "host", slot, *slot))
            });
            one_of(each.collect(), positive, format!("no host {:?}", sorted(&domain.slots)), atoms)
        }
        Leaf::Geo(geo) => areas(geo, positive, atoms),
        Leaf::Formula(formula) => match (formula.constant(), formula.sized()) {
            (Some(comes_to), _) if comes_to == Some(positive) => Tree::always(),
            (Some(_), _) => Tree::never(),
            (None, Some((slot, op, number))) => Operand::Size(slot).claim(op, number, positive),
            (None, None) => opaque(format!("formula {}", formula.key()), None, positive, atoms),
        },
        Leaf::Media(media) => opaque(format!("media {}", media.key()), media.only_slot(), positive, atoms),
    }
}

fn join(all: bool, parts: impl IntoIterator<Item = Tree>) -> Tree {
    if all { Tree::all(parts) } else { Tree::any(parts) }
}

fn opaque(key: String, slot: Option<usize>, positive: bool, atoms: &mut Atoms) -> Tree {
    let atom = atoms.number(key, slot);
    if positive { Tree::one(atom) } else { Tree::Without([atom].into()) }
}

/// A circle is written as its centre and metres, a cell as its geohash.
fn area_of(of: &str, written: &str) -> Meaning {
    let circle = written.rsplit_once(',').and_then(|(centre, metres)| Some((centre, metres.parse().ok()?)));
    match circle {
        Some((centre, metres)) => Meaning::Circle { centre: format!("{of} {centre}"), metres },
        None => Meaning::Cell { of: of.to_owned(), hash: written.to_owned() },
    }
}

/// What an atom is called, the field without which it does not hold, and what is known of it.
type Key = (String, Option<usize>, Option<Meaning>);

/// What a bank may come to hold beside what it holds now, in a field or a pair of them.
fn later(bank: Option<&BankId>, what: &str, of: impl Display, slot: usize) -> Option<Key> {
    bank.map(|bank| (format!("{what} {of} of bank {bank}"), Some(slot), None))
}

/// One of several is enough; if there are none, it is never found.
fn one_of(keys: Vec<Key>, positive: bool, none: String, atoms: &mut Atoms) -> Tree {
    if keys.is_empty() && !positive {
        return opaque(none, None, false, atoms);
    }
    let numbers = keys.into_iter().map(|(key, slot, meaning)| atoms.meaning(key, slot, meaning)).collect();
    if positive { Tree::Any(numbers, Vec::new()) } else { Tree::Without(numbers) }
}

/// One place in one area is enough; what is in none of them must be somewhere.
fn areas(geo: &GeoLeaf, positive: bool, atoms: &mut Atoms) -> Tree {
    let areas: Vec<String> = geo.names().collect();
    let sources = match &geo.places {
        Places::Hashes(slots) => slots.iter().map(|slot| (slot.to_string(), (*slot, None))).collect(),
        Places::Pairs(lat, lng) => vec![(format!("{lat}/{lng}"), (*lat, Some(*lng)))],
    };
    let each = sources.iter().flat_map(|(of, (slot, _))| {
        let each = areas.iter();
        let each = each.map(move |area| (format!("place {of} {area}"), Some(*slot), Some(area_of(of, area))));
        each.chain(later(geo.bank.as_ref(), "place", of, *slot))
    });
    let none = || format!("no place {:?}", sources.iter().map(|(of, _)| of).collect::<BTreeSet<_>>());
    let inside = one_of(each.collect(), positive, none(), atoms);
    if positive {
        return inside;
    }
    let somewhere = |(_, (slot, lng)): &(_, (usize, Option<usize>))| {
        Operand::Place(*slot, *lng).claim(Op::Eq, 1.into(), true)
    };
    Tree::all([inside, Tree::any(sources.iter().map(somewhere).collect::<Vec<_>>())])
}

fn sorted<T: Ord + Clone>(list: &[T]) -> Vec<T> {
    let mut list = list.to_vec();
    list.sort_unstable();
    list
}

/// A field with one value: each test says something of that value.
fn single(predicate: usize, field: &FieldLeaf, positive: bool, atoms: &mut Atoms) -> Tree {
    let positive = positive != (field.of() == Some(Of::None));
    let tests = field.tests().iter().enumerate().map(|(nth, test)| {
        let slot = field.slot();
        if test.op == Op::Exists {
            return Operand::present(slot, test.wanted == positive);
        }
        values(slot, test, field.ignores_case(), positive).unwrap_or_else(|| {
            let key = format!("test {slot} {} {}", field.ignores_case(), written(test));
            let parts = test.operands.iter().filter_map(Value::text).map(str::to_owned).collect();
            let part = Meaning::Part { slot, lower: field.ignores_case(), op: test.op, parts };
            let part = matches!(test.op, Op::StartsWith | Op::EndsWith | Op::Contains).then_some(part);
            let atom = atoms.meaning(key, Some(slot), part);
            let tree = if positive { Tree::one(atom) } else { Tree::Without([atom].into()) };
            atoms.tests.entry(atom).or_insert((predicate, nth));
            // What has failed had something to compare.
            Tree::all([tree, Operand::present(slot, true)])
        })
    });
    join(positive, tests.collect::<Vec<_>>())
}

/// The values that pass a test; `None` if they cannot be listed.
fn values(slot: usize, test: &FieldTest, lower: bool, positive: bool) -> Option<Tree> {
    if matches!(test.op, Op::StartsWith | Op::EndsWith | Op::Contains) {
        return None;
    }
    let negative = matches!(test.op, Op::Ne | Op::NotIn);
    let op = if negative { Op::Eq } else { test.op };
    let mut whole: Option<Tree> = None;
    for value in &test.operands {
        let tree = match value {
            Value::Text(text) => {
                let operand = if lower { Operand::Lower(slot) } else { Operand::Text(slot) };
                operand.among(Domain::Listed([text.clone()].into()), true)
            }
            Value::Related(key) => {
                let name = format!("{}/{}", key.type_id, key.id);
                Operand::Related(slot).among(Domain::Listed([name].into()), true)
            }
            Value::Number(number) => Operand::Number(slot).claim(op, *number, true),
            Value::Boolean(boolean) => Operand::Boolean(slot).claim(op, i64::from(*boolean).into(), true),
            Value::Datetime(instant) => Operand::Instant(slot).claim(op, instant.0.into(), true),
            Value::Relative(after) => Operand::Since(slot).claim(op, (*after).into(), true),
        };
        whole = Some(match whole {
            None => tree,
            Some(whole) => Tree::any([whole, tree]),
        });
    }
    match whole? {
        Tree::Claim(operand, domain) => Some(operand.among(domain, positive != negative)),
        // Some values are absolute, and some relative.
        _ => None,
    }
}

/// A list or map: what holds of one value need not hold of another.
fn several(field: &FieldLeaf, positive: bool, atoms: &mut Atoms) -> Tree {
    let slot = field.slot();
    let (exist, compare): (Vec<_>, Vec<_>) = field.tests().iter().partition(|test| test.op == Op::Exists);
    let denies = |test: &&FieldTest| matches!(test.op, Op::Ne | Op::NotIn);
    let of = match field.of() {
        None if !compare.iter().any(denies) => Some(Of::Any),
        None if compare.iter().all(denies) => Some(Of::All),
        other => other,
    };
    let mut parts: Vec<Tree> =
        exist.iter().map(|test| Operand::present(slot, test.wanted == positive)).collect();
    // That none is so, or that all are not, is the opposite of that one is.
    let (of, turned, holds) = match (of, &compare[..]) {
        (Some(Of::None), _) => (Some(Of::Any), false, !positive),
        (Some(Of::All), [test]) if denies(test) => (Some(Of::Any), true, !positive),
        (of, _) => (of, false, positive),
    };
    let lower = field.ignores_case();
    let listed = match compare[..] {
        [test] if of == Some(Of::Any) && (turned || matches!(test.op, Op::Eq | Op::In)) => Some(test),
        _ => None,
    };
    if let Some(test) = listed {
        let item = |value: &Value| (format!("item {slot} {lower} {}", value_key(value)), Some(slot), None);
        parts.push(one_of(test.operands.iter().map(item).collect(), holds, String::new(), atoms));
    } else if !compare.is_empty() {
        // Where one value must be as asked, it must not be as denied either.
        let one = compare.iter().filter_map(|test| values(slot, test, lower, true));
        if holds && of != Some(Of::All) && has_empty(&Tree::all(one)) {
            parts.push(Tree::never());
        } else {
            let tests: BTreeSet<String> = compare.iter().map(|test| written(test)).collect();
            parts.push(opaque(format!("list {slot} {of:?} {lower} {tests:?}"), Some(slot), holds, atoms));
        }
    }
    join(positive, parts)
}

fn has_empty(tree: &Tree) -> bool {
    match tree {
        Tree::Claim(_, domain) => domain.is_empty(),
        Tree::All(parts) => parts.iter().any(has_empty),
        Tree::Any(..) | Tree::Without(_) => false,
    }
}

fn value_key(value: &Value) -> String {
    match value {
        Value::Number(number) => format!("{:?}", Domain::ordered(Op::Eq, *number, Grain::Dense)),
        other => format!("{other:?}"),
    }
}

fn written(test: &FieldTest) -> String {
    let op = match test.op {
        Op::Eq => Op::In,
        Op::Ne => Op::NotIn,
        other => other,
    };
    let values: BTreeSet<String> = test.operands.iter().map(value_key).collect();
    format!("{op:?} {values:?}")
}

/// How many fewer words than asked for are looked at.
const FEWER: usize = 8;

/// Words and patterns, each in each of the fields.
fn texts(text: &TextLeaf, positive: bool, atoms: &mut Atoms) -> Tree {
    let found = |needle: &Needle| -> Option<Vec<Key>> {
        let key = match needle {
            Needle::Word { seen, runs, whole, .. } => {
                let runs = if text.view == View::Collapsed { format!("{runs:?}") } else { String::new() };
                format!("{whole} {runs} {seen}")
            }
            Needle::Pattern { regex, .. } if patterns::never(regex.as_str()) => return None,
            Needle::Pattern { regex, .. } => format!("pattern {}", regex.as_str()),
        };
        let meaning = |slot: usize| match needle {
            Needle::Word { seen, runs, whole, .. } => Some(Meaning::Word {
                slot,
                view: text.view,
                seen: seen.clone(),
                whole: *whole,
                runs: !runs.is_empty(),
            }),
            Needle::Pattern { .. } => None,
        };
        let each = |slot: &usize| (format!("text {slot} {:?} {key}", text.view), Some(*slot), meaning(*slot));
        let each = text.slots.iter().map(each);
        Some(each.collect())
    };
    let all: Vec<_> = text.needles.iter().map(found).collect();
    let slots = sorted(&text.slots);
    let none = || format!("no text {slots:?}");
    let rest = text.slots.iter().filter_map(|slot| {
        later(text.bank.as_ref(), "text", format_args!("{slot} {:?} {}", text.view, text.whole), *slot)
    });
    if text.needed == 1 {
        let each = all.into_iter().flatten().flatten().chain(rest);
        return one_of(each.collect(), positive, none(), atoms);
    }
    if let Some(bank) = &text.bank {
        // How many there will be to be found nobody knows.
        let key = format!("{} of bank {bank} in {slots:?} {:?} {}", text.needed, text.view, text.whole);
        let only = <[usize; 1]>::try_from(slots).ok().map(|[slot]| slot);
        return opaque(key, only, positive, atoms);
    }
    let possible = all.iter().flatten().count();
    if possible < text.needed {
        return if positive { Tree::never() } else { opaque(none(), None, false, atoms) };
    }
    if text.needed == all.len() {
        let each = all.into_iter().flatten().map(|keys| one_of(keys, positive, none(), atoms));
        return join(positive, each.collect::<Vec<_>>());
    }
    let each: Vec<Key> = all.into_iter().flatten().flatten().collect();
    let keys: BTreeSet<_> = each.iter().map(|(key, ..)| key).collect();
    let only = <[usize; 1]>::try_from(slots).ok().map(|[slot]| slot);
    let of = |needed: usize| format!("{needed} of {keys:?}");
    if !positive {
        return opaque(of(text.needed), only, false, atoms);
    }
    // Where so many are, fewer are as well, and one is.
    let fewer = (2.max(text.needed.saturating_sub(FEWER))..=text.needed).map(of);
    let fewer: Vec<_> = fewer.map(|key| opaque(key, only, true, atoms)).collect();
    Tree::all(fewer.into_iter().chain([one_of(each, true, String::new(), atoms)]))
}
