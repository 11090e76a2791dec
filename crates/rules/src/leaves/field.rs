//! Compares a field with fixed values.
//!
//! It does not coerce: values come as their item type reads them.

use std::cmp::Ordering;

use memchr::memmem;
use serde_json::{Map, Value as Json};
use tidegate_schemas::{
    ids::{ItemKey, Millis},
    item_types::datetime,
};

use crate::{
    compile::Context,
    derived::as_seen,
    evaluate::Mask,
    explain::{Explained, FieldExplained, excerpt},
    facts::Within,
    faults::shown,
    form::{Comparison, FINER, Of, Op, View},
    item::{Number, Value},
    leaves::Scene,
    limits::{Spent, Steps},
    vocabulary::{Container, Kind},
};

#[derive(Debug)]
pub(crate) struct FieldLeaf {
    slot: usize,
    /// The field holds one value in all item types of the rule.
    single: bool,
    of: Option<Of>,
    ignore_case: bool,
    tests: Vec<Test>,
    /// As written, shortened for explanations.
    written: Map<String, Json>,
}

#[derive(Debug)]
pub(crate) struct Test {
    pub(crate) op: Op,
    pub(crate) operands: Vec<Operand>,
    /// Of `exists`.
    pub(crate) wanted: bool,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Operand {
    Text(String),
    Number(Number),
    Boolean(bool),
    Datetime(Millis),
    /// So many milliseconds after the item came in.
    Relative(i64),
    Related(ItemKey),
}

/// Values of which a field must have one for its comparison to pass.
pub(crate) enum Sought<'l> {
    Texts(Vec<&'l str>),
    Related(Vec<&'l ItemKey>),
    Boolean(bool),
    /// Ends inside, and coarse: a float may stand for its neighbours.
    Ranges(Vec<(f64, f64)>),
}

/// Values of a list or listed operands that an explanation shows.
pub(super) const SHOWN: usize = 8;

impl FieldLeaf {
    pub(super) fn compile(comparison: &Comparison, context: &mut Context<'_>) -> Option<Self> {
        let (slot, kinds) = context.at("path", |c| c.path(&comparison.path))?;
        let (first, kind) = *kinds.first()?;
        if let Some(wanted) = comparison.container
            && context.container(&comparison.path)? != wanted
        {
            let (path, detail) = (
                shown(&comparison.path),
                match wanted {
                    Container::One => "holds several values; ask with `exists` or `all`",
                    Container::List | Container::Map => "is no list",
                },
            );
            context.at("path", |c| c.fault("type", format!("{path} {detail}")));
            return None;
        }
        let compares = comparison.tests.iter().any(|(op, _)| *op != Op::Exists);
        if let Some((other, different)) = kinds.iter().find(|(_, other)| *other != kind).filter(|_| compares)
        {
            let path = shown(&comparison.path);
            let (kind, different) = (kind.name(), different.name());
            context.at("path", |c| {
                c.fault(
                    "type",
                    format!("{path} is {kind} in {first} and {different} in {other}; name the item types"),
                );
            });
            return None;
        }
        if comparison.ignore_case && kind != Kind::Text {
            context
                .at("ignore_case", |c| c.fault("type", format!("the field is {}, and no text", kind.name())));
            return None;
        }
        let mut written = Map::new();
        let mut tests = Vec::with_capacity(comparison.tests.len());
        for (op, operand) in &comparison.tests {
            written.insert(op.name().to_owned(), shorten(operand, context.limits.excerpt_bytes));
            tests.push(
                context.at(op.name(), |c| Test::compile(*op, operand, kind, comparison.ignore_case, c)),
            );
        }
        if let Some(of) = comparison.of {
            written.insert("of".to_owned(), serde_json::to_value(of).unwrap_or_default());
        }
        Some(Self {
            slot,
            single: context.is_single(&comparison.path),
            of: comparison.of,
            ignore_case: comparison.ignore_case,
            tests: tests.into_iter().collect::<Option<_>>()?,
            written,
        })
    }

    pub(crate) fn slot(&self) -> usize {
        self.slot
    }

    pub(crate) fn is_single(&self) -> bool {
        self.single
    }

    pub(crate) fn of(&self) -> Option<Of> {
        self.of
    }

    pub(crate) fn ignores_case(&self) -> bool {
        self.ignore_case
    }

    pub(crate) fn tests(&self) -> &[Test] {
        &self.tests
    }

    /// Whether a text passes one of the tests.
    pub(crate) fn meets(&self, test: usize, text: &str) -> bool {
        self.tests[test].holds(&Value::Text(text), self.ignore_case, Millis(0)) == Some(true)
    }

    pub(crate) fn size(&self) -> usize {
        self.tests.iter().map(|test| 1 + test.operands.len()).sum()
    }

    /// What can be looked up. `None` if the comparison may also pass without any particular value.
    pub(crate) fn sought(&self) -> Option<Sought<'_>> {
        if self.ignore_case || matches!(self.of, Some(Of::All | Of::None)) {
            return None;
        }
        let equal = self.tests.iter().filter(|test| matches!(test.op, Op::Eq | Op::In));
        if let Some(test) = equal.min_by_key(|test| test.operands.len()) {
            return match test.operands.first()? {
                Operand::Boolean(_) if test.operands.len() > 1 => None,
                Operand::Boolean(boolean) => Some(Sought::Boolean(*boolean)),
                Operand::Text(_) => {
                    Some(Sought::Texts(test.operands.iter().filter_map(Operand::text).collect()))
                }
                Operand::Related(_) => {
                    Some(Sought::Related(test.operands.iter().filter_map(Operand::related).collect()))
                }
                // It is another instant for each item.
                _ if test.operands.iter().any(|operand| matches!(operand, Operand::Relative(_))) => None,
                Operand::Number(_) | Operand::Datetime(_) | Operand::Relative(_) => {
                    let points = test.operands.iter().filter_map(Operand::coarse);
                    Some(Sought::Ranges(points.map(|point| (point, point)).collect()))
                }
            };
        }
        let (mut low, mut high) = (f64::NEG_INFINITY, f64::INFINITY);
        for test in &self.tests {
            let end = test.operands.first().and_then(Operand::coarse);
            match (test.op, end) {
                (Op::Gt | Op::Gte, Some(end)) => low = low.max(end),
                (Op::Lt | Op::Lte, Some(end)) => high = high.min(end),
                _ => {}
            }
        }
        let bounded = low > f64::NEG_INFINITY || high < f64::INFINITY;
        bounded.then(|| Sought::Ranges(vec![(low, high)]))
    }

    /// What a value must be for the comparison to fail; `None` if that is no single range, or a missing value will do.
    pub(crate) fn opposite(&self) -> Option<Sought<'_>> {
        let [Test { op, operands, .. }] = &*self.tests else { return None };
        let [operand] = &**operands else { return None };
        if !self.single || self.ignore_case || matches!(self.of, Some(Of::All | Of::None)) {
            return None;
        }
        let range = |low, high| Some(Sought::Ranges(vec![(low, high)]));
        match (op, operand) {
            (Op::Eq | Op::In, Operand::Boolean(wanted)) => Some(Sought::Boolean(!wanted)),
            (Op::Ne | Op::NotIn, Operand::Boolean(wanted)) => Some(Sought::Boolean(*wanted)),
            (Op::Gt | Op::Gte, _) => range(f64::NEG_INFINITY, operand.coarse()?),
            (Op::Lt | Op::Lte, _) => range(operand.coarse()?, f64::INFINITY),
            _ => None,
        }
    }

