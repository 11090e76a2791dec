//! The plain reading of parsed rules: every condition of every rule, one after the other.
//!
//! It shares nothing with the engine but the parsed document and the shape of the outcome; it is never fast.

#[path = "around.rs"]
pub(crate) mod around;
#[path = "formulas.rs"]
mod formulas;
#[path = "places.rs"]
mod places;

use std::{cmp::Ordering, collections::BTreeMap, sync::LazyLock};

use regex::Regex;
use serde_json::{Map, Value as Json};
use tidegate_rules::{
    AllExplained, Bank, EntryName, Errored, Explained, FieldExplained, Fields, Hit, Item, Kind, Limits,
    Match, Need, NotExplained, Number, Outcome, TextExplained, Value, Verdict, Within,
    form::{Comparison, Condition, GeoSource, Of, Op, Rule, Search, Status, Text, View, Window},
};
use tidegate_schemas::{banks::BankKind, item_types::datetime};

use self::around::{Around, Asking, skipped_or};
use Verdict::{Errored as Failing, Failed, Inapplicable, Passed, Skipped};

pub(crate) struct Interpreter<'a> {
    pub(crate) rules: &'a [Rule],
    pub(crate) limits: &'a Limits,
    /// The kinds of the item's fields.
    pub(crate) kinds: &'a BTreeMap<String, Kind>,
    pub(crate) item: &'a Item<'a>,
    pub(crate) around: &'a Around,
    pub(crate) windows: &'a [Window],
    pub(crate) banks: &'a [Bank],
}

/// How often the leaves of a kind came to what, and needs were made one.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) leaves: BTreeMap<String, BTreeMap<&'static str, u64>>,
    /// How often a rule asked for more of what another one had asked for.
    pub(crate) raised: u64,
}

/// The outcomes that are still possible.
type Possible = Vec<Verdict>;

struct Leaf<'r> {
    condition: &'r Condition,
    /// What it comes to if nothing has to be asked.
    alone: Verdict,
    asking: Option<Asking>,
}

impl Leaf<'_> {
    fn possible(&self) -> Possible {
        self.asking.as_ref().map_or_else(|| vec![self.alone], |asking| asking.possible.clone())
    }
}

