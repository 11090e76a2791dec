//! Operators of comparisons.

use crate::item::Number;

tidegate_schemas::string_enum! {
    /// Operator of a comparison.
    pub enum Op {
        Eq = "eq",
        Ne = "ne",
        Lt = "lt",
        Lte = "lte",
        Gt = "gt",
        Gte = "gte",
        In = "in",
        NotIn = "not_in",
        /// The text begins with one of these.
        StartsWith = "starts_with",
        EndsWith = "ends_with",
        Contains = "contains",
        Exists = "exists",
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
