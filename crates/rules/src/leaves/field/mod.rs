//! The condition `field`: comparisons of a field with constants, by the type of the field.

mod test;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use smallvec::SmallVec;
use tidegate_schemas::ids::{ItemKey, Millis};

use self::test::{Operand, Test};
use super::{
    constraint::{Constraint, Subject},
    context::Context,
    input::EvalInput,
    kind::{DocumentLeaf, LeafKind, TYPICAL_TEXT_BYTES, guess},
    op::Op,
};
use crate::{
    error::{excerpt, quote},
    facts::Lookback,
    fields::{Element, Lower, Values},
    item::Value,
    limits::{OutOfSteps, Steps},
    logic::{ConditionResult, Mask},
    reader::Reader,
    vocabulary::{Container, Kind},
};

/// Comparisons of one field; all must hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    pub path: String,
    /// Quantifier over the values of a list or map. Without it, one value must meet the positive tests, and all values must
    /// meet the negated ones.
    pub of: Option<Quantifier>,
    /// Compares texts in lower case.
    pub ignore_case: bool,
    pub tests: Vec<(Op, Json)>,
    /// Required container, if the comparison has another meaning for others.
    pub container: Option<Container>,
}

/// Quantifier over several values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantifier {
    Any,
    All,
    None,
}

#[derive(Debug)]
pub(crate) struct FieldLeaf {
    slot: usize,
    /// True if the field holds one value in all item types of the rule.
    is_single: bool,
    of: Option<Quantifier>,
    ignore_case: bool,
    tests: Vec<Test>,
    /// Form in explanations: shortened, and with a list of one value written as the value.
    compared: Map<String, Json>,
}