impl Interpreter<'_> {
    /// The outcome, and what had to be asked for it.
    pub(crate) fn run(&self, tally: &mut Tally) -> (Outcome, Vec<Need>) {
        let uncounted = self.entries().1;
        let mut outcome = Outcome { truncated: self.truncated(), uncounted, ..Outcome::default() };
        let mut needs: Vec<Need> = Vec::new();
        for rule in self.rules.iter().filter(|rule| self.concerns(rule)) {
            let mut leaves = Vec::new();
            self.leaves(&rule.when, &mut leaves, tally);
            let mut looked = vec![false; leaves.len()];
            let possible = walk(&rule.when, &mut 0, &mut |nth| {
                looked[nth] = true;
                leaves[nth].possible()
            });
            if !possible.contains(&Passed) {
                continue;
            }
            // A rule that has passed whatever the facts are does not ask.
            let asks = possible != [Passed];
            let mut reason = None;
            let explained: Vec<Explained> = leaves
                .iter()
                .zip(&looked)
                .map(|(leaf, looked)| match &leaf.asking {
                    Some(asking) if asks && *looked => {
                        asking
                            .needs
                            .iter()
                            .for_each(|need| tally.raised += u64::from(want(&mut needs, need)));
                        reason = reason.take().or(asking.reason.clone());
                        asking.shown.clone()
                    }
                    _ if self.ask(leaf.condition).is_some() => {
                        let outcome = skipped_or(leaf.alone, *looked, leaf.asking.is_some());
                        self.blank(leaf.condition, outcome)
                    }
                    _ => self.explain(leaf.condition, leaf.alone),
                })
                .collect();
            let decided = walk(&rule.when, &mut 0, &mut |nth| match explained[nth].outcome() {
                Skipped => leaves[nth].possible(),
                verdict => vec![verdict],
            });
            match decided.as_slice() {
                [Passed] => outcome.matched.push(Match {
                    rule: rule.key.clone(),
                    name: rule.name.clone(),
                    version: "1".to_owned(),
                    status: rule.status,
                    policies: rule.policies.clone(),
                    actions: rule.actions.clone(),
                    tree: tree(&rule.when, &mut explained.into_iter()),
                }),
                [Failing] => outcome.errored.push(Errored {
                    rule: rule.key.clone(),
                    version: "1".to_owned(),
                    status: rule.status,
                    reason: reason.expect("only a fact can fail"),
                }),
                _ => {}
            }
        }
        (outcome, needs)
    }

    fn concerns(&self, rule: &Rule) -> bool {
        rule.status != Status::Archived
            && rule.on.contains(&self.item.on)
            && rule.expires_at.is_none_or(|end| end > self.item.now)
            && self.speaks_of(rule)
    }

    fn speaks_of(&self, rule: &Rule) -> bool {
        rule.item_types.is_empty() || rule.item_types.contains(self.item.type_id)
    }

    /// In the order of the plan's paths, that is of their first mention by any rule.
    fn truncated(&self) -> Vec<String> {
        let mut mentioned = Vec::new();
        let mut searched = Vec::new();
        for window in self.windows {
            mentioned.extend(window.by.iter().chain(&window.measured).cloned());
            if let Some(condition) = &window.condition {
                paths(condition, &mut |path, _| mentioned.push(path));
            }
        }
        for rule in self.rules {
            let speaks = self.speaks_of(rule) && rule.status != Status::Archived;
            paths(&rule.when, &mut |path, text| {
                if !mentioned.contains(&path) {
                    mentioned.push(path.clone());
                }
                if speaks && text && !searched.contains(&path) {
                    searched.push(path);
                }
            });
        }
        searched.sort_by_key(|path| mentioned.iter().position(|known| known == path));
        searched.retain(|path| {
            let texts = self.values(path).unwrap_or_default();
            let bytes: usize = texts
                .iter()
                .map(|(_, value)| if let Value::Text(text) = value { text.len() } else { 0 })
                .sum();
            bytes > self.limits.text_bytes
        });
        searched
    }

    fn leaves<'r>(&self, condition: &'r Condition, leaves: &mut Vec<Leaf<'r>>, tally: &mut Tally) {
        let (kinds, alone) = match condition {
            Condition::All(inner) | Condition::Any(inner) => {
                return inner.iter().for_each(|inner| self.leaves(inner, leaves, tally));
            }
            Condition::Not(inner) | Condition::Expr(inner) => return self.leaves(inner, leaves, tally),
            Condition::Formula(formula) => (vec!["formula".to_owned()], self.formula(formula).outcome()),
            Condition::Text(text) => {
                let kind = match &text.search {
                    Search::AnyOf { whole: false, .. } => "any_of",
                    Search::AnyOf { whole: true, .. } => "words",
                    Search::AllOf { .. } => "all_of",
                    Search::Regex(_) => "regex",
                    Search::Bank { bank, .. } => match self.bank(bank).kind {
                        BankKind::Regex => "regex bank",
                        _ => "text bank",
                    },
                };
                (vec![kind.to_owned(), format!("view {:?}", text.view)], self.text(text))
            }
            Condition::Field(field) => {
                (field.tests.iter().map(|(op, _)| format!("{op:?}")).collect(), self.field(field))
            }
            Condition::Strikes(_) => (vec!["strikes".to_owned()], Failed),
            Condition::Count(_) => (vec!["count".to_owned()], Failed),
            Condition::Media(media) => {
                let kind = if media.states.is_empty() { "media" } else { "media state" };
                (vec![kind.to_owned()], Failed)
            }
            Condition::Score(_) => (vec!["score".to_owned()], Failed),
            Condition::Geo(geo) => {
                let kind = match geo.source {
                    GeoSource::Hashes(_) => "geohash",
                    GeoSource::Pair { .. } => "latitude and longitude",
                };
                let bank = geo.bank.as_ref().map(|_| "geo bank".to_owned());
                (bank.into_iter().chain([kind.to_owned()]).collect(), self.geo(geo).outcome())
            }
            Condition::Domain(domain) => {
                let bank = domain.bank.as_ref().map(|_| "domain bank".to_owned());
                (bank.into_iter().chain(["domain".to_owned()]).collect(), self.domain(domain).outcome())
            }
        };
        let (alone, asking) = match self.ask(condition) {
            None => (alone, None),
            Some(Err(alone)) => (alone, None),
            Some(Ok(asking)) => (alone, Some(asking)),
        };
        let name = match asking.as_ref().map_or(alone, |asking| asking.told) {
            Passed => "passed",
            Failed => "failed",
            _ => "neither",
        };
        for kind in kinds {
            *tally.leaves.entry(kind).or_default().entry(name).or_default() += 1;
        }
        leaves.push(Leaf { condition, alone, asking });
    }

    /// Element and value of everything at a path; `None` if it is absent.
    fn values(&self, path: &str) -> Option<Vec<(Option<String>, Value<'_>)>> {
        let fields: &dyn Fields = self.item.values;
        if let Some(value) = fields.field(path) {
            return Some(match value {
                Value::List(list) => {
                    list.into_iter().enumerate().map(|(nth, v)| (Some(nth.to_string()), v)).collect()
                }
                Value::Map(map) => map.into_iter().map(|(key, v)| (Some(key.to_owned()), v)).collect(),
                one => vec![(None, one)],
            });
        }
        let (field, inside) = path.rsplit_once('.')?;
        match (fields.field(field)?, inside) {
            (Value::Map(map), _) => {
                map.into_iter().find(|(key, _)| *key == inside).map(|(_, value)| vec![(None, value)])
            }
            (Value::Related { id, .. }, "id") => Some(vec![(None, Value::Text(id))]),
            (Value::Related { type_id, .. }, "typeId") => Some(vec![(None, Value::Text(type_id))]),
            _ => None,
        }
    }

    /// The texts that are searched: together no longer than the limit.
    fn texts(&self, path: &str) -> Vec<(Option<String>, String)> {
        let mut left = self.limits.text_bytes;
        let mut texts = Vec::new();
        for (element, value) in self.values(path).unwrap_or_default() {
            let Value::Text(text) = value else { continue };
            let mut cut = String::new();
            for character in text.chars() {
                if cut.len() + character.len_utf8() > left {
                    break;
                }
                cut.push(character);
            }
            left = if cut.len() < text.len() { 0 } else { left - cut.len() };
            if !cut.is_empty() || text.is_empty() {
                texts.push((element, cut));
            }
        }
        texts
    }

    fn text(&self, text: &Text) -> Verdict {
        if self.found(text).iter().flatten().count() >= text.min_distinct { Passed } else { Failed }
    }

    /// By needle: where it is first.
    fn found(&self, text: &Text) -> Vec<Option<Hit>> {
        let own = |needles: &[String]| needles.iter().map(|needle| (needle.clone(), None)).collect();
        let (needles, whole): (Vec<(String, Option<EntryName>)>, _) = match &text.search {
            Search::AnyOf { words, whole } | Search::AllOf { words, whole } => (own(words), Some(*whole)),
            Search::Regex(patterns) => (own(patterns), None),
            Search::Bank { bank, whole } => {
                let bank = self.bank(bank);
                let words = bank.kind == BankKind::Text;
                let usable = |value: &str| {
                    if words {
                        !Viewed::new(value, text.view).text.is_empty()
                    } else {
                        Regex::new(value).is_ok()
                    }
                };
                let usable = bank.entries.iter().filter(|entry| usable(&entry.value));
                let named = usable.map(|entry| {
                    (
                        entry.value.clone(),
                        Some(EntryName {
                            bank: bank.key.clone(),
                            id: entry.id.clone(),
                            labels: entry.labels.clone(),
                        }),
                    )
                });
                (named.collect(), words.then_some(*whole))
            }
        };
        // What is the same in the view counts once where things are counted.
        let counts = text.min_distinct > 1 && !matches!(text.search, Search::AllOf { .. });
        let same = |a: &String, b: &String| match whole {
            Some(_) => Viewed::new(a, text.view).letters() == Viewed::new(b, text.view).letters(),
            None => a == b,
        };
        let first =
            |nth: usize| !counts || !needles[..nth].iter().any(|before| same(&before.0, &needles[nth].0));
        (0..needles.len())
            .filter(|nth| first(*nth))
            .map(|nth| self.first(text, &needles[nth].0, whole, needles[nth].1.as_ref()))
            .collect()
    }

    fn first(
        &self,
        text: &Text,
        needle: &str,
        whole: Option<bool>,
        entry: Option<&EntryName>,
    ) -> Option<Hit> {
        for field in &text.fields {
            for (element, original) in self.texts(field) {
                let seen = Viewed::new(&original, text.view);
                let place = match whole {
                    Some(whole) => seen.word(&Viewed::new(needle, text.view), whole, &original),
                    None => {
                        Regex::new(needle).unwrap().find(&seen.text).map(|found| (found.start(), found.end()))
                    }
                };
                if let Some((start, end)) = place {
                    let (start, end) = seen.original(start, end, original.len());
                    return Some(Hit {
                        field: field.clone(),
                        element,
                        sought: short(needle, self.limits),
                        start,
                        end,
                        found: short(&original[start..end], self.limits),
                        entry: entry.cloned(),
                    });
                }
            }
        }
        None
    }

    fn kind(&self, path: &str) -> Option<Kind> {
        if let Some(kind) = self.kinds.get(path) {
            return Some(*kind);
        }
        let (field, _) = path.rsplit_once('.')?;
        self.kinds.get(field).map(|kind| if *kind == Kind::Related { Kind::Text } else { *kind })
    }

    fn field(&self, field: &Comparison) -> Verdict {
        let compared: Vec<_> = field.tests.iter().filter(|(op, _)| *op != Op::Exists).collect();
        let exists = field
            .tests
            .iter()
            .find(|(op, _)| *op == Op::Exists)
            .map(|(_, wanted)| wanted == &Json::Bool(true));
        let Some(values) = self.values(&field.path) else {
            return match (exists, compared.is_empty()) {
                (Some(true), _) => Failed,
                (Some(false), true) => Passed,
                _ => Inapplicable,
            };
        };
        if exists == Some(false) {
            return Failed;
        }
        let judged: Vec<_> = values.iter().map(|(_, value)| self.holds(field, value)).collect();
        let known: Vec<_> = judged.iter().flatten().collect();
        if !judged.is_empty() && known.is_empty() && !compared.is_empty() {
            return Inapplicable;
        }
        match field.of {
            Some(Of::Any) => return if known.iter().copied().any(meets) { Passed } else { Failed },
            Some(Of::All) => return if known.iter().copied().all(meets) { Passed } else { Failed },
            Some(Of::None) => return if known.iter().copied().any(meets) { Failed } else { Passed },
            None => {}
        }
        let asks = compared.iter().any(|(op, _)| !negative(*op));
        let some = known.iter().any(|(asked, _)| *asked) || !asks;
        if some && known.iter().all(|(_, denied)| *denied) { Passed } else { Failed }
    }

    /// Whether a value meets the comparisons, those that ask for it and those that deny it.
    fn holds(&self, field: &Comparison, value: &Value<'_>) -> Option<(bool, bool)> {
        let (mut asked, mut denied) = (true, true);
        for (op, operand) in field.tests.iter().filter(|(op, _)| *op != Op::Exists) {
            let kind = self.kind(&field.path)?;
            let one = |operand: &Json| self.compare(value, operand, kind, field.ignore_case);
            let parts = || operand.as_array().cloned().unwrap_or_else(|| vec![operand.clone()]);
            let part = |is: fn(&str, &str) -> bool| match value {
                Value::Text(text) => Some(parts().iter().any(|part| {
                    let part = part.as_str().unwrap();
                    if field.ignore_case { is(&lower(text), &lower(part)) } else { is(text, part) }
                })),
                _ => None,
            };
            let order = one(operand).and_then(|(order, _)| order);
            let holds = match op {
                Op::Eq => one(operand)?.1,
                Op::Ne => !one(operand)?.1,
                Op::In | Op::NotIn => {
                    let among = operand.as_array().unwrap();
                    let equal: Vec<_> =
                        among.iter().map(|operand| one(operand).map(|(_, equal)| equal)).collect();
                    (*equal.first()?)?;
                    equal.contains(&Some(true)) == (*op == Op::In)
                }
                Op::Lt => order? == Ordering::Less,
                Op::Lte => order? != Ordering::Greater,
                Op::Gt => order? == Ordering::Greater,
                Op::Gte => order? != Ordering::Less,
                Op::StartsWith => part(|text, part| text.starts_with(part))?,
                Op::EndsWith => part(|text, part| text.ends_with(part))?,
                Op::Contains => part(|text, part| text.contains(part))?,
                Op::Exists => true,
            };
            if negative(*op) {
                denied &= holds;
            } else {
                asked &= holds;
            }
        }
        Some((asked, denied))
    }

    /// How a value lies to an operand, and whether they are equal; `None` if they cannot be compared.
    fn compare(
        &self,
        value: &Value<'_>,
        operand: &Json,
        kind: Kind,
        ignore_case: bool,
    ) -> Option<(Option<Ordering>, bool)> {
        let ordered = |order: Option<Ordering>| (order, order == Some(Ordering::Equal));
        match (kind, value) {
            (Kind::Text | Kind::Geohash, Value::Text(text)) if ignore_case => {
                Some((None, lower(operand.as_str()?) == lower(text)))
            }
            (Kind::Text | Kind::Geohash, Value::Text(text)) => Some((None, operand.as_str()? == *text)),
            (Kind::Boolean, Value::Boolean(boolean)) => Some((None, operand.as_bool()? == *boolean)),
            (Kind::Number, Value::Number(number)) => {
                Some(ordered(number.partial_cmp(&Number::parse(&operand.to_string())?)))
            }
            (Kind::Datetime, Value::Datetime(at)) => {
                let span = |key: &str| Within::parse(operand[key].as_str()?).map(Within::millis);
                let instant = match (operand.as_str(), span("ago"), span("ahead")) {
                    (Some(text), ..) => datetime::parse(text)?.0,
                    (_, Some(ago), _) => self.item.now.0 - ago,
                    (.., ahead) => self.item.now.0 + ahead?,
                };
                Some(ordered(Some(at.0.cmp(&instant))))
            }
            (Kind::Related, Value::Related { type_id, id }) => {
                Some((None, operand["typeId"] == *type_id && operand["id"] == *id))
            }
            _ => None,
        }
    }

    fn explain(&self, condition: &Condition, alone: Verdict) -> Explained {
        match condition {
            Condition::Geo(geo) => self.geo(geo),
            Condition::Domain(domain) => self.domain(domain),
            Condition::Formula(formula) => self.formula(formula),
            Condition::Text(text) => {
                let hits = self.found(text).into_iter().flatten().take(self.limits.hits).collect();
                let (fields, view) = (text.fields.clone(), text.view);
                Explained::Text(TextExplained { outcome: alone, fields, view, hits })
            }
            Condition::Field(field) => {
                let value = self.values(&field.path).map(|values| match values.as_slice() {
                    [(_, one)] => shown(one, self.limits),
                    many => {
                        let decided = |value: &&Value<'_>| {
                            self.holds(field, value).is_some_and(|(asked, denied)| asked && denied)
                                == ((alone == Passed) != (field.of == Some(Of::None)))
                        };
                        let decided = many.iter().map(|(_, value)| value).filter(decided).take(8);
                        Json::Array(decided.map(|value| shown(value, self.limits)).collect())
                    }
                });
                let compared: Map<String, Json> = field
                    .tests
                    .iter()
                    .map(|(op, operand)| {
                        let name = serde_json::to_value(op).unwrap();
                        (name.as_str().unwrap().to_owned(), written(operand, self.limits))
                    })
                    .collect();
                let of = field.of.map(|of| ("of".to_owned(), serde_json::to_value(of).unwrap()));
                let compared = compared.into_iter().chain(of).collect();
                Explained::Field(FieldExplained { outcome: alone, path: field.path.clone(), compared, value })
            }
            _ => unreachable!("only leaves are explained"),
        }
    }
}

