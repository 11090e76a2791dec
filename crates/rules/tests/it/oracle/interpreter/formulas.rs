//! Evaluates formulas. A failure has no value, and neither has a formula with such a part, unless the other side of `&&` or
//! `||` decides.

use regex::Regex;
use serde_json::{Map, Value as Json};
use tidegate_rules::{
    ConditionResult, Explained, FormulaExplained, Number, Value,
    leaves::{
        formula::{
            Formula,
            ast::{Arithmetic, Ast},
        },
        op::Op,
    },
};
use tidegate_schemas::{ids::Millis, item_types::datetime};

use super::{Interpreter, numbers::Exact, short, value_json};

#[derive(Clone, Debug)]
enum FormulaValue {
    Number(Number),
    Text(String),
    Boolean(bool),
    Instant(Millis),
}

fn value_of(value: &Value<'_>) -> Option<FormulaValue> {
    Some(match value {
        Value::Text(text) => FormulaValue::Text((*text).to_owned()),
        Value::Number(number) => FormulaValue::Number(*number),
        Value::Boolean(boolean) => FormulaValue::Boolean(*boolean),
        Value::Datetime(at) => FormulaValue::Instant(*at),
        _ => return None,
    })
}

impl PartialEq for FormulaValue {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Number(a), Self::Number(b)) => Exact::of(*a) == Exact::of(*b),
            (Self::Text(a), Self::Text(b)) => a == b,
            (Self::Boolean(a), Self::Boolean(b)) => a == b,
            (Self::Instant(a), Self::Instant(b)) => a == b,
            _ => false,
        }
    }
}