/// Values of which a field must have one for its comparison to pass.
pub(crate) enum SearchedValues<'l> {
    Texts(Vec<&'l str>),
    Related(Vec<&'l ItemKey>),
    Boolean(bool),
    /// Ends included, and approximate: a float also stands for its neighbours.
    Ranges(Vec<(f64, f64)>),
}

/// Estimated share of numbers in a range, by whether both ends are finite.
pub(crate) fn estimate_share(low: f64, high: f64) -> f32 {
    match (low.is_finite(), high.is_finite()) {
        (true, true) if low >= high => 0.02,
        (true, true) => 0.15,
        _ => 0.3,
    }
}

/// Maximum number of values or operands that an explanation lists.
pub(super) const MAX_SHOWN_VALUES: usize = 8;

impl LeafKind for FieldLeaf {
    type Spec = Comparison;
    type Explained = FieldExplained;

    fn paths(spec: &Comparison, _context: &Context<'_>) -> Vec<String> {
        vec![spec.path.clone()]
    }

    fn compile(comparison: Comparison, context: &mut Context<'_>) -> Option<Self> {
        let (slot, kinds) = context.at("path", |c| c.resolve_slot(&comparison.path))?;
        let (first, kind) = *kinds.first()?;
        if let Some(required_container) = comparison.container
            && context.resolve_container(&comparison.path)? != required_container
        {
            let (path, detail) = (
                quote(&comparison.path),
                match required_container {
                    Container::One => "holds several values: use `exists` or `all`",
                    Container::List | Container::Map => "is no list",
                },
            );
            context.at("path", |c| c.error("type", format!("{path} {detail}")));
            return None;
        }
        // `exists` is independent of types, so they may differ between item types if it is the only test.
        let compares = comparison.tests.iter().any(|(op, _)| *op != Op::Exists);
        if let Some((other, different)) = kinds.iter().find(|(_, other)| *other != kind).filter(|_| compares)
        {
            let path = quote(&comparison.path);
            let (kind, different) = (kind.name(), different.name());
            context.at("path", |c| {
                c.error(
                    "type",
                    format!("{path} is {kind} in {first} and {different} in {other}: name the item types"),
                );
            });
            return None;
        }
        if comparison.ignore_case && kind != Kind::Text {
            context.at("ignore_case", |c| {
                c.error("type", format!("the field is {}: only texts have a case", kind.name()));
            });
            return None;
        }
        let mut compared = Map::new();
        let mut tests = Vec::with_capacity(comparison.tests.len());
        for (op, operand) in &comparison.tests {
            let (shown_op, value) = simplify(*op, operand, &comparison.tests);
            compared.insert(shown_op.as_str().to_owned(), shorten(value, context.limits.excerpt_bytes));
            tests.push(
                context.at(op.as_str(), |c| Test::compile(*op, operand, kind, comparison.ignore_case, c)),
            );
        }
        if let Some(of) = comparison.of {
            compared.insert("of".to_owned(), serde_json::to_value(of).unwrap_or_default());
        }
        Some(Self {
            slot,
            is_single: context.is_single(&comparison.path),
            of: comparison.of,
            ignore_case: comparison.ignore_case,
            // All tests are compiled before failing, so that each reports its own error.
            tests: tests.into_iter().collect::<Option<_>>()?,
            compared,
        })
    }

    /// Collects the constraints of all tests for a single value. For a list, only tests that one and the same value must
    /// pass constrain a value.
    fn lint(&self, passes: bool) -> Vec<Constraint> {
        let slot = self.slot;
        let compares = self.tests.iter().any(|test| test.op != Op::Exists);
        let mut constraints: Vec<_> = self
            .tests
            .iter()
            .filter(|test| test.op == Op::Exists && (passes || self.tests.len() == 1))
            .map(|test| Constraint::presence(slot, test.expects_presence == passes))
            .collect();
        if compares && !constraints.iter().any(|constraint| constraint.subject == Subject::Presence(slot)) {
            // A comparison that has failed also had a value to compare.
            constraints.push(Constraint::presence(slot, true));
        }
        let constrains_one_value = match self.of {
            None | Some(Quantifier::Any | Quantifier::All) if self.is_single => {
                passes || self.tests.len() == 1
            }
            None => passes && self.tests.iter().any(|test| !test.is_negated() && test.op != Op::Exists),
            Some(Quantifier::Any) => passes,
            Some(Quantifier::All | Quantifier::None) => false,
        };
        if constrains_one_value {
            let value_constraints = self.tests.iter().filter_map(|test| {
                let (subject, allowed) = test.constraint(slot, self.ignore_case)?;
                let subject = if self.is_single { subject } else { Subject::OfList };
                let constraint = Constraint { subject, allowed };
                Some(if passes { constraint } else { constraint.negated() })
            });
            constraints.extend(value_constraints);
        }
        constraints
    }

    fn witness(&self) -> Option<f32> {
        self.searched_values().map(|searched| match searched {
            SearchedValues::Texts(texts) => 0.02 * guess(texts.len()),
            SearchedValues::Related(keys) => 0.001 * guess(keys.len()),
            SearchedValues::Boolean(_) => 0.5,
            SearchedValues::Ranges(ranges) => {
                ranges.iter().map(|(low, high)| estimate_share(*low, *high)).sum()
            }
        })
    }

    #[allow(clippy::cast_precision_loss, reason = "a guess")]
    fn cost(&self) -> f32 {
        2.0 + self.steps_for(TYPICAL_TEXT_BYTES) as f32
    }

    fn memory(&self) -> usize {
        self.tests.iter().map(Test::memory).sum()
    }

    fn evaluate(&self, input: &EvalInput<'_>, steps: &mut Steps) -> Result<Mask, OutOfSteps> {
        let Some(values) = &input.fields.slot(self.slot).values else {
            // An absent field decides `exists`, and makes every other test inapplicable.
            let absent = |test: &Test| match test.op {
                Op::Exists => Mask::from_bool(!test.expects_presence),
                _ => Mask::INAPPLICABLE,
            };
            return Ok(self.tests.iter().map(absent).fold(Mask::PASSED, Mask::and));
        };
        let lower = self.lower_texts(input, steps)?;
        steps
            .take(values.iter().map(|(_, value)| self.steps_for_value(value)).fold(0, u64::saturating_add))?;
        Ok(self.compare_values(values, lower, input.now))
    }

    /// Shows the values that decided the outcome, as far as the steps suffice.
    fn explain(
        &self,
        mask: Mask,
        _found_needles: Option<&[(u32, u32)]>,
        input: &EvalInput<'_>,
        steps: &mut Steps,
    ) -> FieldExplained {
        let length = input.limits.excerpt_bytes;
        let values = input.fields.slot(self.slot).values.as_deref().filter(|_| !mask.is_empty());
        let value = values.map(|values| match values {
            [(_, value)] => value_to_json(value, length),
            values => self
                .deciding_values(values, mask, input, steps)
                .map(|value| value_to_json(value, length))
                .collect(),
        });
        FieldExplained {
            outcome: mask.result(),
            path: input.fields.path(self.slot).to_owned(),
            compared: self.compared.clone(),
            value,
        }
    }
}

impl DocumentLeaf for FieldLeaf {
    const KEY: &'static str = "field";

    fn parse(reader: &mut Reader<'_>, value: &Json) -> Option<Comparison> {
        reader.comparison(value)
    }
}

impl Reader<'_> {
    fn comparison(&mut self, value: &Json) -> Option<Comparison> {
        let mut keys = vec!["path", "of", "ignore_case"];
        keys.extend(Op::ALL.iter().map(|op| op.as_str()));
        let object = self.object(value, &keys)?;
        let path = self.required(object, "path", |r, v| r.text(v).map(str::to_owned));
        let mut tests = Vec::new();
        let mut complete = true;
        for op in Op::ALL.iter().copied() {
            let name = op.as_str();
            let Some(operand) = object.get(name).filter(|operand| !operand.is_null()) else { continue };
            let result = self.at(name, |r| match op {
                Op::In | Op::NotIn => {
                    let count = r.non_empty_list(operand, Self::operand)?.len();
                    r.count_words(count)
                }
                Op::StartsWith | Op::EndsWith | Op::Contains if operand.is_array() => {
                    let count = r.non_empty_list(operand, Self::part)?.len();
                    r.count_words(count)
                }
                Op::StartsWith | Op::EndsWith | Op::Contains => r.part(operand),
                Op::Exists => r.boolean(operand).map(|_| ()),
                _ => r.operand(operand),
            });
            complete &= result.is_some();
            tests.push((op, operand.clone()));
        }
        let of = self.optional(object, "of", |r, v| {
            r.name(v, &[("any", Quantifier::Any), ("all", Quantifier::All), ("none", Quantifier::None)])
        });
        let ignore_case = self.optional(object, "ignore_case", Self::boolean).unwrap_or_default();
        if let Some(name) = Op::ALL.iter().map(|op| op.as_str()).find(|name| object.contains_key(*name))
            && tests.is_empty()
        {
            let detail = "the operand is null: use `exists: false` to ask for absence";
            return self.at(name, |r| r.error("type", detail));
        }
        if tests.is_empty() {
            let ops: Vec<_> = Op::ALL.iter().map(|op| op.as_str()).collect();
            return self.error(
                "shape",
                format!("the condition has no operator: expected one or more of {}", ops.join(", ")),
            );
        }
        let contradicts = tests.len() > 1 && tests.contains(&(Op::Exists, Json::Bool(false)));
        if contradicts {
            self.error::<()>("shape", "`exists: false` excludes the other operators: remove them");
            complete = false;
        }
        if of.is_some() && tests.iter().any(|(op, _)| *op == Op::Exists) {
            return self.error("shape", "`of` cannot be combined with `exists`: remove it");
        }
        complete.then_some(())?;
        Some(Comparison { path: path?, of, ignore_case, tests, container: None })
    }

    /// Checks a part of a text. Every text contains the empty one, so such a test would be useless.
    fn part(&mut self, value: &Json) -> Option<()> {
        match value.as_str() {
            Some("") => self.error("empty", "the text is empty"),
            _ => self.operand(value),
        }
    }

    fn operand(&mut self, value: &Json) -> Option<()> {
        match value {
            Json::Null => self.error("type", "the operand is null: use `exists: false` to ask for absence"),
            Json::Array(_) => self.error("type", "expected one value: use `in` for several"),
            Json::String(text) if text.len() > self.limits.word_bytes => {
                self.error("limit", format!("the text is longer than {} bytes", self.limits.word_bytes))
            }
            Json::Object(object) => {
                let related = object.len() == 2
                    && ["typeId", "id"].iter().all(|key| object.get(*key).is_some_and(Json::is_string));
                let relative = object.len() == 1
                    && ["ago", "ahead"].iter().any(|key| {
                        object
                            .get(*key)
                            .and_then(Json::as_str)
                            .is_some_and(|span| Lookback::parse(span).is_some())
                    });
                if related || relative {
                    return Some(());
                }
                self.error(
                    "type",
                    "expected a mapping with typeId and id, or with ago or ahead and a span such as 30d",
                )
            }
            _ => Some(()),
        }
    }
}