fn paths(condition: &Condition, tell: &mut impl FnMut(String, bool)) {
    match condition {
        Condition::All(inner) | Condition::Any(inner) => inner.iter().for_each(|inner| paths(inner, tell)),
        Condition::Not(inner) | Condition::Expr(inner) => paths(inner, tell),
        Condition::Formula(formula) => {
            formula.body.paths().into_iter().for_each(|path| tell(path.to_owned(), false));
        }
        Condition::Text(text) => text.fields.iter().for_each(|field| tell(field.clone(), true)),
        Condition::Field(field) => tell(field.path.clone(), false),
        // Only which texts come first matters here.
        Condition::Media(media) => media.fields.iter().for_each(|field| tell(field.clone(), false)),
        Condition::Geo(geo) => match &geo.source {
            GeoSource::Hashes(fields) => fields.iter().for_each(|field| tell(field.clone(), false)),
            GeoSource::Pair { lat, lng } => [lat, lng].into_iter().for_each(|path| tell(path.clone(), false)),
        },
        Condition::Domain(domain) => domain.fields.iter().for_each(|field| tell(field.clone(), true)),
        Condition::Strikes(_) | Condition::Count(_) | Condition::Score(_) => {}
    }
}

/// Adds a need; of two counts under one key the larger number is asked.
/// Whether it was larger than what had been asked.
fn want(needs: &mut Vec<Need>, need: &Need) -> bool {
    for known in needs.iter_mut() {
        if let (
            Need::Count { window, key, at_least },
            Need::Count { window: other, key: same, at_least: more },
        ) = (&mut *known, need)
            && window == other
            && key == same
        {
            let raised = *more > *at_least;
            *at_least = *more.max(at_least);
            return raised;
        }
    }
    if !needs.contains(need) {
        needs.push(need.clone());
    }
    false
}

