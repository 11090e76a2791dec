//! One test of a field's value, with its operands.

use std::cmp::Ordering;

use memchr::memmem::Finder;
use serde_json::Value as Json;
use tidegate_schemas::{
    ids::{ItemKey, Millis},
    item_types::datetime,
};

use crate::{
    facts::Lookback,
    item::{Number, Value},
    leaves::{
        constraint::{Allowed, Constant, Subject},
        context::Context,
        op::Op,
    },
    limits::to_u64,
    reader::TOO_PRECISE,
    search::{ScanControl, scanner::Scanner},
    text::derived::lower,
    vocabulary::Kind,
};

#[derive(Debug)]
pub(crate) struct Test {
    pub(crate) op: Op,
    /// Texts are sorted and distinct.
    pub(crate) operands: Vec<Operand>,
    /// Operand of `exists`.
    pub(crate) expects_presence: bool,
    /// Total bytes of all texts, and bytes of the longest.
    bytes: usize,
    longest: usize,
    /// Prepared searches for the texts of `contains`, so that no value needs new ones.
    finders: Vec<Finder<'static>>,
    /// One search for all texts of `contains`, if there are many.
    bulk: Option<Scanner>,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Operand {
    Text(String),
    Number(Number),
    Boolean(bool),
    Datetime(Millis),
    /// Milliseconds relative to the append time of the item.
    Relative(i64),
    Related(ItemKey),
}

/// Maximum number of texts that are searched one by one.
const MAX_FINDERS: usize = 16;

impl Test {
    pub(super) fn compile(
        op: Op,
        operand: &Json,
        kind: Kind,
        ignore_case: bool,
        context: &mut Context<'_>,
    ) -> Option<Self> {
        let text = matches!(op, Op::StartsWith | Op::EndsWith | Op::Contains);
        if text && kind != Kind::Text {
            context.error("type", format!("the field is {}: this operator takes texts", kind.name()));
            return None;
        }
        let wanted = operand.as_bool().unwrap_or(true);
        let (operands, few) = (Vec::new(), Vec::new());
        let mut test =
            Self { op, operands, expects_presence: wanted, bytes: 0, longest: 0, finders: few, bulk: None };
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
                    .error("type", format!("the field is {kind}: only numbers and datetimes have an order"));
                return None;
            }
            _ => test.operands.push(Operand::compile(operand, kind, context)?),
        }
        if kind == Kind::Text {
            test.prepare(ignore_case);
        }
        Some(test)
    }

    /// Prepares the texts, so that one pass over a value serves all of them.
    fn prepare(&mut self, ignore_case: bool) {
        let mut texts: Vec<String> = self.operands.drain(..).filter_map(Operand::into_text).collect();
        if ignore_case {
            texts.iter_mut().for_each(|text| *text = lower(text).into_owned());
        }
        if texts.len() > 1 {
            texts.sort_unstable();
            texts.dedup();
        }
        let words = texts.iter().map(String::as_bytes);
        match self.op {
            // Every text contains the empty one, which sorts first and needs no scanner.
            Op::Contains if texts.len() > MAX_FINDERS && !texts[0].is_empty() => {
                self.bulk = Some(Scanner::new(&words.collect::<Vec<_>>()));
            }
            Op::Contains => {
                self.finders = words.take(MAX_FINDERS).map(|word| Finder::new(word).into_owned()).collect();
            }
            _ => {}
        }
        self.bytes = texts.iter().map(String::len).sum();
        self.longest = texts.iter().map(String::len).max().unwrap_or_default();
        self.operands = texts.into_iter().map(Operand::Text).collect();
    }

    pub(super) fn is_negated(&self) -> bool {
        matches!(self.op, Op::Ne | Op::NotIn)
    }

    /// Constraint on a value that passes. `None` if it is neither a list of values nor an order.
    pub(super) fn constraint(&self, slot: usize, lower: bool) -> Option<(Subject, Allowed)> {
        let relative = |operand: &Operand| matches!(operand, Operand::Relative(_));
        let is_relative = self.operands.first().is_some_and(relative);
        // Absolute and relative operands together do not constrain a single number.
        if self.operands.iter().any(|operand| relative(operand) != is_relative) {
            return None;
        }
        let subject = if is_relative { Subject::Age(slot) } else { Subject::Value { slot, lower } };
        let allowed = match self.op {
            Op::Eq | Op::In => Allowed::OneOf(self.operands.iter().map(Operand::constant).collect()),
            Op::Ne | Op::NotIn => Allowed::NoneOf(self.operands.iter().map(Operand::constant).collect()),
            Op::Lt | Op::Lte | Op::Gt | Op::Gte => match self.operands.first()?.constant() {
                Constant::Number(end) => Allowed::Order(self.op, end),
                _ => return None,
            },
            Op::StartsWith | Op::EndsWith | Op::Contains | Op::Exists => return None,
        };
        Some((subject, allowed))
    }

    /// Bytes of memory.
    pub(super) fn memory(&self) -> usize {
        let search = self.bulk.as_ref().map_or(0, Scanner::memory);
        let finder_bytes =
            self.finders.iter().map(|finder| size_of::<Finder<'_>>() + finder.needle().len()).sum::<usize>();
        64 * (1 + self.operands.len()) + self.bytes + finder_bytes + search
    }

    /// Steps for one value, or for a text of this length in bytes.
    pub(super) fn steps_for(&self, length: Option<usize>) -> u64 {
        let count = to_u64(self.operands.len());
        let Some(length) = length.map(to_u64) else { return 1 + count / 4 };
        match self.op {
            Op::Exists => 1,
            Op::Contains if self.bulk.is_some() => 1 + length / 16,
            Op::Contains => to_u64(self.finders.len()).saturating_mul(1 + length / 64),
            Op::StartsWith | Op::EndsWith => {
                1 + count / 4 + to_u64(self.bytes).min(count.saturating_mul(length)) / 64
            }
            _ => 1 + u64::from(count.max(1).ilog2()) / 4 + to_u64(self.longest).min(length) / 16,
        }
    }

    /// Tests a value, with a text in its compared form. `None` if it cannot be compared.
    pub(super) fn is_met_by(&self, value: &Value<'_>, now: Millis) -> Option<bool> {
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
            Op::Exists => Some(self.expects_presence),
            Op::StartsWith => part(|text, part| text.starts_with(part)),
            Op::EndsWith => part(|text, part| text.ends_with(part)),
            Op::Contains => match (&self.bulk, value) {
                (Some(bulk), Value::Text(text)) => {
                    Some(bulk.scan(text.as_bytes(), &mut |_, _| ScanControl::Stop) == ScanControl::Stop)
                }
                (None, Value::Text(text)) => {
                    Some(self.finders.iter().any(|part| part.find(text.as_bytes()).is_some()))
                }
                _ => None,
            },
            Op::Eq | Op::In | Op::Ne | Op::NotIn => {
                if !self.operands.first()?.is_comparable_to(value) {
                    return None;
                }
                let equal = match value {
                    Value::Text(text) => self.contains_text(text),
                    _ => self.operands.iter().any(|operand| operand.equals(value, now)),
                };
                Some(equal != self.is_negated())
            }
        }
    }

    fn contains_text(&self, text: &str) -> bool {
        let to = |operand: &Operand| operand.text().unwrap_or_default().cmp(text);
        self.operands.binary_search_by(to).is_ok()
    }
}