    /// Whether one of the values sought is all that it takes to pass.
    pub(crate) fn is_looked_up(&self) -> bool {
        let exact = |operand: &Operand| {
            matches!(operand, Operand::Text(_) | Operand::Boolean(_) | Operand::Related(_))
        };
        let only = |test: &Test| matches!(test.op, Op::Eq | Op::In) && test.operands.iter().all(exact);
        matches!(self.of, None | Some(Of::Any))
            && !self.ignore_case
            && matches!(&*self.tests, [test] if only(test))
    }

    pub(super) fn judge(&self, scene: &Scene<'_>, steps: &mut Steps) -> Result<Mask, Spent> {
        let Some(values) = &scene.views.slot(self.slot).values else {
            let absent = |test: &Test| match test.op {
                Op::Exists => Mask::decided(!test.wanted),
                _ => Mask::INAPPLICABLE,
            };
            return Ok(self.tests.iter().map(absent).fold(Mask::PASSED, Mask::and));
        };
        let operands: usize = self.tests.iter().map(|test| test.operands.len()).sum();
        let work = values.len().saturating_mul(1 + operands / 4);
        steps.take(u64::try_from(work).unwrap_or(u64::MAX))?;
        Ok(self.present(values.iter().map(|(_, value)| value), scene.now))
    }