fn meets((asked, denied): &(bool, bool)) -> bool {
    *asked && *denied
}

fn negative(op: Op) -> bool {
    matches!(op, Op::Ne | Op::NotIn)
}

fn lower(text: &str) -> String {
    Viewed::new(text, View::Lower).text
}

/// What a tree can come to; a part that decides alone ends the walk.
fn walk(condition: &Condition, next: &mut usize, leaf: &mut impl FnMut(usize) -> Possible) -> Possible {
    let (inner, deciding) = match condition {
        Condition::All(inner) => (inner, Failed),
        Condition::Any(inner) => (inner, Passed),
        Condition::Expr(inner) => return walk(inner, next, leaf),
        Condition::Not(inner) => return walk(inner, next, leaf).into_iter().map(negated).collect(),
        _ => {
            *next += 1;
            return leaf(*next - 1);
        }
    };
    let mut possible = vec![negated(deciding)];
    for condition in inner {
        if possible == [deciding] {
            *next += count(condition);
            continue;
        }
        let with = walk(condition, next, leaf);
        let mut combined = Vec::new();
        for a in &possible {
            for b in &with {
                let both = stronger(*a, *b, deciding);
                if !combined.contains(&both) {
                    combined.push(both);
                }
            }
        }
        possible = combined;
    }
    possible
}

