//! Evaluates parsed rules plainly, one condition after the other. It shares only the parsed document and the shape of the
//! outcome with the engine.

pub(crate) mod around;
mod fields;
mod formulas;
mod logic;
mod numbers;
mod places;
mod texts;
mod viewed;

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value as Json;
use tidegate_rules::{
    Bank, ConditionResult, Explained, Fields, Item, Kind, Limits, Match, Need, Number, Outcome, RuleFailure,
    RuleInfo, Value,
    leaves::{LeafSpec, geo::GeoSource, text::Search},
    syntax::{Condition, Rule, Status, Window},
};
use tidegate_schemas::banks::BankKind;

use self::{
    around::{Around, FactCondition, skipped_or},
    logic::{Possible, condition_of, tree, walk},
};
use ConditionResult::{Errored as Failing, Failed, Passed, Skipped};

pub(crate) struct Interpreter<'a> {
    pub(crate) rules: &'a [Rule],
    pub(crate) limits: &'a Limits,
    /// Kinds of the item's fields.
    pub(crate) kinds: &'a BTreeMap<String, Kind>,
    pub(crate) item: &'a Item<'a>,
    pub(crate) around: &'a Around,
    pub(crate) windows: &'a [Window],
    pub(crate) banks: &'a [Bank],
}

/// Results of leaves and uses by kind, and number of merged needs.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) leaves: BTreeMap<String, BTreeMap<&'static str, u64>>,
    /// Number of needs that raised the bound of an earlier one.
    pub(crate) raised: u64,
}

impl Tally {
    fn add(&mut self, kind: String, outcome: ConditionResult) {
        let name = match outcome {
            Passed => "passed",
            Failed => "failed",
            _ => "neither",
        };
        *self.leaves.entry(kind).or_default().entry(name).or_default() += 1;
    }
}

struct Leaf<'r> {
    condition: &'r Condition,
    /// Outcome without a look-up.
    alone: ConditionResult,
    asking: Option<FactCondition>,
}

impl Leaf<'_> {
    fn verdict(&self) -> ConditionResult {
        self.asking.as_ref().map_or(self.alone, |asking| asking.verdict)
    }

    fn possible(&self) -> Possible {
        self.asking.as_ref().map_or_else(|| vec![self.alone], |asking| asking.possible.clone())
    }
}