impl Interpreter<'_> {
    pub(super) fn formula(&self, formula: &Formula) -> Explained {
        let outcome = match self.evaluate(&formula.body, None) {
            Some(FormulaValue::Boolean(true)) => ConditionResult::Passed,
            Some(FormulaValue::Boolean(false)) => ConditionResult::Failed,
            Some(other) => unreachable!("{other:?} is no condition"),
            None => ConditionResult::Inapplicable,
        };
        let mut values = Map::new();
        for path in formula.body.paths() {
            if let Some(found) = self.values(path) {
                let value = match found.as_slice() {
                    [(None, one)] => value_json(one, self.limits),
                    many => {
                        many.iter().take(8).map(|(_, value)| value_json(value, self.limits)).collect::<Json>()
                    }
                };
                values.insert(path.to_owned(), value);
            }
        }
        let formula = short(&formula.source, self.limits);
        Explained::Formula(FormulaExplained { outcome, formula, values })
    }

    fn truth(&self, part: &Ast, each: Option<&FormulaValue>) -> Option<bool> {
        if let FormulaValue::Boolean(boolean) = self.evaluate(part, each)? { Some(boolean) } else { None }
    }

    fn words(&self, part: &Ast, each: Option<&FormulaValue>) -> Option<String> {
        if let FormulaValue::Text(text) = self.evaluate(part, each)? { Some(text) } else { None }
    }

    fn evaluate(&self, part: &Ast, each: Option<&FormulaValue>) -> Option<FormulaValue> {
        let is = |boolean: bool| Some(FormulaValue::Boolean(boolean));
        match part {
            Ast::Number(number) => Some(FormulaValue::Number(*number)),
            Ast::Text(text) => Some(FormulaValue::Text(text.clone())),
            Ast::Boolean(boolean) => is(*boolean),
            Ast::Instant(text) => datetime::parse(text).map(FormulaValue::Instant),
            Ast::Path(path) => value_of(&self.values(path)?.first()?.1),
            Ast::Each => each.cloned(),
            Ast::Has(path) => is(self.values(path).is_some()),
            Ast::Size(of) => {
                let size = match &**of {
                    Ast::Path(path) if !matches!(self.values(path)?.as_slice(), [(None, _)]) => {
                        self.values(path)?.len()
                    }
                    of => self.words(of, each)?.chars().count(),
                };
                Some(FormulaValue::Number(Number::from(i64::try_from(size).unwrap())))
            }
            Ast::Negative(of) => {
                let zero = Ast::Number(Number::from(0));
                match self.evaluate(of, each)? {
                    FormulaValue::Number(Number::Fraction(fraction)) => {
                        Some(FormulaValue::Number(Number::Fraction(-fraction)))
                    }
                    _ => self.evaluate(&Ast::Arithmetic(Arithmetic::Minus, Box::new(zero), of.clone()), each),
                }
            }
            Ast::Not(of) => is(!self.truth(of, each)?),
            Ast::And(a, b) => match (self.truth(a, each), self.truth(b, each)) {
                (Some(false), _) | (_, Some(false)) => is(false),
                (Some(true), Some(true)) => is(true),
                _ => None,
            },
            Ast::Or(a, b) => match (self.truth(a, each), self.truth(b, each)) {
                (Some(true), _) | (_, Some(true)) => is(true),
                (Some(false), Some(false)) => is(false),
                _ => None,
            },
            Ast::Arithmetic(sign, a, b) => match (self.evaluate(a, each)?, self.evaluate(b, each)?) {
                (FormulaValue::Number(a), FormulaValue::Number(b)) => {
                    calculate(*sign, a, b).map(FormulaValue::Number)
                }
                _ => None,
            },
            Ast::Compare(op, a, b) => {
                let order = match (self.evaluate(a, each)?, self.evaluate(b, each)?) {
                    (FormulaValue::Number(a), FormulaValue::Number(b)) => {
                        Some(Exact::of(a).cmp(&Exact::of(b)))
                    }
                    (FormulaValue::Text(a), FormulaValue::Text(b)) => a.partial_cmp(&b),
                    (FormulaValue::Boolean(a), FormulaValue::Boolean(b)) => a.partial_cmp(&b),
                    (FormulaValue::Instant(a), FormulaValue::Instant(b)) => a.partial_cmp(&b),
                    _ => unreachable!("types were checked"),
                };
                is(match op {
                    Op::Eq => order.is_some_and(std::cmp::Ordering::is_eq),
                    Op::Ne => order.is_none_or(std::cmp::Ordering::is_ne),
                    Op::Lt => order.is_some_and(std::cmp::Ordering::is_lt),
                    Op::Lte => order.is_some_and(std::cmp::Ordering::is_le),
                    Op::Gt => order.is_some_and(std::cmp::Ordering::is_gt),
                    _ => order.is_some_and(std::cmp::Ordering::is_ge),
                })
            }
            Ast::Among(of, among) => {
                let of = self.evaluate(of, each)?;
                is(among.iter().any(|constant| self.evaluate(constant, None).as_ref() == Some(&of)))
            }
            Ast::In(of, path) => {
                let (of, values) = (self.evaluate(of, each)?, self.values(path)?);
                is(values.iter().any(|(_, value)| value_of(value).as_ref() == Some(&of)))
            }
            Ast::Part(op, of, part) => {
                let (of, part) = (self.words(of, each)?, self.words(part, each)?);
                is(match op {
                    Op::StartsWith => of.starts_with(&part),
                    Op::EndsWith => of.ends_with(&part),
                    _ => of.contains(&part),
                })
            }
            Ast::Matches(of, pattern) => is(Regex::new(pattern).unwrap().is_match(&self.words(of, each)?)),
            Ast::Quantified { every, path, body, .. } => {
                let values = self.values(path)?;
                let results: Vec<_> =
                    values.iter().map(|(_, value)| self.truth(body, value_of(value).as_ref())).collect();
                if results.contains(&Some(!every)) {
                    return is(!every);
                }
                if results.contains(&None) { None } else { is(*every) }
            }
        }
    }
}

fn calculate(sign: Arithmetic, a: Number, b: Number) -> Option<Number> {
    let float = |number: Number| match number {
        #[allow(clippy::cast_precision_loss)]
        Number::Whole(whole) => whole as f64,
        Number::Fraction(fraction) => fraction,
    };
    if let (Number::Whole(a), Number::Whole(b)) = (a, b) {
        let integer = match sign {
            Arithmetic::Plus => a.checked_add(b)?,
            Arithmetic::Minus => a.checked_sub(b)?,
            Arithmetic::Times => a.checked_mul(b)?,
            Arithmetic::Over | Arithmetic::Remainder if b == 0 => return None,
            Arithmetic::Over => a / b,
            Arithmetic::Remainder => a % b,
        };
        return i64::try_from(integer).ok().map(Number::from);
    }
    let (a, b) = (float(a), float(b));
    let fraction = match sign {
        Arithmetic::Plus => a + b,
        Arithmetic::Minus => a - b,
        Arithmetic::Times => a * b,
        Arithmetic::Over => a / b,
        Arithmetic::Remainder => f64::NAN,
    };
    fraction.is_finite().then_some(Number::Fraction(fraction))
}