fn count(condition: &Condition) -> usize {
    match condition {
        Condition::All(inner) | Condition::Any(inner) => inner.iter().map(count).sum(),
        Condition::Not(inner) | Condition::Expr(inner) => count(inner),
        _ => 1,
    }
}

fn negated(verdict: Verdict) -> Verdict {
    match verdict {
        Passed => Failed,
        Failed => Passed,
        other => other,
    }
}

/// What decides alone, else errored, else inapplicable, else the opposite of what decides.
fn stronger(a: Verdict, b: Verdict, deciding: Verdict) -> Verdict {
    let order = [deciding, Skipped, Failing, Inapplicable];
    order.into_iter().find(|verdict| a == *verdict || b == *verdict).unwrap_or_else(|| negated(deciding))
}

fn tree(condition: &Condition, leaves: &mut impl Iterator<Item = Explained>) -> Explained {
    let (inner, deciding) = match condition {
        Condition::All(inner) => (inner, Failed),
        Condition::Any(inner) => (inner, Passed),
        Condition::Expr(inner) => return tree(inner, leaves),
        Condition::Not(inner) => {
            let of = Box::new(tree(inner, leaves));
            return Explained::Not(NotExplained { outcome: negated(of.outcome()), of });
        }
        _ => return leaves.next().unwrap(),
    };
    let of: Vec<_> = inner.iter().map(|condition| tree(condition, leaves)).collect();
    let outcome = of.iter().map(Explained::outcome).fold(negated(deciding), |a, b| stronger(a, b, deciding));
    let node = AllExplained { outcome, of };
    if deciding == Failed { Explained::All(node) } else { Explained::Any(node) }
}