impl Interpreter<'_> {
    /// Returns the outcome and the needs.
    pub(crate) fn run(&self, tally: &mut Tally) -> (Outcome, Vec<Need>) {
        let uncounted = self.entries().1;
        let mut outcome = Outcome { truncated: self.truncated(), uncounted, ..Outcome::default() };
        let mut collected_needs: Vec<Need> = Vec::new();
        for rule in self.rules.iter().filter(|rule| self.concerns(rule)) {
            let mut rule_leaves = Vec::new();
            self.collect_leaves(&rule.when, None, &mut rule_leaves, tally);
            let mut reached = vec![false; rule_leaves.len()];
            let possible = walk(self.rules, &rule.when, &mut 0, &mut |nth| {
                reached[nth] = true;
                rule_leaves[nth].possible()
            });
            if !possible.contains(&Passed) {
                continue;
            }
            // A rule that passes with any facts needs none.
            let asks = possible != [Passed];
            let mut reason = None;
            let explained: Vec<Explained> = rule_leaves
                .iter()
                .zip(&reached)
                .map(|(leaf, reached)| match &leaf.asking {
                    Some(asking) if asks && *reached => {
                        asking
                            .needs
                            .iter()
                            .for_each(|need| tally.raised += u64::from(want(&mut collected_needs, need)));
                        reason = reason.take().or(asking.reason.clone());
                        let cut_name = self.cut_text(leaf.condition);
                        outcome.truncated.extend(cut_name.filter(|name| !outcome.truncated.contains(name)));
                        asking.explained.clone()
                    }
                    _ if self.ask(leaf.condition).is_some() => {
                        let outcome = skipped_or(leaf.alone, *reached, leaf.asking.is_some());
                        self.blank(leaf.condition, outcome)
                    }
                    _ => self.explain(leaf.condition, leaf.alone),
                })
                .collect();
            let verdicts = walk(self.rules, &rule.when, &mut 0, &mut |nth| match explained[nth].outcome() {
                Skipped => rule_leaves[nth].possible(),
                verdict => vec![verdict],
            });
            match verdicts.as_slice() {
                [Passed] => outcome.matched.push(Match {
                    info: Arc::new(RuleInfo {
                        rule: rule.key.clone(),
                        name: rule.name.clone(),
                        version: "1".to_owned(),
                        status: rule.status,
                        policies: rule.policies.clone(),
                        actions: rule.actions.clone(),
                    }),
                    tree: tree(self.rules, &rule.when, &mut explained.into_iter()),
                }),
                [Failing] => outcome.errored.push(RuleFailure {
                    rule: rule.key.clone(),
                    version: "1".to_owned(),
                    status: rule.status,
                    reason: reason.expect("only a fact can fail"),
                }),
                _ => {}
            }
        }
        (outcome, collected_needs)
    }

    /// Evaluates each condition of a rule, independent of the others.
    #[allow(dead_code, reason = "the bench asks for outcomes only")]
    pub(crate) fn begin_explanation(&self, rule: &Rule) -> Explained {
        let mut rule_leaves = Vec::new();
        self.collect_leaves(&rule.when, None, &mut rule_leaves, &mut Tally::default());
        let explained: Vec<_> = rule_leaves
            .into_iter()
            .map(|leaf| match leaf.asking {
                Some(asking) => asking.explained,
                None if self.ask(leaf.condition).is_some() => self.blank(leaf.condition, leaf.alone),
                None => self.explain(leaf.condition, leaf.alone),
            })
            .collect();
        tree(self.rules, &rule.when, &mut explained.into_iter())
    }

    fn concerns(&self, rule: &Rule) -> bool {
        rule.status != Status::Archived
            && rule.on.contains(&self.item.on)
            && rule.expires_at.is_none_or(|end| end > self.item.now)
            && self.speaks_of(rule)
    }

    pub(crate) fn speaks_of(&self, rule: &Rule) -> bool {
        rule.item_types.is_empty() || rule.item_types.contains(self.item.type_id)
    }

    /// In the order of the plan's paths: by their first mention in any rule.
    fn truncated(&self) -> Vec<String> {
        let mut mentioned = Vec::new();
        let mut searched = Vec::new();
        for window in self.windows {
            mentioned.extend(window.by.iter().chain(&window.measured).cloned());
            if let Some(condition) = &window.condition {
                paths(self.rules, condition, &mut |path, _| mentioned.push(path));
            }
        }
        for rule in self.rules {
            let speaks = self.speaks_of(rule) && rule.status != Status::Archived;
            paths(self.rules, &rule.when, &mut |path, text| {
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
            let values = self.values(path).unwrap_or_default();
            let bytes: usize = values
                .iter()
                .map(|(_, value)| match value {
                    Value::Text(text) => texts::bytes(text, self.is_address(path)),
                    _ => 0,
                })
                .sum();
            bytes > self.limits.text_bytes
        });
        searched
    }

    /// Collects the leaves of a condition below `parent`, including those of the rules that it uses.
    fn collect_leaves<'r>(
        &'r self,
        condition: &'r Condition,
        parent: Option<&str>,
        leaves: &mut Vec<Leaf<'r>>,
        tally: &mut Tally,
    ) {
        let (kinds, alone) = match condition {
            Condition::All(inner) => {
                return inner.iter().for_each(|inner| self.collect_leaves(inner, Some("all"), leaves, tally));
            }
            Condition::Any(inner) => {
                return inner.iter().for_each(|inner| self.collect_leaves(inner, Some("any"), leaves, tally));
            }
            Condition::Not(inner) => return self.collect_leaves(inner, Some("not"), leaves, tally),
            Condition::Expr(inner) => return self.collect_leaves(inner, parent, leaves, tally),
            Condition::Rule(key) => {
                let (used, first) = (condition_of(self.rules, key), leaves.len());
                self.collect_leaves(used, None, leaves, tally);
                let outcome =
                    walk(self.rules, used, &mut 0, &mut |nth| vec![leaves[first + nth].verdict()])[0];
                let below = parent.map(|parent| format!("rule below {parent}"));
                let chain = uses(used).then(|| "rule that uses rules".to_owned());
                let kinds = ["rule".to_owned()].into_iter().chain(below).chain(chain);
                return kinds.for_each(|kind| tally.add(kind, outcome));
            }
            Condition::Leaf(LeafSpec::Formula(formula)) => {
                (vec!["formula".to_owned()], self.formula(formula).outcome())
            }
            Condition::Leaf(LeafSpec::Text(text)) => {
                let kind = match &text.search {
                    Search::AnyOf { whole_word: false, .. } => "any_of",
                    Search::AnyOf { whole_word: true, .. } => "words",
                    Search::AllOf { .. } => "all_of",
                    Search::Regex(_) => "regex",
                    Search::Bank { bank, .. } => match self.bank(bank).kind {
                        BankKind::Regex => "regex bank",
                        _ => "text bank",
                    },
                };
                (vec![kind.to_owned(), format!("view {:?}", text.view)], self.text(text))
            }
            Condition::Leaf(LeafSpec::Field(field)) => {
                (field.tests.iter().map(|(op, _)| format!("{op:?}")).collect(), self.field(field))
            }
            Condition::Leaf(LeafSpec::Strikes(_)) => (vec!["strikes".to_owned()], Failed),
            Condition::Leaf(LeafSpec::Count(_)) => (vec!["count".to_owned()], Failed),
            Condition::Leaf(LeafSpec::Media(media)) => {
                let kind = if media.states.is_empty() { "media" } else { "media state" };
                (vec![kind.to_owned()], Failed)
            }
            Condition::Leaf(LeafSpec::Score(_)) => (vec!["score".to_owned()], Failed),
            Condition::Leaf(LeafSpec::ModelText(_)) => (vec!["model text".to_owned()], Failed),
            Condition::Leaf(LeafSpec::Geo(geo)) => {
                let kind = match geo.source {
                    GeoSource::Hashes(_) => "geohash",
                    GeoSource::Pair { .. } => "latitude and longitude",
                };
                let bank = geo.bank.as_ref().map(|_| "geo bank".to_owned());
                (bank.into_iter().chain([kind.to_owned()]).collect(), self.geo(geo).outcome())
            }
            Condition::Leaf(LeafSpec::Domain(domain)) => {
                let bank = domain.bank.as_ref().map(|_| "domain bank".to_owned());
                (bank.into_iter().chain(["domain".to_owned()]).collect(), self.domain(domain).outcome())
            }
        };
        let (alone, asking) = match self.ask(condition) {
            None => (alone, None),
            Some(Err(alone)) => (alone, None),
            Some(Ok(asking)) => (alone, Some(asking)),
        };
        let leaf = Leaf { condition, alone, asking };
        kinds.into_iter().for_each(|kind| tally.add(kind, leaf.verdict()));
        leaves.push(leaf);
    }

    /// Elements and values at a path. `None` if it is absent.
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

    /// True if each text at a path is one address.
    fn is_address(&self, path: &str) -> bool {
        let kind = |field: &str| self.kinds.get(field);
        let kind = kind(path).or_else(|| kind(path.rsplit_once('.')?.0));
        kind.is_some_and(|kind| matches!(kind, Kind::Url | Kind::Media))
    }

    fn explain(&self, condition: &Condition, alone: ConditionResult) -> Explained {
        match condition {
            Condition::Leaf(LeafSpec::Geo(geo)) => self.geo(geo),
            Condition::Leaf(LeafSpec::Domain(domain)) => self.domain(domain),
            Condition::Leaf(LeafSpec::Formula(formula)) => self.formula(formula),
            Condition::Leaf(LeafSpec::Text(text)) => self.text_explained(text, alone),
            Condition::Leaf(LeafSpec::Field(field)) => self.field_explained(field, alone),
            _ => unreachable!("only leaves are explained"),
        }
    }
}

