//! Constraints of conditions on single values, with which lint finds contradictions.

use tidegate_schemas::ids::WindowId;

use super::op::{Op, order_holds};
use crate::item::Number;

/// Requirement of a condition on one value.
#[derive(Debug)]
pub(crate) struct Constraint {
    pub(crate) subject: Subject,
    pub(crate) allowed: Allowed,
}

/// Quantity with at most one value in an item.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Subject {
    /// True if the field is present.
    Presence(usize),
    /// Value at a path; a text is in lower case if the comparison ignores case.
    Value {
        slot: usize,
        lower: bool,
    },
    /// Milliseconds from the item's append time to the instant at a path.
    Age(usize),
    /// Value of a list that must pass all tests of one condition.
    OfList,
    Score {
        model: String,
        label: Option<String>,
    },
    Strikes {
        within: Option<i64>,
    },
    Count(WindowId),
    /// No value: the condition cannot have this outcome.
    Never,
}

#[derive(Debug)]
pub(crate) enum Allowed {
    /// `lt`, `lte`, `gt` or `gte` a number.
    Order(Op, Number),
    OneOf(Vec<Constant>),
    NoneOf(Vec<Constant>),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Constant {
    Number(Number),
    Boolean(bool),
    Text(String),
}

impl Constraint {
    pub(crate) fn impossible() -> Self {
        Self { subject: Subject::Never, allowed: Allowed::OneOf(Vec::new()) }
    }

    pub(crate) fn presence(slot: usize, present: bool) -> Self {
        Self { subject: Subject::Presence(slot), allowed: Allowed::OneOf(vec![Constant::Boolean(present)]) }
    }

    /// Negates the constraint. The value is present in both cases.
    pub(crate) fn negated(self) -> Self {
        let allowed = match self.allowed {
            Allowed::Order(op, end) => Allowed::Order(
                match op {
                    Op::Lt => Op::Gte,
                    Op::Lte => Op::Gt,
                    Op::Gt => Op::Lte,
                    _ => Op::Lt,
                },
                end,
            ),
            Allowed::OneOf(list) => Allowed::NoneOf(list),
            Allowed::NoneOf(list) => Allowed::OneOf(list),
        };
        Self { allowed, ..self }
    }
}

/// Maximum number of listed values. Pairs of values are compared, so longer lists would take minutes.
const MAX_LISTED_VALUES: usize = 1_000;

/// End of a range, and true if the range includes it.
type End = (Number, bool);

/// True if no value meets all of these constraints of one subject.
pub(crate) fn are_contradictory(constraints: &[&Allowed]) -> bool {
    let lists = || {
        constraints.iter().filter_map(|allowed| match allowed {
            Allowed::OneOf(list) | Allowed::NoneOf(list) => Some(list.len()),
            Allowed::Order(..) => None,
        })
    };
    if lists().sum::<usize>() > MAX_LISTED_VALUES {
        return false;
    }
    let allows = |constant: &Constant| {
        constraints.iter().all(|allowed| match allowed {
            Allowed::OneOf(list) => list.contains(constant),
            Allowed::NoneOf(list) => !list.contains(constant),
            Allowed::Order(op, end) => {
                matches!(constant, Constant::Number(number) if order_holds(*op, *number, *end))
            }
        })
    };
    let allowed_list = constraints.iter().find_map(|allowed| match allowed {
        Allowed::OneOf(list) => Some(list),
        _ => None,
    });
    if let Some(list) = allowed_list {
        return !list.iter().any(allows);
    }
    // Without a list only orders can contradict: the greatest lower end must lie below the least upper one.
    let (mut low, mut high): (Option<End>, Option<End>) = (None, None);
    for allowed in constraints {
        match allowed {
            Allowed::Order(op @ (Op::Gt | Op::Gte), end) => {
                let closed = *op == Op::Gte;
                if low.is_none_or(|(low, _)| *end > low) || low == Some((*end, true)) {
                    low = Some((*end, closed));
                }
            }
            Allowed::Order(op, end) => {
                let closed = *op == Op::Lte;
                if high.is_none_or(|(high, _)| *end < high) || high == Some((*end, true)) {
                    high = Some((*end, closed));
                }
            }
            _ => {}
        }
    }
    low.zip(high).is_some_and(|((low, low_closed), (high, high_closed))| {
        // If both ends are the same number, both ranges must include it and no list may exclude it.
        low > high || low == high && !(low_closed && high_closed && allows(&Constant::Number(low)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contradicts(allowed: &[Allowed]) -> bool {
        are_contradictory(&allowed.iter().collect::<Vec<_>>())
    }

    fn order(op: Op, end: i64) -> Allowed {
        Allowed::Order(op, end.into())
    }

    #[test]
    fn ranges_without_a_number_contradict() {
        let ne = |number: i64| Allowed::NoneOf(vec![Constant::Number(number.into())]);
        assert!(contradicts(&[order(Op::Gt, 5), order(Op::Lt, 5)]));
        assert!(contradicts(&[order(Op::Gte, 5), order(Op::Lt, 5)]));
        assert!(contradicts(&[order(Op::Gte, 5), order(Op::Lte, 5), ne(5)]));
        assert!(!contradicts(&[order(Op::Gte, 5), order(Op::Lte, 5), ne(6)]));
        assert!(!contradicts(&[order(Op::Gt, 5), order(Op::Lt, 6)]));
        assert!(!contradicts(&[order(Op::Gt, 5), order(Op::Gt, 6), ne(7)]));
        for both in [[Op::Gte, Op::Gt], [Op::Gt, Op::Gte]] {
            assert!(contradicts(&[order(both[0], 5), order(both[1], 5), order(Op::Lte, 5)]));
        }
    }

    #[test]
    fn lists_without_an_allowed_value_contradict() {
        let text = |texts: &[&str]| texts.iter().map(|text| Constant::Text((*text).to_owned())).collect();
        assert!(contradicts(&[Allowed::OneOf(text(&["a", "b"])), Allowed::OneOf(text(&["c"]))]));
        assert!(contradicts(&[Allowed::NoneOf(text(&["b", "a"])), Allowed::OneOf(text(&["a", "b"]))]));
        assert!(!contradicts(&[Allowed::NoneOf(text(&["b"])), Allowed::OneOf(text(&["a", "b"]))]));
        let five = Allowed::OneOf(vec![Constant::Number(Number::Fraction(5.0))]);
        assert!(!contradicts(&[five, order(Op::Gte, 5)]));
    }
}