fn short(text: &str, limits: &Limits) -> String {
    let mut short = String::new();
    for character in text.chars() {
        if short.len() + character.len_utf8() > limits.excerpt_bytes {
            break;
        }
        short.push(character);
    }
    short
}

fn shown(value: &Value<'_>, limits: &Limits) -> Json {
    match value {
        Value::Text(text) => Json::from(short(text, limits)),
        Value::Number(Number::Whole(whole)) => Json::from(i64::try_from(*whole).unwrap()),
        Value::Number(Number::Fraction(fraction)) => Json::from(*fraction),
        Value::Boolean(boolean) => Json::from(*boolean),
        Value::Datetime(at) => Json::from(at.iso()),
        Value::Related { type_id, id } => {
            serde_json::json!({"typeId": short(type_id, limits), "id": short(id, limits)})
        }
        Value::List(_) | Value::Map(_) => unreachable!("containers hold scalars"),
    }
}

fn written(operand: &Json, limits: &Limits) -> Json {
    match operand {
        Json::String(text) => Json::from(short(text, limits)),
        Json::Array(list) => list.iter().take(8).map(|operand| written(operand, limits)).collect(),
        other => other.clone(),
    }
}

/// A text in a view: each of its letters, how often it stands there, and where in the original that is.
struct Viewed {
    view: View,
    text: String,
    /// By byte of the text.
    from: Vec<(usize, usize)>,
    times: Vec<u32>,
}

