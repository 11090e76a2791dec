//! Formulas: parts of expressions that no other kind of leaf covers, such as sums, sizes and comparisons of two fields. A
//! failure, such as a division by zero, makes a formula inapplicable.

pub mod ast;

use std::{cmp::Ordering, sync::Arc};

use memchr::memmem;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use tidegate_schemas::{ids::Millis, item_types::datetime};

use self::ast::{Arithmetic, Ast};
use super::{
    context::Context,
    field::{MAX_SHOWN_VALUES, value_to_json},
    input::EvalInput,
    kind::{LeafKind, guess},
    needle::{Needle, compile_pattern},
    op::Op,
};
use crate::{
    error::{excerpt, quote},
    fields::Element,
    item::{Number, Value},
    limits::{OutOfSteps, Steps, search_steps, to_u64},
    logic::{ConditionResult, Mask},
    search::pattern::Pattern,
    vocabulary::{Container, Kind},
};

/// Formula with its source text.
#[derive(Clone, Debug, PartialEq)]
pub struct Formula {
    pub source: String,
    pub body: Ast,
}

#[derive(Debug)]
pub(crate) struct FormulaLeaf {
    source: String,
    code: Code,
    slots: Vec<usize>,
    size: usize,
}

#[derive(Debug)]
enum Code {
    Constant(Constant),
    One(usize),
    Each,
    Has(usize),
    /// Number of values at a path.
    Count(usize),
    /// Number of characters of a text.
    Length(Box<Code>),
    Negative(Box<Code>),
    Not(Box<Code>),
    Both(Box<Code>, Box<Code>),
    Either(Box<Code>, Box<Code>),
    Arithmetic(Arithmetic, Box<Code>, Box<Code>),
    Compare(Op, Box<Code>, Box<Code>),
    Among(Box<Code>, Vec<Constant>),
    In(Box<Code>, usize),
    Part(Op, Box<Code>, Box<Code>),
    Matches(Box<Code>, Arc<Pattern>),
    Quantified {
        every: bool,
        slot: usize,
        body: Box<Code>,
    },
}

#[derive(Debug)]
enum Constant {
    Number(Number),
    Text(String),
    Boolean(bool),
    Instant(Millis),
}

/// Type of a part: one value, or several of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    One(Kind),
    Several(Kind),
}

impl Type {
    fn name(self) -> String {
        match self {
            Self::One(kind) => kind.name().to_owned(),
            Self::Several(kind) => format!("a list in which each value is {}", kind.name()),
        }
    }
}

const NUMBER: Type = Type::One(Kind::Number);
const TEXT: Type = Type::One(Kind::Text);
const BOOLEAN: Type = Type::One(Kind::Boolean);
const INSTANT: Type = Type::One(Kind::Datetime);

/// Intermediate value of a formula.
#[derive(Clone, Copy, Debug)]
enum FormulaValue<'v> {
    Number(Number),
    Text(&'v str),
    Boolean(bool),
    Instant(Millis),
}

/// `None` if a value is missing or a computation fails.
type FormulaResult<'v> = Result<Option<FormulaValue<'v>>, OutOfSteps>;

impl LeafKind for FormulaLeaf {
    type Spec = Formula;
    type Explained = FormulaExplained;

    fn paths(spec: &Formula, _context: &Context<'_>) -> Vec<String> {
        spec.body.paths().into_iter().map(str::to_owned).collect()
    }

    fn compile(formula: Formula, context: &mut Context<'_>) -> Option<Self> {
        let mut compiler = Compiler { context, element_type: None, size: 0 };
        let (code, kind) = compiler.compile_part(&formula.body)?;
        if kind != BOOLEAN {
            compiler.error(&format!(
                "the expression {} is {}: expected a condition",
                quote(&formula.source),
                kind.name()
            ));
            return None;
        }
        let size = compiler.size;
        let paths = formula.body.paths();
        let slots: Option<Vec<_>> =
            paths.into_iter().map(|path| Some(context.resolve_slot(path)?.0)).collect();
        Some(Self { source: formula.source, code, slots: slots?, size })
    }