/// True if a condition uses other rules.
fn uses(condition: &Condition) -> bool {
    match condition {
        Condition::All(inner) | Condition::Any(inner) => inner.iter().any(uses),
        Condition::Not(inner) => uses(inner),
        Condition::Rule(_) => true,
        Condition::Leaf(_) | Condition::Expr(_) => false,
    }
}

fn paths(rules: &[Rule], condition: &Condition, tell: &mut impl FnMut(String, bool)) {
    match condition {
        Condition::All(inner) | Condition::Any(inner) => {
            inner.iter().for_each(|inner| paths(rules, inner, tell));
        }
        Condition::Not(inner) | Condition::Expr(inner) => paths(rules, inner, tell),
        Condition::Rule(key) => paths(rules, condition_of(rules, key), tell),
        Condition::Leaf(LeafSpec::Formula(formula)) => {
            formula.body.paths().into_iter().for_each(|path| tell(path.to_owned(), false));
        }
        Condition::Leaf(LeafSpec::Text(text)) => {
            text.fields.iter().for_each(|field| tell(field.clone(), true));
        }
        Condition::Leaf(LeafSpec::Field(field)) => tell(field.path.clone(), false),
        // Only the order of searched texts matters here.
        Condition::Leaf(LeafSpec::Media(media)) => {
            media.fields.iter().for_each(|field| tell(field.clone(), false));
        }
        Condition::Leaf(LeafSpec::Geo(geo)) => match &geo.source {
            GeoSource::Hashes(fields) => fields.iter().for_each(|field| tell(field.clone(), false)),
            GeoSource::Pair { lat, lng } => [lat, lng].into_iter().for_each(|path| tell(path.clone(), false)),
        },
        Condition::Leaf(LeafSpec::Domain(domain)) => {
            domain.fields.iter().for_each(|field| tell(field.clone(), true));
        }
        Condition::Leaf(
            LeafSpec::Strikes(_) | LeafSpec::Count(_) | LeafSpec::Score(_) | LeafSpec::ModelText(_),
        ) => {}
    }
}

/// Adds a need. Of two counts under one key the larger bound is kept. Returns true if it was raised.
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

fn value_json(value: &Value<'_>, limits: &Limits) -> Json {
    match value {
        Value::Text(text) => Json::from(short(text, limits)),
        Value::Number(Number::Whole(whole)) => serde_json::from_str(&whole.to_string()).unwrap(),
        Value::Number(Number::Fraction(fraction)) => Json::from(*fraction),
        Value::Boolean(boolean) => Json::from(*boolean),
        Value::Datetime(at) => Json::from(at.iso()),
        Value::Related { type_id, id } => {
            serde_json::json!({"typeId": short(type_id, limits), "id": short(id, limits)})
        }
        Value::List(_) | Value::Map(_) => unreachable!("containers hold scalars"),
    }
}
