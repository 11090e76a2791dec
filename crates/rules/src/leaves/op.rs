//! Operators of comparisons.

use serde::{Deserialize, Serialize};

use crate::item::Number;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    Eq,
    Ne,
    Lt,
    Lte,
    Gt,
    Gte,
    In,
    NotIn,
    /// The text begins with one of these.
    StartsWith,
    EndsWith,
    Contains,
    Exists,
}

impl Op {
    pub(crate) const NAMES: [(&'static str, Self); 12] = [
        ("eq", Self::Eq),
        ("ne", Self::Ne),
        ("lt", Self::Lt),
        ("lte", Self::Lte),
        ("gt", Self::Gt),
        ("gte", Self::Gte),
        ("in", Self::In),
        ("not_in", Self::NotIn),
        ("starts_with", Self::StartsWith),
        ("ends_with", Self::EndsWith),
        ("contains", Self::Contains),
        ("exists", Self::Exists),
    ];

    pub(crate) fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, op)| *op == self).map_or("", |(name, _)| name)
    }
}

/// True if a number lies on the side of an end that the operator asks for.
pub(crate) fn holds(op: Op, number: Number, end: Number) -> bool {
    match op {
        Op::Lt => number < end,
        Op::Lte => number <= end,
        Op::Gt => number > end,
        Op::Gte => number >= end,
        _ => false,
    }
}