    fn cost(&self) -> f32 {
        4.0 + guess(self.size)
    }

    fn evaluate(&self, input: &EvalInput<'_>, steps: &mut Steps) -> Result<Mask, OutOfSteps> {
        Ok(match self.code.compute(input, None, steps)? {
            Some(FormulaValue::Boolean(passed)) => Mask::from_bool(passed),
            _ => Mask::INAPPLICABLE,
        })
    }

    fn explain(
        &self,
        mask: Mask,
        _found_needles: Option<&[(u32, u32)]>,
        input: &EvalInput<'_>,
        _steps: &mut Steps,
    ) -> FormulaExplained {
        let length = input.limits.excerpt_bytes;
        let mut values = Map::new();
        for slot in self.slots.iter().filter(|_| !mask.is_empty()) {
            let shown_value = match input.fields.slot(*slot).values.as_deref() {
                None => continue,
                Some([(Element::Only, value)]) => value_to_json(value, length),
                Some(values) => Json::Array(
                    values
                        .iter()
                        .take(MAX_SHOWN_VALUES)
                        .map(|(_, value)| value_to_json(value, length))
                        .collect(),
                ),
            };
            values.insert(input.fields.path(*slot).to_owned(), shown_value);
        }
        FormulaExplained { outcome: mask.result(), formula: excerpt(&self.source, length).to_owned(), values }
    }
}

struct Compiler<'c, 'v> {
    context: &'c mut Context<'v>,
    element_type: Option<Type>,
    size: usize,
}

impl Compiler<'_, '_> {
    fn error(&mut self, detail: &str) {
        self.context.error("type", detail.to_owned());
    }

    fn compile_boxed(&mut self, part: &Ast, expected: Type, operator: &str) -> Option<Box<Code>> {
        let (code, kind) = self.compile_part(part)?;
        if kind != expected {
            self.error(&format!("{operator} takes {}, not {}", expected.name(), kind.name()));
            return None;
        }
        Some(Box::new(code))
    }

    fn resolve_path(&mut self, path: &str) -> Option<(usize, Type)> {
        let (slot, kinds) = self.context.resolve_slot(path)?;
        let (first, kind) = *kinds.first()?;
        // An expression has one type for each path, so the item types of the rule must agree.
        if let Some((other, different)) = kinds.iter().find(|(_, other)| *other != kind) {
            let (path, kind, different) = (quote(path), kind.name(), different.name());
            self.error(&format!(
                "{path} is {kind} in {first} and {different} in {other}: name the item types"
            ));
            return None;
        }
        let container = self.context.resolve_container(path)?;
        Some((slot, if container == Container::One { Type::One(kind) } else { Type::Several(kind) }))
    }

    fn resolve_list(&mut self, path: &str, operator: &str) -> Option<(usize, Kind)> {
        match self.resolve_path(path)? {
            (_, Type::Several(_)) if self.context.resolve_container(path)? == Container::Map => {
                // CEL iterates over the keys of a map here, so a map would have another meaning.
                self.error(&format!("{operator} takes a list, and {} is no list", quote(path)));
                None
            }
            (slot, Type::Several(kind)) => Some((slot, kind)),
            (_, one) => {
                self.error(&format!("{operator} takes a list, and {} is {}", quote(path), one.name()));
                None
            }
        }
    }

    fn compile_constant(part: &Ast) -> Option<(Constant, Type)> {
        Some(match part {
            Ast::Number(number) => (Constant::Number(*number), NUMBER),
            Ast::Text(text) => (Constant::Text(text.clone()), TEXT),
            Ast::Boolean(boolean) => (Constant::Boolean(*boolean), BOOLEAN),
            Ast::Instant(text) => (Constant::Instant(datetime::parse(text)?), INSTANT),
            _ => return None,
        })
    }

