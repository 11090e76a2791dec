//! Parses expressions, a checked subset of CEL, and converts them to conditions.
//!
//! A plain comparison of a field becomes a `field` condition, so that it is indexed and explained like any other; `&&`, `||`
//! and `!` become `all`, `any` and `not`. The other parts become formulas.

use serde_json::Value as Json;
use tidegate_schemas::item_types::datetime;

use super::Condition;
use crate::{
    item::Number,
    leaves::{
        LeafSpec,
        field::{Comparison, Quantifier},
        formula::{
            Formula,
            ast::{Arithmetic, Ast},
        },
        op::Op,
    },
    reader::TOO_PRECISE,
    vocabulary::Container,
};

/// Error in an expression, with the number of its character.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ExprError {
    pub(super) at: usize,
    pub(super) message: String,
}

/// Maximum number of parts of one expression.
const MAX_NODES: usize = 500;

/// Digits of the smallest whole number, without its sign.
const MIN_DIGITS: &str = "9223372036854775808";

fn continues_number(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_')
}

/// Maximum nesting of brackets and signs.
const MAX_DEPTH: usize = 24;

/// Parses an expression. Returns its condition and the number of its parts.
pub(super) fn parse_expression(source: &str) -> Result<(Condition, usize), ExprError> {
    let mut reader = Reader { source, at: 0, element_name: None, nodes: 0, depth: 0 };
    let part = reader.parse_or()?;
    reader.skip_whitespace();
    if reader.at < source.len() {
        return Err(reader.error("expected an operator or the end"));
    }
    let nodes = reader.nodes;
    Ok((reader.to_condition(part), nodes))
}

/// Part of an expression, with its range in the source.
struct Part {
    body: Ast,
    start: usize,
    end: usize,
    /// Operands of a chain of `&&` or `||`, which becomes one flat node, or of `!`.
    inner: Vec<Part>,
}

struct Reader<'s> {
    source: &'s str,
    at: usize,
    /// Name of the element in `exists` or `all`.
    element_name: Option<String>,
    nodes: usize,
    depth: usize,
}

const ORDERS: [(&str, Op); 6] =
    [("==", Op::Eq), ("!=", Op::Ne), ("<=", Op::Lte), (">=", Op::Gte), ("<", Op::Lt), (">", Op::Gt)];