impl FieldLeaf {
    pub(crate) fn slot(&self) -> usize {
        self.slot
    }

    /// Steps for one value, or for a text of this length in bytes.
    pub(crate) fn steps_for(&self, length: usize) -> u64 {
        let text = |test: &Test| test.operands.first().is_some_and(|operand| operand.text().is_some());
        self.tests.iter().map(|test| test.steps_for(text(test).then_some(length))).sum()
    }

    /// Values by which the comparison can be indexed. `None` if it may also pass without a particular value.
    pub(crate) fn searched_values(&self) -> Option<SearchedValues<'_>> {
        if self.ignore_case || matches!(self.of, Some(Quantifier::All | Quantifier::None)) {
            return None;
        }
        let equal = self.tests.iter().filter(|test| matches!(test.op, Op::Eq | Op::In));
        // The shortest list of values nominates the rule for the fewest items.
        if let Some(test) = equal.min_by_key(|test| test.operands.len()) {
            return match test.operands.first()? {
                // A list of both booleans accepts every boolean, so an index would reject no item.
                Operand::Boolean(_) if test.operands.len() > 1 => None,
                Operand::Boolean(boolean) => Some(SearchedValues::Boolean(*boolean)),
                Operand::Text(_) => {
                    Some(SearchedValues::Texts(test.operands.iter().filter_map(Operand::text).collect()))
                }
                Operand::Related(_) => {
                    Some(SearchedValues::Related(test.operands.iter().filter_map(Operand::related).collect()))
                }
                // A relative instant differs from item to item, so it cannot be indexed.
                _ if test.operands.iter().any(|operand| matches!(operand, Operand::Relative(_))) => None,
                Operand::Number(_) | Operand::Datetime(_) | Operand::Relative(_) => {
                    let points = test.operands.iter().filter_map(Operand::to_f64);
                    Some(SearchedValues::Ranges(points.map(|point| (point, point)).collect()))
                }
            };
        }
        let (mut low, mut high) = (f64::NEG_INFINITY, f64::INFINITY);
        for test in &self.tests {
            let end = test.operands.first().and_then(Operand::to_f64);
            match (test.op, end) {
                (Op::Gt | Op::Gte, Some(end)) => low = low.max(end),
                (Op::Lt | Op::Lte, Some(end)) => high = high.min(end),
                _ => {}
            }
        }
        let bounded = low > f64::NEG_INFINITY || high < f64::INFINITY;
        bounded.then(|| SearchedValues::Ranges(vec![(low, high)]))
    }

    /// Values for which the comparison fails. `None` if they form no single range, or if it also fails without a value.
    pub(crate) fn failing_values(&self) -> Option<SearchedValues<'_>> {
        let [Test { op, operands, .. }] = &*self.tests else { return None };
        let [operand] = &**operands else { return None };
        if !self.is_single || self.ignore_case || matches!(self.of, Some(Quantifier::All | Quantifier::None))
        {
            return None;
        }
        let range = |low, high| Some(SearchedValues::Ranges(vec![(low, high)]));
        match (op, operand) {
            (Op::Eq | Op::In, Operand::Boolean(boolean)) => Some(SearchedValues::Boolean(!boolean)),
            (Op::Ne | Op::NotIn, Operand::Boolean(boolean)) => Some(SearchedValues::Boolean(*boolean)),
            (Op::Gt | Op::Gte, _) => range(f64::NEG_INFINITY, operand.to_f64()?),
            (Op::Lt | Op::Lte, _) => range(operand.to_f64()?, f64::INFINITY),
            _ => None,
        }
    }

    /// True if a value that is found in the index proves that the comparison passes.
    pub(crate) fn is_proved_by_lookup(&self) -> bool {
        let exact = |operand: &Operand| {
            matches!(operand, Operand::Text(_) | Operand::Boolean(_) | Operand::Related(_))
        };
        let is_exact_test =
            |test: &Test| matches!(test.op, Op::Eq | Op::In) && test.operands.iter().all(exact);
        matches!(self.of, None | Some(Quantifier::Any))
            && !self.ignore_case
            // Further tests are not in the index, and would still have to be evaluated.
            && matches!(&*self.tests, [test] if is_exact_test(test))
    }

    /// Texts in lower case, if the comparison ignores case.
    fn lower_texts<'s>(
        &self,
        input: &'s EvalInput<'_>,
        steps: &mut Steps,
    ) -> Result<Option<&'s Lower<'s>>, OutOfSteps> {
        self.ignore_case.then(|| input.fields.lower_texts(self.slot, steps)).transpose()
    }

    fn steps_for_value(&self, value: &Value<'_>) -> u64 {
        let length = if let Value::Text(text) = value { Some(text.len()) } else { None };
        self.tests.iter().map(|test| test.steps_for(length)).fold(0, u64::saturating_add)
    }

    /// Positive tests must hold for one value, and negated tests for all values, unless `of` asks for another number.
    fn compare_values(&self, values: &Values<'_>, lower: Option<&Lower<'_>>, now: Millis) -> Mask {
        if self.tests.iter().any(|test| test.op == Op::Exists && !test.expects_presence) {
            return Mask::FAILED;
        }
        let (mut any_positive, mut all_negated, mut comparable, mut has_values) = (false, true, false, false);
        let (mut any_passes, mut all_pass) = (false, true);
        for (nth, (_, value)) in values.iter().enumerate() {
            has_values = true;
            let lower = lower.map(|lower| &*lower[nth]);
            let Some((positive, negated)) = self.test_value(value, lower, now) else { continue };
            comparable = true;
            any_passes |= positive && negated;
            all_pass &= positive && negated;
            any_positive |= positive;
            all_negated &= negated;
        }
        let compares = |negative: bool| {
            self.tests.iter().any(|test| test.op != Op::Exists && test.is_negated() == negative)
        };
        // Values of another kind cannot be compared, which differs from a failed comparison.
        if has_values && !comparable && (compares(true) || compares(false)) {
            return Mask::INAPPLICABLE;
        }
        Mask::from_bool(match self.of {
            None => (any_positive || !compares(false)) && all_negated,
            Some(Quantifier::Any) => any_passes,
            Some(Quantifier::All) => all_pass,
            Some(Quantifier::None) => !any_passes,
        })
    }

    /// Returns whether a value meets the positive and the negated tests. `None` if it cannot be compared.
    fn test_value(&self, value: &Value<'_>, lower: Option<&str>, now: Millis) -> Option<(bool, bool)> {
        let lower = lower.filter(|_| matches!(value, Value::Text(_))).map(Value::Text);
        let (value, mut positive, mut negative) = (lower.as_ref().unwrap_or(value), true, true);
        for test in self.tests.iter().filter(|test| test.op != Op::Exists) {
            let is_met = test.is_met_by(value, now)?;
            if test.is_negated() {
                negative &= is_met;
            } else {
                positive &= is_met;
            }
        }
        Some((positive, negative))
    }

    /// Values of a long list that decided the outcome. The complete list would hide them.
    fn deciding_values<'s, 'a>(
        &self,
        values: &'s [(Element<'a>, Value<'a>)],
        mask: Mask,
        input: &EvalInput<'_>,
        steps: &mut Steps,
    ) -> impl Iterator<Item = &'s Value<'a>> {
        // With `of: none` a value that meets the tests makes the condition fail, so the result is inverted.
        let deciding_result = (mask == Mask::PASSED) != (self.of == Some(Quantifier::None));
        let mut shown_values = SmallVec::<[_; MAX_SHOWN_VALUES]>::new();
        let lower = self.lower_texts(input, steps);
        for (nth, (_, value)) in values.iter().enumerate() {
            let Ok(lower) = &lower else { break };
            if shown_values.len() == MAX_SHOWN_VALUES || steps.take(self.steps_for_value(value)).is_err() {
                break;
            }
            let result = self.test_value(value, lower.map(|lower| &*lower[nth]), input.now);
            shown_values.extend(
                (result.is_some_and(|(positive, negated)| positive && negated) == deciding_result)
                    .then_some(value),
            );
        }
        shown_values.into_iter()
    }
}