    fn compile_part(&mut self, part: &Ast) -> Option<(Code, Type)> {
        self.size += 1;
        Some(match part {
            Ast::Number(_) | Ast::Text(_) | Ast::Boolean(_) | Ast::Instant(_) => {
                let (constant, kind) = Self::compile_constant(part)?;
                (Code::Constant(constant), kind)
            }
            Ast::Path(path) => match self.resolve_path(path)? {
                (slot, kind @ Type::One(Kind::Text | Kind::Number | Kind::Boolean | Kind::Datetime)) => {
                    (Code::One(slot), kind)
                }
                (_, other) => {
                    self.error(&format!(
                        "field {} is {}, which expressions cannot compare",
                        quote(path),
                        other.name()
                    ));
                    return None;
                }
            },
            Ast::Each => (Code::Each, self.element_type?),
            Ast::Has(path) => (Code::Has(self.context.resolve_slot(path)?.0), BOOLEAN),
            Ast::Size(of) => {
                // `size` of a list counts its values, `size` of a text its characters.
                if let Ast::Path(path) = &**of
                    && let (slot, Type::Several(_)) = self.resolve_path(path)?
                {
                    (Code::Count(slot), NUMBER)
                } else {
                    (Code::Length(self.compile_boxed(of, TEXT, "`size`")?), NUMBER)
                }
            }
            Ast::Negative(of) => (Code::Negative(self.compile_boxed(of, NUMBER, "`-`")?), NUMBER),
            Ast::Not(of) => (Code::Not(self.compile_boxed(of, BOOLEAN, "`!`")?), BOOLEAN),
            Ast::And(a, b) => (
                Code::Both(self.compile_boxed(a, BOOLEAN, "`&&`")?, self.compile_boxed(b, BOOLEAN, "`&&`")?),
                BOOLEAN,
            ),
            Ast::Or(a, b) => (
                Code::Either(
                    self.compile_boxed(a, BOOLEAN, "`||`")?,
                    self.compile_boxed(b, BOOLEAN, "`||`")?,
                ),
                BOOLEAN,
            ),
            Ast::Arithmetic(sign, a, b) => {
                let a = self.compile_boxed(a, NUMBER, "arithmetic")?;
                (Code::Arithmetic(*sign, a, self.compile_boxed(b, NUMBER, "arithmetic")?), NUMBER)
            }
            Ast::Compare(op, a, b) => {
                let (a, kind) = self.compile_part(a)?;
                let (b, other) = self.compile_part(b)?;
                if kind != other {
                    self.error(&format!("{} cannot be compared with {}", kind.name(), other.name()));
                    return None;
                }
                if ![NUMBER, INSTANT].contains(&kind) && !matches!(op, Op::Eq | Op::Ne) {
                    self.error(&format!("this is {}: only numbers and datetimes have an order", kind.name()));
                    return None;
                }
                (Code::Compare(*op, Box::new(a), Box::new(b)), BOOLEAN)
            }
            Ast::Among(of, among) => {
                let (code, kind) = self.compile_part(of)?;
                let mut constants = Vec::with_capacity(among.len());
                for part in among {
                    let (constant, other) = Self::compile_constant(part)?;
                    if other != kind {
                        self.error(&format!("{} cannot be equal to {}", kind.name(), other.name()));
                        return None;
                    }
                    constants.push(constant);
                }
                self.context.count_words(constants.len())?;
                (Code::Among(Box::new(code), constants), BOOLEAN)
            }
            Ast::In(of, path) => {
                let (slot, kind) = self.resolve_list(path, "`in`")?;
                (Code::In(self.compile_boxed(of, Type::One(kind), "`in` with this list")?, slot), BOOLEAN)
            }
            Ast::Part(op, of, part) => {
                let of = self.compile_boxed(of, TEXT, "it")?;
                (Code::Part(*op, of, self.compile_boxed(part, TEXT, "it")?), BOOLEAN)
            }
            Ast::Matches(of, pattern) => {
                let of = self.compile_boxed(of, TEXT, "`matches`")?;
                self.context.count_regex()?;
                match compile_pattern(pattern, self.context.limits.regex_bytes) {
                    Ok(Needle::Pattern { pattern, .. }) => (Code::Matches(of, pattern), BOOLEAN),
                    Ok(Needle::Word { .. }) => return None,
                    Err(reason) => {
                        self.context
                            .error("regex", format!("the pattern {}", reason.trim_start_matches("it ")));
                        return None;
                    }
                }
            }
            Ast::Quantified { every, path, body, .. } => {
                let (slot, kind) = self.resolve_list(path, "`exists` or `all`")?;
                // The name of the element is valid inside of the body only.
                self.element_type = Some(Type::One(kind));
                let body = self.compile_boxed(body, BOOLEAN, "`exists` or `all`");
                self.element_type = None;
                (Code::Quantified { every: *every, slot, body: body? }, BOOLEAN)
            }
        })
    }
}