impl Viewed {
    fn new(original: &str, view: View) -> Self {
        let mut viewed = Self { view, text: String::new(), from: Vec::new(), times: Vec::new() };
        for (at, character) in original.char_indices() {
            let seen: String = match (view, character) {
                (View::Raw, _) => character.to_string(),
                (View::Lower, 'ς') => "σ".to_owned(),
                (View::Lower, _) => character.to_lowercase().collect(),
                (View::Folded | View::Collapsed, _) => folded(character),
            };
            for letter in seen.chars() {
                let (last, end) = (viewed.text.chars().next_back(), at + character.len_utf8());
                if view == View::Collapsed && last == Some(letter) {
                    for byte in viewed.text.len() - letter.len_utf8()..viewed.text.len() {
                        viewed.from[byte].1 = end;
                        viewed.times[byte] += 1;
                    }
                    continue;
                }
                viewed.from.extend(std::iter::repeat_n((at, end), letter.len_utf8()));
                viewed.times.extend(std::iter::repeat_n(1, letter.len_utf8()));
                viewed.text.push(letter);
            }
        }
        viewed
    }

    fn letters(&self) -> (&str, &[u32]) {
        (&self.text, &self.times)
    }

    fn word(&self, word: &Self, whole: bool, original: &str) -> Option<(usize, usize)> {
        let text = &self.text;
        let places =
            (0..text.len()).filter(|at| text.is_char_boundary(*at) && text[*at..].starts_with(&word.text));
        let mut places = places.map(|at| (at, at + word.text.len()));
        places.find(|(start, end)| {
            let often =
                self.times[*start..*end].iter().zip(&word.times).all(|(times, wanted)| times >= wanted);
            let (before, after) = if self.view <= View::Lower {
                (text[..*start].to_owned(), text[*end..].to_owned())
            } else {
                let (start, end) = self.original(*start, *end, original.len());
                let seen = |part: &str| part.chars().filter(|c| !folded(*c).is_empty()).collect::<String>();
                (seen(&original[..start]), seen(&original[end..]))
            };
            let beside = [before.chars().next_back(), after.chars().next()];
            often && (!whole || !beside.into_iter().flatten().any(in_word))
        })
    }