    /// `eq`, `in` and the orders ask for one value for which all of them hold; `ne` and `not_in` ask it of all.
    fn present<'v, 'a: 'v>(&self, values: impl Iterator<Item = &'v Value<'a>>, now: Millis) -> Mask {
        if self.tests.iter().any(|test| test.op == Op::Exists && !test.wanted) {
            return Mask::FAILED;
        }
        let (mut some, mut every, mut comparable, mut seen) = (false, true, false, false);
        let (mut whole, mut all) = (false, true);
        for value in values {
            seen = true;
            let Some((asked, denied)) = self.one(value, now) else { continue };
            comparable = true;
            whole |= asked && denied;
            all &= asked && denied;
            some |= asked;
            every &= denied;
        }
        let compares = |negative: bool| {
            self.tests.iter().any(|test| test.op != Op::Exists && test.negative() == negative)
        };
        if seen && !comparable && (compares(true) || compares(false)) {
            return Mask::INAPPLICABLE;
        }
        Mask::decided(match self.of {
            None => (some || !compares(false)) && every,
            Some(Of::Any) => whole,
            Some(Of::All) => all,
            Some(Of::None) => !whole,
        })
    }

    /// Whether a value meets the positive and the negative tests; `None` if it cannot be compared.
    fn one(&self, value: &Value<'_>, now: Millis) -> Option<(bool, bool)> {
        let (mut positive, mut negative) = (true, true);
        for test in self.tests.iter().filter(|test| test.op != Op::Exists) {
            let holds = test.holds(value, self.ignore_case, now)?;
            if test.negative() {
                negative &= holds;
            } else {
                positive &= holds;
            }
        }
        Some((positive, negative))
    }

    pub(super) fn explain(&self, known: Mask, scene: &Scene<'_>) -> Explained {
        let length = scene.limits.excerpt_bytes;
        let values = scene.views.slot(self.slot).values.as_deref().filter(|_| !known.is_empty());
        let value = values.map(|values| match values {
            [(_, one)] => json(one, length),
            many => {
                // The values that decided come first: they would drown in a long list.
                let decided = |value: &&Value<'_>| {
                    self.one(value, scene.now).is_some_and(|(some, every)| some && every)
                        == ((known == Mask::PASSED) != (self.of == Some(Of::None)))
                };
                let values = many.iter().map(|(_, value)| value);
                let first: Vec<_> = values.filter(decided).take(SHOWN).map(|v| json(v, length)).collect();
                Json::Array(first)
            }
        });
        Explained::Field(FieldExplained {
            outcome: known.verdict(),
            path: scene.views.path(self.slot).to_owned(),
            compared: self.written.clone(),
            value,
        })
    }
}

impl Test {
    fn compile(
        op: Op,
        operand: &Json,
        kind: Kind,
        ignore_case: bool,
        context: &mut Context<'_>,
    ) -> Option<Self> {
        let text = matches!(op, Op::StartsWith | Op::EndsWith | Op::Contains);
        if text && kind != Kind::Text {
            context.fault("type", format!("the field is {}; only texts have parts", kind.name()));
            return None;
        }
        let mut test = Self { op, operands: Vec::new(), wanted: operand.as_bool().unwrap_or(true) };
        match (op, operand) {
            (Op::Exists, _) => {}
            (Op::In | Op::NotIn | Op::StartsWith | Op::EndsWith | Op::Contains, Json::Array(list)) => {
                context.count_words(list.len())?;
                for (nth, entry) in list.iter().enumerate() {
                    test.operands.push(context.at(nth, |c| Operand::compile(entry, kind, c))?);
                }
            }
            (Op::Lt | Op::Lte | Op::Gt | Op::Gte, _) if !matches!(kind, Kind::Number | Kind::Datetime) => {
                let kind = kind.name();
                context
                    .fault("type", format!("the field is {kind}; only numbers and datetimes have an order"));
                return None;
            }
            _ => test.operands.push(Operand::compile(operand, kind, context)?),
        }
        if ignore_case {
            for operand in &mut test.operands {
                if let Operand::Text(text) = operand {
                    *text = as_seen(text, View::Lower);
                }
            }
        }
        Some(test)
    }

    fn negative(&self) -> bool {
        matches!(self.op, Op::Ne | Op::NotIn)
    }