pub(super) fn value_to_json(value: &Value<'_>, length: usize) -> Json {
    match value {
        Value::Text(text) => Json::from(excerpt(text, length)),
        Value::Number(number) => number.to_json(),
        Value::Boolean(boolean) => Json::from(*boolean),
        Value::Datetime(instant) => Json::from(instant.iso()),
        Value::Related { type_id, id } => {
            serde_json::json!({"typeId": excerpt(type_id, length), "id": excerpt(id, length)})
        }
        // Containers hold scalars only.
        Value::List(_) | Value::Map(_) => Json::Null,
    }
}

/// Rewrites a comparison with a list of one value as one with the value, unless that is already among the tests.
fn simplify<'j>(op: Op, operand: &'j Json, tests: &[(Op, Json)]) -> (Op, &'j Json) {
    let Some([value]) = operand.as_array().map(Vec::as_slice) else { return (op, operand) };
    let single = match op {
        Op::In => Op::Eq,
        Op::NotIn => Op::Ne,
        same_op => return (same_op, value),
    };
    if tests.iter().any(|(other, _)| *other == single) { (op, operand) } else { (single, value) }
}

fn shorten(operand: &Json, length: usize) -> Json {
    match operand {
        Json::String(text) => Json::from(excerpt(text, length)),
        Json::Array(list) => list.iter().take(MAX_SHOWN_VALUES).map(|entry| shorten(entry, length)).collect(),
        scalar => scalar.clone(),
    }
}

/// Explanation of a field comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FieldExplained {
    pub outcome: ConditionResult,
    pub path: String,
    pub compared: Map<String, Json>,
    /// Value of the item; for a list, the values that decided. Absent if the field is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Json>,
}