impl<'v> FormulaValue<'v> {
    fn from_item_value(value: &Value<'v>) -> Option<Self> {
        match value {
            Value::Text(text) => Some(Self::Text(text)),
            Value::Number(number) => Some(Self::Number(*number)),
            Value::Boolean(boolean) => Some(Self::Boolean(*boolean)),
            Value::Datetime(instant) => Some(Self::Instant(*instant)),
            Value::Related { .. } | Value::List(_) | Value::Map(_) => None,
        }
    }

    /// `None` if the kinds differ.
    fn compare(self, op: Op, other: Self) -> Option<bool> {
        let order = match (self, other) {
            (Self::Number(a), Self::Number(b)) => a.partial_cmp(&b),
            (Self::Text(a), Self::Text(b)) => Some(a.cmp(b)),
            (Self::Boolean(a), Self::Boolean(b)) => Some(a.cmp(&b)),
            (Self::Instant(a), Self::Instant(b)) => Some(a.cmp(&b)),
            _ => return None,
        };
        Some(match op {
            Op::Eq => order == Some(Ordering::Equal),
            Op::Ne => order != Some(Ordering::Equal),
            Op::Lt => order == Some(Ordering::Less),
            Op::Lte => order.is_some_and(Ordering::is_le),
            Op::Gt => order == Some(Ordering::Greater),
            Op::Gte => order.is_some_and(Ordering::is_ge),
            _ => return None,
        })
    }
}

impl Constant {
    fn to_value(&self) -> FormulaValue<'_> {
        match self {
            Self::Number(number) => FormulaValue::Number(*number),
            Self::Text(text) => FormulaValue::Text(text),
            Self::Boolean(boolean) => FormulaValue::Boolean(*boolean),
            Self::Instant(instant) => FormulaValue::Instant(*instant),
        }
    }
}

fn count_value(number: usize) -> FormulaValue<'static> {
    FormulaValue::Number(Number::Whole(i128::try_from(number).unwrap_or(i128::MAX)))
}

