//! Checks single values against the schema; `walk` checks objects and lists.

use super::{formats, rules::Rule};
use crate::{
    form::{Answer, Format, Text as Bounds, Value},
    json::{Flaw, Number, Text},
};

#[inline]
pub(super) fn check_text(form: &Value, text: &Text<'_>, schema: &str) -> Option<Rule> {
    match form {
        Value::Text(bounds) | Value::TextOrNull(bounds) => check_bounds(bounds, text),
        Value::Answer if Answer::parse(text.bytes).is_some() => None,
        Value::Schema if text.bytes == schema.as_bytes() => None,
        Value::Constant(constant) if text.bytes == constant.as_bytes() => None,
        Value::Arbitrary => None,
        other => Some(type_rule(other)),
    }
}

#[inline]
fn check_bounds(bounds: &Bounds, text: &Text<'_>) -> Option<Rule> {
    // The text was cut at the length limit, which is already a finding.
    if text.flaws & Flaw::Long as u8 != 0 {
        return None;
    }
    match bounds.format {
        Some(Format::DateTime) if !formats::is_date_time(text.bytes) => return Some(Rule::DateTime),
        Some(Format::Uri) if !formats::is_uri(text.bytes) => return Some(Rule::Uri),
        _ => {}
    }
    if bounds.min_chars == 0 && bounds.max_chars == u64::MAX {
        return None;
    }
    match text.length() {
        length if length < bounds.min_chars => Some(Rule::Short),
        length if length > bounds.max_chars => Some(Rule::Lengthy),
        _ => None,
    }
}

/// Rule that a value of the wrong type violates.
pub(super) fn type_rule(form: &Value) -> Rule {
    match form {
        Value::Schema | Value::Constant(_) => Rule::Constant,
        Value::Answer => Rule::Answer,
        _ => Rule::Type,
    }
}

pub(super) fn check_number(form: &Value, number: &Number) -> Option<Rule> {
    match form {
        Value::Integer { .. } if !number.is_whole => Some(Rule::Type),
        Value::Integer { least } if !number.is_at_least(*least) => Some(Rule::Small),
        Value::Number { from_zero_to_one: true } if !number.is_at_least(0) => Some(Rule::Small),
        Value::Number { from_zero_to_one: true } if !number.is_at_most_one() => Some(Rule::Large),
        Value::Integer { .. } | Value::Number { .. } | Value::Arbitrary => None,
        other => Some(type_rule(other)),
    }
}
