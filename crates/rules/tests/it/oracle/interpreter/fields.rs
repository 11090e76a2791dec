//! Evaluates comparisons of fields.

use std::cmp::Ordering;

use ConditionResult::{Failed, Inapplicable, Passed};
use serde_json::{Map, Value as Json};
use tidegate_rules::{
    ConditionResult, Explained, FieldExplained, Kind, Limits, Lookback, Value,
    leaves::{
        field::{Comparison, Quantifier},
        op::Op,
    },
};
use tidegate_schemas::item_types::datetime;

use super::{Interpreter, numbers::Exact, short, value_json, viewed::lower};

impl Interpreter<'_> {
    fn kind(&self, path: &str) -> Option<Kind> {
        if let Some(kind) = self.kinds.get(path) {
            return Some(*kind);
        }
        let (field, _) = path.rsplit_once('.')?;
        self.kinds.get(field).map(|kind| if *kind == Kind::Related { Kind::Text } else { *kind })
    }

    pub(super) fn field(&self, field: &Comparison) -> ConditionResult {
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
        let results: Vec<_> = values.iter().map(|(_, value)| self.compare_value(field, value)).collect();
        let comparable: Vec<_> = results.iter().flatten().collect();
        if !results.is_empty() && comparable.is_empty() && !compared.is_empty() {
            return Inapplicable;
        }
        match field.of {
            Some(Quantifier::Any) => {
                return if comparable.iter().copied().any(meets) { Passed } else { Failed };
            }
            Some(Quantifier::All) => {
                return if comparable.iter().copied().all(meets) { Passed } else { Failed };
            }
            Some(Quantifier::None) => {
                return if comparable.iter().copied().any(meets) { Failed } else { Passed };
            }
            None => {}
        }
        let asks = compared.iter().any(|(op, _)| !negative(*op));
        let has_match = comparable.iter().any(|(asked, _)| *asked) || !asks;
        if has_match && comparable.iter().all(|(_, denied)| *denied) { Passed } else { Failed }
    }

    /// Returns whether a value meets the positive comparisons and the negated ones.
    fn compare_value(&self, field: &Comparison, value: &Value<'_>) -> Option<(bool, bool)> {
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
            let is_met = match op {
                Op::Eq => one(operand)?.1,
                Op::Ne => !one(operand)?.1,
                Op::In | Op::NotIn => {
                    let operands = operand.as_array().unwrap();
                    let equal: Vec<_> =
                        operands.iter().map(|operand| one(operand).map(|(_, equal)| equal)).collect();
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
                denied &= is_met;
            } else {
                asked &= is_met;
            }
        }
        Some((asked, denied))
    }

    /// Order of a value and an operand, and whether they are equal. `None` if they cannot be compared.
    fn compare(
        &self,
        value: &Value<'_>,
        operand: &Json,
        kind: Kind,
        ignore_case: bool,
    ) -> Option<(Option<Ordering>, bool)> {
        let ordered = |order: Option<Ordering>| (order, order == Some(Ordering::Equal));
        match (kind, value) {
            (Kind::Text | Kind::Url | Kind::Geohash | Kind::Media, Value::Text(text)) if ignore_case => {
                Some((None, lower(operand.as_str()?) == lower(text)))
            }
            (Kind::Text | Kind::Url | Kind::Geohash | Kind::Media, Value::Text(text)) => {
                Some((None, operand.as_str()? == *text))
            }
            (Kind::Boolean, Value::Boolean(boolean)) => Some((None, operand.as_bool()? == *boolean)),
            (Kind::Number, Value::Number(number)) if operand.is_number() => {
                Some(ordered(Some(Exact::of(*number).cmp(&Exact::parse(&operand.to_string())))))
            }
            (Kind::Datetime, Value::Datetime(at)) => {
                let span = |key: &str| Lookback::parse(operand[key].as_str()?).map(Lookback::millis);
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

    pub(super) fn field_explained(&self, field: &Comparison, alone: ConditionResult) -> Explained {
        let value = self.values(&field.path).map(|values| match values.as_slice() {
            [(_, one)] => value_json(one, self.limits),
            many => {
                let is_decisive = |value: &&Value<'_>| {
                    self.compare_value(field, value).is_some_and(|(asked, denied)| asked && denied)
                        == ((alone == Passed) != (field.of == Some(Quantifier::None)))
                };
                let decisive = many.iter().map(|(_, value)| value).filter(is_decisive).take(8);
                Json::Array(decisive.map(|value| value_json(value, self.limits)).collect())
            }
        });
        let compared: Map<String, Json> = field
            .tests
            .iter()
            .map(|(op, operand)| {
                let single_operand = operand.as_array().filter(|list| list.len() == 1).map(|list| &list[0]);
                let is_there = |op: Op| field.tests.iter().any(|(other, _)| *other == op);
                let (name, operand) = match (op, single_operand) {
                    (Op::In, Some(one)) if !is_there(Op::Eq) => ("eq".to_owned(), one),
                    (Op::NotIn, Some(one)) if !is_there(Op::Ne) => ("ne".to_owned(), one),
                    (Op::StartsWith | Op::EndsWith | Op::Contains, Some(one)) => (name(*op), one),
                    _ => (name(*op), operand),
                };
                (name, operand_json(operand, self.limits))
            })
            .collect();
        let of = field.of.map(|of| ("of".to_owned(), serde_json::to_value(of).unwrap()));
        let compared = compared.into_iter().chain(of).collect();
        Explained::Field(FieldExplained { outcome: alone, path: field.path.clone(), compared, value })
    }
}

fn meets((asked, denied): &(bool, bool)) -> bool {
    *asked && *denied
}

fn name(op: Op) -> String {
    serde_json::to_value(op).unwrap().as_str().unwrap().to_owned()
}

fn negative(op: Op) -> bool {
    matches!(op, Op::Ne | Op::NotIn)
}

fn operand_json(operand: &Json, limits: &Limits) -> Json {
    match operand {
        Json::String(text) => Json::from(short(text, limits)),
        Json::Array(list) => list.iter().take(8).map(|operand| operand_json(operand, limits)).collect(),
        other => other.clone(),
    }
}