impl Operand {
    fn compile(operand: &Json, kind: Kind, context: &mut Context<'_>) -> Option<Self> {
        if kind == Kind::Datetime && operand.as_str().is_some_and(datetime::is_finer) {
            context.error("type", TOO_PRECISE.to_owned());
            return None;
        }
        let compiled = match (kind, operand) {
            (Kind::Text, Json::String(text)) => Some(Self::Text(text.clone())),
            (Kind::Number, Json::Number(number)) => Number::parse(&number.to_string()).map(Self::Number),
            (Kind::Boolean, Json::Bool(boolean)) => Some(Self::Boolean(*boolean)),
            (Kind::Datetime, Json::String(text)) => datetime::parse(text).map(Self::Datetime),
            (Kind::Datetime, Json::Object(object)) => {
                let span = |key| Lookback::parse(object.get(key)?.as_str()?).map(Lookback::millis);
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
            context.error("type", format!("the field is {kind}: compare it with a value of that type"));
        }
        compiled
    }

    fn constant(&self) -> Constant {
        match self {
            Self::Text(text) => Constant::Text(text.clone()),
            Self::Number(number) => Constant::Number(*number),
            Self::Boolean(boolean) => Constant::Boolean(*boolean),
            Self::Datetime(Millis(millis)) | Self::Relative(millis) => Constant::Number((*millis).into()),
            Self::Related(key) => Constant::Text(format!("{}/{}", key.type_id, key.id)),
        }
    }

    pub(crate) fn text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    fn into_text(self) -> Option<String> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    pub(super) fn related(&self) -> Option<&ItemKey> {
        if let Self::Related(key) = self { Some(key) } else { None }
    }

    pub(super) fn to_f64(&self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(number.to_f64()),
            Self::Datetime(instant) => Some(Number::from(instant.0).to_f64()),
            _ => None,
        }
    }

    fn is_comparable_to(&self, value: &Value<'_>) -> bool {
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

    /// Order of the value relative to the operand.
    fn order(&self, value: &Value<'_>, now: Millis) -> Option<Ordering> {
        match (self, value) {
            (Self::Number(operand), Value::Number(value)) => value.partial_cmp(operand),
            (Self::Datetime(operand), Value::Datetime(value)) => Some(value.cmp(operand)),
            (Self::Relative(offset), Value::Datetime(value)) => {
                Some(value.0.cmp(&now.0.saturating_add(*offset)))
            }
            _ => None,
        }
    }
}