    fn holds(&self, value: &Value<'_>, ignore_case: bool, now: Millis) -> Option<bool> {
        if let (true, Value::Text(text)) = (ignore_case, value) {
            return self.holds(&Value::Text(&as_seen(text, View::Lower)), false, now);
        }
        let order = || self.operands.first().and_then(|operand| operand.order(value, now));
        let part = |is: fn(&str, &str) -> bool| match value {
            Value::Text(text) => {
                Some(self.operands.iter().filter_map(Operand::text).any(|part| is(text, part)))
            }
            _ => None,
        };
        match self.op {
            Op::Lt => order().map(Ordering::is_lt),
            Op::Lte => order().map(Ordering::is_le),
            Op::Gt => order().map(Ordering::is_gt),
            Op::Gte => order().map(Ordering::is_ge),
            Op::Exists => Some(self.wanted),
            Op::StartsWith => part(|text, part| text.starts_with(part)),
            Op::EndsWith => part(|text, part| text.ends_with(part)),
            Op::Contains => part(|text, part| memmem::find(text.as_bytes(), part.as_bytes()).is_some()),
            Op::Eq | Op::In | Op::Ne | Op::NotIn => {
                if !self.operands.first()?.fits(value) {
                    return None;
                }
                let equal = self.operands.iter().any(|operand| operand.equals(value, now));
                Some(equal != self.negative())
            }
        }
    }
}

impl Operand {
    fn compile(operand: &Json, kind: Kind, context: &mut Context<'_>) -> Option<Self> {
        if kind == Kind::Datetime && operand.as_str().is_some_and(datetime::is_finer) {
            context.fault("type", FINER.to_owned());
            return None;
        }
        let compiled = match (kind, operand) {
            (Kind::Text, Json::String(text)) => Some(Self::Text(text.clone())),
            (Kind::Number, Json::Number(number)) => Number::parse(&number.to_string()).map(Self::Number),
            (Kind::Boolean, Json::Bool(boolean)) => Some(Self::Boolean(*boolean)),
            (Kind::Datetime, Json::String(text)) => datetime::parse(text).map(Self::Datetime),
            (Kind::Datetime, Json::Object(object)) => {
                let span = |key| Within::parse(object.get(key)?.as_str()?).map(Within::millis);
                span("ago").map(i64::wrapping_neg).or_else(|| span("ahead")).map(Self::Relative)
            }
            (Kind::Related, Json::Object(object)) => {
                let part = |key| object.get(key).and_then(Json::as_str);
                part("typeId").zip(part("id")).map(|(type_id, id)| Self::Related(ItemKey::new(type_id, id)))
            }
            _ => None,
        };
        if compiled.is_none() {
            let kind = match kind {
                Kind::Datetime => {
                    "a datetime such as 2026-01-31T12:00:00.000Z or {ago: 7d}, at most {ago: 3660d}"
                }
                Kind::Related => "a related item, {typeId, id}",
                other => other.name(),
            };
            context.fault("type", format!("the field is {kind}, and this is not"));
        }
        compiled
    }

    fn text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    fn related(&self) -> Option<&ItemKey> {
        if let Self::Related(key) = self { Some(key) } else { None }
    }

    fn coarse(&self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(number.coarse()),
            Self::Datetime(instant) => Some(Number::from(instant.0).coarse()),
            _ => None,
        }
    }

    fn fits(&self, value: &Value<'_>) -> bool {
        matches!(
            (self, value),
            (Self::Text(_), Value::Text(_))
                | (Self::Number(_), Value::Number(_))
                | (Self::Boolean(_), Value::Boolean(_))
                | (Self::Datetime(_) | Self::Relative(_), Value::Datetime(_))
                | (Self::Related(_), Value::Related { .. })
        )
    }

    fn equals(&self, value: &Value<'_>, now: Millis) -> bool {
        match (self, value) {
            (Self::Text(a), Value::Text(b)) => a == b,
            (Self::Number(a), Value::Number(b)) => a == b,
            (Self::Boolean(a), Value::Boolean(b)) => a == b,
            (Self::Datetime(a), Value::Datetime(b)) => a == b,
            (Self::Relative(a), Value::Datetime(b)) => now.0.saturating_add(*a) == b.0,
            (Self::Related(a), Value::Related { type_id, id }) => {
                a.type_id.as_str() == *type_id && a.id.as_str() == *id
            }
            _ => false,
        }
    }

    /// How the value lies to the operand.
    fn order(&self, value: &Value<'_>, now: Millis) -> Option<Ordering> {
        match (self, value) {
            (Self::Number(operand), Value::Number(value)) => value.partial_cmp(operand),
            (Self::Datetime(operand), Value::Datetime(value)) => Some(value.cmp(operand)),
            (Self::Relative(after), Value::Datetime(value)) => {
                Some(value.0.cmp(&now.0.saturating_add(*after)))
            }
            _ => None,
        }
    }
}

pub(super) fn json(value: &Value<'_>, length: usize) -> Json {
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

fn shorten(operand: &Json, length: usize) -> Json {
    match operand {
        Json::String(text) => Json::from(excerpt(text, length)),
        Json::Array(list) => list.iter().take(SHOWN).map(|entry| shorten(entry, length)).collect(),
        other => other.clone(),
    }
}
