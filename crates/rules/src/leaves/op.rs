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
        /// The text starts with one of the operands.
        StartsWith = "starts_with",
        EndsWith = "ends_with",
        Contains = "contains",
        Exists = "exists",
    }
}

/// True if the order holds between a number and the end of a range.
pub(crate) fn order_holds(op: Op, number: Number, end: Number) -> bool {
    match op {
        Op::Lt => number < end,
        Op::Lte => number <= end,
        Op::Gt => number > end,
        Op::Gte => number >= end,
        _ => false,
    }
}