impl Reader<'_> {
    fn error(&self, message: impl Into<String>) -> ExprError {
        ExprError { at: self.source[..self.at].chars().count() + 1, message: message.into() }
    }

    fn skip_whitespace(&mut self) {
        let rest = &self.source[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }

    fn remaining(&mut self) -> &str {
        self.skip_whitespace();
        &self.source[self.at..]
    }

    fn take(&mut self, sign: &str) -> bool {
        let is_present = self.remaining().starts_with(sign);
        if is_present {
            self.at += sign.len();
        }
        is_present
    }

    fn expect(&mut self, sign: &str) -> Result<(), ExprError> {
        if self.take(sign) { Ok(()) } else { Err(self.error(format!("expected `{sign}`"))) }
    }

    /// Reads the word at this place, if there is one.
    fn take_word(&mut self) -> Option<String> {
        let rest = self.remaining();
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        let word = rest[..end].to_owned();
        if word.is_empty() || word.starts_with(|c: char| c.is_ascii_digit()) {
            return None;
        }
        self.at += word.len();
        Some(word)
    }

    fn finish_part(&mut self, start: usize, body: Ast) -> Result<Part, ExprError> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(self.error(format!("the expression has more than {MAX_NODES} parts")));
        }
        Ok(Part { body, start, end: self.at, inner: Vec::new() })
    }

    fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, ExprError>) -> Result<T, ExprError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.error(format!("the expression is nested deeper than {MAX_DEPTH} levels")));
        }
        let result = read(self);
        self.depth -= 1;
        result
    }

    fn start(&mut self) -> usize {
        self.skip_whitespace();
        self.at
    }

    fn parse_or(&mut self) -> Result<Part, ExprError> {
        let start = self.start();
        let operand = self.parse_and()?;
        let part = self
            .parse_chain(start, operand, "||", Self::parse_and, |a, b| Ast::Or(Box::new(a), Box::new(b)))?;
        // The conditional operator of CEL is outside of the subset.
        if self.remaining().starts_with('?') {
            return Err(self.error("the conditional operator `?` is not supported: use || and &&"));
        }
        Ok(part)
    }

    fn parse_and(&mut self) -> Result<Part, ExprError> {
        let start = self.start();
        let operand = self.parse_relation()?;
        self.parse_chain(start, operand, "&&", Self::parse_relation, |a, b| {
            Ast::And(Box::new(a), Box::new(b))
        })
    }

    fn parse_chain(
        &mut self,
        start: usize,
        first: Part,
        sign: &str,
        read: fn(&mut Self) -> Result<Part, ExprError>,
        join: fn(Ast, Ast) -> Ast,
    ) -> Result<Part, ExprError> {
        let mut inner = vec![first];
        while self.take(sign) {
            inner.push(read(self)?);
        }
        if inner.len() == 1 {
            return Ok(inner.remove(0));
        }
        // A condition needs the operands as a flat list, a formula as nested pairs.
        let mut bodies = inner.iter().map(|part| part.body.clone());
        let first = bodies.next().unwrap_or(Ast::Boolean(true));
        let body = bodies.fold(first, join);
        let part = self.finish_part(start, body)?;
        Ok(Part { inner, ..part })
    }

    fn parse_relation(&mut self) -> Result<Part, ExprError> {
        let start = self.start();
        let first_operand = self.parse_sum()?;
        let order = ORDERS.into_iter().find(|(sign, _)| self.take(sign));
        if let Some((_, op)) = order {
            let right = self.parse_sum()?;
            // CEL would compare the boolean result of the first comparison, which is hardly intended.
            if ORDERS.iter().any(|(sign, _)| self.remaining().starts_with(sign)) {
                return Err(self.error("comparisons cannot be chained: join them with &&"));
            }
            return self
                .finish_part(start, Ast::Compare(op, Box::new(first_operand.body), Box::new(right.body)));
        }
        // The next word is consumed only if it is `in`.
        let before = self.at;
        if self.take_word().as_deref() != Some("in") {
            self.at = before;
            return Ok(first_operand);
        }
        if self.take("[") {
            let choices = self.parse_constants()?;
            return self.finish_part(start, Ast::Among(Box::new(first_operand.body), choices));
        }
        match self.parse_sum()?.body {
            Ast::Path(path) => self.finish_part(start, Ast::In(Box::new(first_operand.body), path)),
            _ => Err(self.error("`in` takes a list of constants or a field")),
        }
    }

    fn parse_constants(&mut self) -> Result<Vec<Ast>, ExprError> {
        let mut constants = Vec::new();
        while !self.take("]") {
            let constant = self.parse_sum()?.body;
            if !is_constant(&constant) {
                return Err(self.error("a list holds constants only"));
            }
            constants.push(constant);
            if !self.take(",") {
                self.expect("]")?;
                break;
            }
        }
        if constants.is_empty() {
            Err(self.error("the list is empty: add a constant"))
        } else {
            Ok(constants)
        }
    }

    fn parse_sum(&mut self) -> Result<Part, ExprError> {
        self.parse_operators(&[("+", Arithmetic::Plus), ("-", Arithmetic::Minus)], Self::parse_product)
    }

    fn parse_product(&mut self) -> Result<Part, ExprError> {
        let signs = [("*", Arithmetic::Times), ("/", Arithmetic::Over), ("%", Arithmetic::Remainder)];
        self.parse_operators(&signs, Self::parse_signed)
    }

    fn parse_operators(
        &mut self,
        signs: &[(&str, Arithmetic)],
        read: fn(&mut Self) -> Result<Part, ExprError>,
    ) -> Result<Part, ExprError> {
        let start = self.start();
        let mut left = read(self)?;
        // Operators of one level associate to the left: `a - b - c` is `(a - b) - c`.
        while let Some((_, sign)) = signs.iter().find(|(sign, _)| self.take(sign)) {
            let right = read(self)?;
            left =
                self.finish_part(start, Ast::Arithmetic(*sign, Box::new(left.body), Box::new(right.body)))?;
        }
        Ok(left)
    }

    fn parse_signed(&mut self) -> Result<Part, ExprError> {
        let start = self.start();
        // `!=` is a comparison and no negation.
        if !self.remaining().starts_with("!=") && self.take("!") {
            let inner = self.nested(Self::parse_signed)?;
            let part = self.finish_part(start, Ast::Not(Box::new(inner.body.clone())))?;
            return Ok(Part { inner: vec![inner], ..part });
        }
        if self.take("-") {
            // The smallest number has no positive counterpart, so it is read together with its sign.
            if self
                .remaining()
                .strip_prefix(MIN_DIGITS)
                .is_some_and(|rest| !rest.starts_with(continues_number))
            {
                self.at += MIN_DIGITS.len();
                return self.finish_part(start, Ast::Number(Number::from(i64::MIN)));
            }
            let inner = self.nested(Self::parse_signed)?.body;
            let body = match inner {
                Ast::Number(Number::Whole(whole)) if whole == i64::MIN.into() => {
                    return Err(self.error("the number does not fit into 64 bits"));
                }
                // A sign becomes part of its number, so that comparisons with negative constants stay plain.
                Ast::Number(Number::Whole(whole)) => Ast::Number(Number::Whole(-whole)),
                Ast::Number(Number::Fraction(fraction)) => Ast::Number(Number::Fraction(-fraction)),
                inner => Ast::Negative(Box::new(inner)),
            };
            return self.finish_part(start, body);
        }
        let primary = self.parse_primary()?;
        self.parse_calls(start, primary)
    }

    /// Parses the calls after a value: `.contains("x")`, `.exists(x, ...)`.
    fn parse_calls(&mut self, start: usize, mut part: Part) -> Result<Part, ExprError> {
        while self.take(".") {
            let Some(name) = self.take_word() else { return Err(self.error("expected a name")) };
            self.expect("(")?;
            let body = match name.as_str() {
                "contains" | "startsWith" | "endsWith" => {
                    let op = match name.as_str() {
                        "contains" => Op::Contains,
                        "startsWith" => Op::StartsWith,
                        _ => Op::EndsWith,
                    };
                    let argument = self.nested(Self::parse_or)?.body;
                    Ast::Part(op, Box::new(part.body), Box::new(argument))
                }
                "matches" => match self.nested(Self::parse_or)?.body {
                    Ast::Text(pattern) if !pattern.is_empty() => Ast::Matches(Box::new(part.body), pattern),
                    _ => return Err(self.error("`matches` takes a literal pattern")),
                },
                "size" => Ast::Size(Box::new(part.body)),
                "exists" | "all" => self.parse_quantifier(name == "all", part.body)?,
                other => return Err(self.error(format!("unknown function `{other}`"))),
            };
            self.expect(")")?;
            part = self.finish_part(start, body)?;
        }
        Ok(part)
    }

    fn parse_quantifier(&mut self, every: bool, of: Ast) -> Result<Ast, ExprError> {
        let Ast::Path(path) = of else { return Err(self.error("`exists` and `all` apply to a field")) };
        if self.element_name.is_some() {
            return Err(self.error("`exists` and `all` cannot be nested"));
        }
        // An element named `item` would hide the fields of the item.
        let Some(name) = self.take_word().filter(|name| name != "item") else {
            return Err(self.error("expected a name for the values"));
        };
        self.expect(",")?;
        self.element_name = Some(name.clone());
        let body = Box::new(self.nested(Self::parse_or)?.body);
        self.element_name = None;
        Ok(Ast::Quantified { every, path, name, body })
    }

    fn parse_primary(&mut self) -> Result<Part, ExprError> {
        let start = self.start();
        let rest = self.remaining();
        match rest.chars().next() {
            Some('(') => {
                self.at += 1;
                let inner = self.nested(Self::parse_or)?;
                self.expect(")")?;
                // The range includes the parentheses, so that a formula is shown as it was written.
                Ok(Part { start, end: self.at, ..inner })
            }
            Some('"' | '\'') => {
                let text = self.parse_text()?;
                self.finish_part(start, Ast::Text(text))
            }
            Some(digit) if digit.is_ascii_digit() => {
                let number = self.parse_number()?;
                self.finish_part(start, Ast::Number(number))
            }
            Some(_) => {
                let Some(word) = self.take_word() else { return Err(self.error("expected a value")) };
                let body = self.parse_name(&word)?;
                self.finish_part(start, body)
            }
            None => Err(self.error("expected a value, found the end")),
        }
    }

    fn parse_name(&mut self, word: &str) -> Result<Ast, ExprError> {
        match word {
            "true" => Ok(Ast::Boolean(true)),
            "false" => Ok(Ast::Boolean(false)),
            "item" => self.parse_path().map(Ast::Path),
            "has" => {
                self.expect("(")?;
                if self.take_word().as_deref() != Some("item") {
                    return Err(self.error("`has` takes a field, such as item.data.title"));
                }
                let path = self.parse_path()?;
                self.expect(")")?;
                Ok(Ast::Has(path))
            }
            "size" => {
                self.expect("(")?;
                let of = self.nested(Self::parse_or)?.body;
                self.expect(")")?;
                Ok(Ast::Size(Box::new(of)))
            }
            "timestamp" => {
                self.expect("(")?;
                self.skip_whitespace();
                let text = self.parse_text()?;
                self.expect(")")?;
                match datetime::parse(&text) {
                    Some(_) if datetime::is_finer(&text) => Err(self.error(TOO_PRECISE)),
                    Some(_) => Ok(Ast::Instant(text)),
                    None => Err(self.error("expected an instant such as 2026-01-31T12:00:00.000Z")),
                }
            }
            name if self.element_name.as_deref() == Some(name) => Ok(Ast::Each),
            other => Err(self.error(format!("unknown name `{other}`: fields are written item.data.{other}"))),
        }
    }

    /// Parses `.data`, then names and keys, up to a call.
    fn parse_path(&mut self) -> Result<String, ExprError> {
        const EXPECTED: &str = "expected a field, such as item.data.title";
        if !self.take(".") || self.take_word().as_deref() != Some("data") {
            return Err(self.error(EXPECTED));
        }
        let mut path = String::new();
        loop {
            let before = self.at;
            let step = if self.take("[") {
                self.skip_whitespace();
                let key = self.parse_text()?;
                self.expect("]")?;
                key
            } else if self.take(".") {
                let Some(name) = self.take_word() else {
                    return Err(self.error("expected the name of a field"));
                };
                // A name before a parenthesis is a call and no step of the path.
                if self.source[self.at..].starts_with('(') {
                    self.at = before;
                    break;
                }
                name
            } else {
                break;
            };
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(&step);
        }
        if path.is_empty() { Err(self.error(EXPECTED)) } else { Ok(path) }
    }

    fn parse_number(&mut self) -> Result<Number, ExprError> {
        let rest = self.remaining();
        let mut end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let digits =
            |from: usize| rest[from..].find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len() - from);
        // A dot without a digit after it begins a call.
        if rest[end..].starts_with('.') && digits(end + 1) > 0 {
            end += 1 + digits(end + 1);
        }
        if rest[end..].starts_with(['e', 'E']) {
            let sign = usize::from(rest[end + 1..].starts_with(['+', '-']));
            if digits(end + 1 + sign) > 0 {
                end += 1 + sign + digits(end + 1 + sign);
            }
        }
        let text = rest[..end].to_owned();
        let number = match text.parse::<i64>() {
            Ok(whole) => Some(Number::from(whole)),
            // A whole number beyond 64 bits is an error, and is not rounded to a float.
            Err(_) if text.contains(['.', 'e', 'E']) => {
                text.parse::<f64>().ok().filter(|n| n.is_finite()).map(Number::from)
            }
            Err(_) => None,
        };
        let number = number.ok_or_else(|| self.error("the number does not fit into 64 bits"))?;
        self.at += end;
        if self.source[self.at..].starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_') {
            return Err(self.error("unexpected character after a number"));
        }
        Ok(number)
    }

    fn parse_text(&mut self) -> Result<String, ExprError> {
        let mut letters = self.source[self.at..].char_indices();
        let Some((_, quote @ ('"' | '\''))) = letters.next() else {
            return Err(self.error("expected a text in quotes"));
        };
        let mut text = String::new();
        while let Some((place, letter)) = letters.next() {
            match letter {
                _ if letter == quote => {
                    self.at += place + 1;
                    return Ok(text);
                }
                '\n' => break,
                '\\' => match letters.next() {
                    Some((_, escaped @ ('\\' | '"' | '\'' | '`' | '?'))) => text.push(escaped),
                    Some((_, 'n')) => text.push('\n'),
                    Some((_, 't')) => text.push('\t'),
                    Some((_, 'r')) => text.push('\r'),
                    _ => {
                        self.at += place;
                        return Err(self.error("expected \\\\, \\\", \\', \\n, \\r or \\t"));
                    }
                },
                _ => text.push(letter),
            }
        }
        Err(self.error("the text has no closing quote"))
    }

    /// Converts a part to a condition.
    fn to_condition(&self, part: Part) -> Condition {
        match (&part.body, part.inner.len()) {
            (Ast::And(..), 1..) => {
                Condition::All(part.inner.into_iter().map(|part| self.to_condition(part)).collect())
            }
            (Ast::Or(..), 1..) => {
                Condition::Any(part.inner.into_iter().map(|part| self.to_condition(part)).collect())
            }
            (Ast::Not(_), 1) => part.inner.into_iter().next().map_or(Condition::All(Vec::new()), |inner| {
                Condition::Not(Box::new(self.to_condition(inner)))
            }),
            _ => to_comparison(&part.body).unwrap_or_else(|| {
                let source = self.source[part.start..part.end].trim().to_owned();
                Condition::Leaf(LeafSpec::Formula(Formula { source, body: part.body }))
            }),
        }
    }
}