impl Code {
    fn compute<'v>(
        &'v self,
        input: &'v EvalInput<'_>,
        each: Option<FormulaValue<'v>>,
        steps: &mut Steps,
    ) -> FormulaResult<'v> {
        steps.take(1)?;
        Ok(match self {
            Self::Constant(constant) => Some(constant.to_value()),
            Self::One(slot) => input
                .fields
                .slot(*slot)
                .values
                .as_deref()
                .and_then(<[_]>::first)
                .and_then(|(_, value)| FormulaValue::from_item_value(value)),
            Self::Each => each,
            Self::Has(slot) => Some(FormulaValue::Boolean(input.fields.slot(*slot).values.is_some())),
            Self::Count(slot) => {
                input.fields.slot(*slot).values.as_ref().map(|values| count_value(values.len()))
            }
            Self::Length(of) => match of.compute(input, each, steps)? {
                Some(FormulaValue::Text(text)) => {
                    // Counting the characters reads the text to its end.
                    steps.take(to_u64(text.len()) / 16)?;
                    Some(count_value(text.chars().count()))
                }
                _ => None,
            },
            Self::Negative(of) => match of.compute(input, each, steps)? {
                Some(FormulaValue::Number(Number::Whole(whole))) => to_bounded(whole.checked_neg()),
                Some(FormulaValue::Number(Number::Fraction(fraction))) => {
                    Some(FormulaValue::Number(Number::Fraction(-fraction)))
                }
                _ => None,
            },
            Self::Not(of) => match of.compute(input, each, steps)? {
                Some(FormulaValue::Boolean(boolean)) => Some(FormulaValue::Boolean(!boolean)),
                _ => None,
            },
            Self::Both(a, b) => evaluate_junction(false, [a, b], input, each, steps)?,
            Self::Either(a, b) => evaluate_junction(true, [a, b], input, each, steps)?,
            Self::Arithmetic(sign, a, b) => {
                match (a.compute(input, each, steps)?, b.compute(input, each, steps)?) {
                    (Some(FormulaValue::Number(a)), Some(FormulaValue::Number(b))) => {
                        compute_arithmetic(*sign, a, b)
                    }
                    _ => None,
                }
            }
            Self::Compare(op, a, b) => {
                let (a, b) = (a.compute(input, each, steps)?, b.compute(input, each, steps)?);
                if let (Some(FormulaValue::Text(a)), Some(FormulaValue::Text(b))) = (a, b) {
                    // The comparison ends at the latest with the shorter text.
                    steps.take(to_u64(a.len().min(b.len())) / 64)?;
                }
                a.zip(b).and_then(|(a, b)| a.compare(*op, b)).map(FormulaValue::Boolean)
            }
            Self::Among(of, among) => {
                let Some(of) = of.compute(input, each, steps)? else { return Ok(None) };
                Some(FormulaValue::Boolean(is_among(
                    of,
                    among.iter().map(|constant| Some(constant.to_value())),
                    steps,
                )?))
            }
            Self::In(of, slot) => {
                let Some(of) = of.compute(input, each, steps)? else { return Ok(None) };
                let Some(values) = input.fields.slot(*slot).values.as_deref() else { return Ok(None) };
                Some(FormulaValue::Boolean(is_among(
                    of,
                    values.iter().map(|(_, value)| FormulaValue::from_item_value(value)),
                    steps,
                )?))
            }
            Self::Part(op, of, part) => {
                match (of.compute(input, each, steps)?, part.compute(input, each, steps)?) {
                    (Some(FormulaValue::Text(of)), Some(FormulaValue::Text(part))) => {
                        let read = match op {
                            // A part that is longer than the text is rejected by its length.
                            _ if part.len() > of.len() => 1,
                            Op::StartsWith | Op::EndsWith => 1 + to_u64(part.len()) / 64,
                            _ => search_steps(of.len(), part.len()),
                        };
                        steps.take(read)?;
                        Some(FormulaValue::Boolean(match op {
                            _ if part.len() > of.len() => false,
                            Op::StartsWith => of.starts_with(part),
                            Op::EndsWith => of.ends_with(part),
                            _ => memmem::find(of.as_bytes(), part.as_bytes()).is_some(),
                        }))
                    }
                    _ => None,
                }
            }
            Self::Matches(of, pattern) => match of.compute(input, each, steps)? {
                Some(FormulaValue::Text(text)) => Some(FormulaValue::Boolean(pattern.is_match(text, steps)?)),
                _ => None,
            },
            Self::Quantified { every, slot, body } => {
                let Some(values) = input.fields.slot(*slot).values.as_deref() else { return Ok(None) };
                let mut has_missing = false;
                for (_, value) in values {
                    match body.compute(input, FormulaValue::from_item_value(value), steps)? {
                        Some(FormulaValue::Boolean(is_met)) if is_met != *every => {
                            // This element decides the result, even if another one fails.
                            return Ok(Some(FormulaValue::Boolean(is_met)));
                        }
                        Some(FormulaValue::Boolean(_)) => {}
                        _ => has_missing = true,
                    }
                }
                (!has_missing).then_some(FormulaValue::Boolean(*every))
            }
        })
    }
}