    /// The characters of the original that a part of the view came from.
    fn original(&self, start: usize, end: usize, length: usize) -> (usize, usize) {
        let from = self.from.get(start).map_or(length, |(from, _)| *from);
        (from, if start == end { from } else { self.from[end - 1].1 })
    }
}

/// Characters beyond ASCII that are folded to themselves.
const PLAIN: &str = "日本語👨👩👍🏽❤カ한국\u{1112}\u{1161}שمر";

/// What the characters that these tests use are folded to.
fn folded(character: char) -> String {
    let lower = match character {
        // The last one makes a half-width syllable voiced: a mark like others once it is wide.
        '\u{200b}' | '\u{200d}' | '\u{202e}' | '\u{2066}' | '\u{feff}' | '\u{fe0f}' | '\u{20e3}'
        | '\u{301}' | '\u{307}' | '\u{323}' | '\u{5b8}' | '\u{64e}' | 'ﾞ' => return String::new(),
        'ﬁ' => "fi".to_owned(),
        'ﬃ' => "ffi".to_owned(),
        'ｆ' | 'Ｆ' => "f".to_owned(),
        'ｒ' | 'Ｒ' => "r".to_owned(),
        'ｶ' => "カ".to_owned(),
        '🇩' => "d".to_owned(),
        'ß' | 'ẞ' => "ss".to_owned(),
        'Ü' | 'ü' => "u".to_owned(),
        'é' | 'É' | '🇪' => "e".to_owned(),
        'İ' | 'ı' => "i".to_owned(),
        'Σ' | 'σ' | 'ς' => "o".to_owned(),
        'Ａ' | 'ａ' => "a".to_owned(),
        _ if PLAIN.contains(character) => character.to_string(),
        _ => character.to_lowercase().collect(),
    };
    let ascii = |letter: char| match letter {
        'l' | '1' | '!' | '|' => 'i',
        '0' => 'o',
        '3' => 'e',
        '4' | '@' => 'a',
        '5' | '$' => 's',
        '7' | '+' => 't',
        '8' => 'b',
        '9' => 'g',
        other => other,
    };
    assert!(
        lower.chars().all(|one| one.is_ascii() || PLAIN.contains(one)),
        "{character} is new to these tests"
    );
    lower.chars().map(ascii).collect()
}

fn in_word(character: char) -> bool {
    static WORD: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^\w$").unwrap());
    WORD.is_match(character.encode_utf8(&mut [0; 4]))
}