fn is_constant(part: &Ast) -> bool {
    matches!(part, Ast::Number(_) | Ast::Text(_) | Ast::Boolean(_) | Ast::Instant(_))
}

fn to_constant(part: &Ast) -> Option<Json> {
    match part {
        Ast::Number(number) => Some(number.to_json()),
        Ast::Text(text) | Ast::Instant(text) => Some(Json::from(text.as_str())),
        Ast::Boolean(boolean) => Some(Json::from(*boolean)),
        _ => None,
    }
}

/// Converts a part to a plain comparison, if it is one.
fn to_comparison(part: &Ast) -> Option<Condition> {
    let compare_field = |path: &str, of: Option<Quantifier>, container: Container, op: Op, operand: Json| {
        let (path, container) = (path.to_owned(), Some(container));
        Some(Condition::Leaf(LeafSpec::Field(Comparison {
            path,
            of,
            ignore_case: false,
            tests: vec![(op, operand)],
            container,
        })))
    };
    match part {
        Ast::Path(path) => compare_field(path, None, Container::One, Op::Eq, Json::from(true)),
        Ast::Has(path) => Some(Condition::Leaf(LeafSpec::Field(Comparison {
            path: path.clone(),
            of: None,
            ignore_case: false,
            tests: vec![(Op::Exists, Json::from(true))],
            container: None,
        }))),
        Ast::Compare(op, left, right) => match (&**left, &**right) {
            (Ast::Path(path), right) => compare_field(path, None, Container::One, *op, to_constant(right)?),
            (left, Ast::Path(path)) => {
                compare_field(path, None, Container::One, mirror(*op), to_constant(left)?)
            }
            _ => None,
        },
        Ast::Among(of, among) => {
            let Ast::Path(path) = &**of else { return None };
            compare_field(path, None, Container::One, Op::In, among.iter().filter_map(to_constant).collect())
        }
        Ast::In(value, path) => {
            compare_field(path, Some(Quantifier::Any), Container::List, Op::Eq, to_constant(value)?)
        }
        Ast::Part(op, of, part) => {
            let (Ast::Path(path), Ast::Text(text)) = (&**of, &**part) else { return None };
            compare_field(path, None, Container::One, *op, Json::from(text.as_str()))
        }
        Ast::Quantified { every, path, body, .. } => {
            let of = Some(if *every { Quantifier::All } else { Quantifier::Any });
            let (op, operand) = match &**body {
                Ast::Compare(op, left, right) => match (&**left, &**right) {
                    (Ast::Each, right) => (*op, to_constant(right)?),
                    (left, Ast::Each) => (mirror(*op), to_constant(left)?),
                    _ => return None,
                },
                Ast::Among(each, among) if **each == Ast::Each => {
                    (Op::In, among.iter().filter_map(to_constant).collect())
                }
                Ast::Part(op, each, part) if **each == Ast::Each => (*op, to_constant(part)?),
                _ => return None,
            };
            compare_field(path, of, Container::List, op, operand)
        }
        _ => None,
    }
}

/// Mirrors an order for swapped operands.
fn mirror(op: Op) -> Op {
    match op {
        Op::Lt => Op::Gt,
        Op::Lte => Op::Gte,
        Op::Gt => Op::Lt,
        Op::Gte => Op::Lte,
        other => other,
    }
}