/// True if the value equals one of the others. Texts of different lengths are not compared byte by byte.
fn is_among<'w>(
    of: FormulaValue<'_>,
    values: impl Iterator<Item = Option<FormulaValue<'w>>>,
    steps: &mut Steps,
) -> Result<bool, OutOfSteps> {
    for value in values {
        let compared_bytes = match (value, of) {
            (Some(FormulaValue::Text(value)), FormulaValue::Text(of)) if value.len() != of.len() => None,
            (Some(FormulaValue::Text(_)), FormulaValue::Text(of)) => Some(of.len()),
            _ => Some(0),
        };
        steps.take(1 + to_u64(compared_bytes.unwrap_or_default()) / 64)?;
        if compared_bytes.and(value).and_then(|value| value.compare(Op::Eq, of)) == Some(true) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Evaluates `&&` or `||`. A side with the value `deciding` decides the result, even if the other side fails.
fn evaluate_junction<'v>(
    deciding: bool,
    sides: [&'v Code; 2],
    input: &'v EvalInput<'_>,
    each: Option<FormulaValue<'v>>,
    steps: &mut Steps,
) -> FormulaResult<'v> {
    let mut has_missing = false;
    for side in sides {
        match side.compute(input, each, steps)? {
            Some(FormulaValue::Boolean(boolean)) if boolean == deciding => {
                return Ok(Some(FormulaValue::Boolean(deciding)));
            }
            Some(FormulaValue::Boolean(_)) => {}
            _ => has_missing = true,
        }
    }
    Ok((!has_missing).then_some(FormulaValue::Boolean(!deciding)))
}

/// Returns a whole number, or `None` beyond 64 bits.
fn to_bounded<'v>(whole: Option<i128>) -> Option<FormulaValue<'v>> {
    let number = i64::try_from(whole?).ok()?;
    Some(FormulaValue::Number(Number::from(number)))
}

fn compute_arithmetic<'v>(sign: Arithmetic, a: Number, b: Number) -> Option<FormulaValue<'v>> {
    // Whole numbers are computed exactly. An overflow or a division by zero fails.
    if let (Number::Whole(a), Number::Whole(b)) = (a, b) {
        return to_bounded(match sign {
            Arithmetic::Plus => a.checked_add(b),
            Arithmetic::Minus => a.checked_sub(b),
            Arithmetic::Times => a.checked_mul(b),
            Arithmetic::Over => a.checked_div(b),
            Arithmetic::Remainder => a.checked_rem(b),
        });
    }
    let (a, b) = (a.to_f64(), b.to_f64());
    let fraction = match sign {
        Arithmetic::Plus => a + b,
        Arithmetic::Minus => a - b,
        Arithmetic::Times => a * b,
        Arithmetic::Over => a / b,
        // CEL defines the remainder of whole numbers only.
        Arithmetic::Remainder => return None,
    };
    // Infinity counts as a failure, as a whole number beyond 64 bits does.
    fraction.is_finite().then_some(FormulaValue::Number(Number::Fraction(fraction)))
}

/// Explanation of a formula.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FormulaExplained {
    pub outcome: ConditionResult,
    pub formula: String,
    /// Values of its fields, or the first ones of a list. Absent fields are left out.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub values: Map<String, Json>,
}
