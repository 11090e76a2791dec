//! Sets of values that a condition lets through: pieces of a line, or texts that are listed or left out.
//!
//! It does not know conditions.

use std::{cmp::Ordering, collections::BTreeSet};

use crate::{form::Op, item::Number};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Domain {
    /// Pieces from one cut to another, in order and apart.
    Line(Vec<(Cut, Cut)>),
    /// Only these texts.
    Listed(BTreeSet<String>),
    /// All texts but these.
    Except(BTreeSet<String>),
}

/// A place between values.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cut {
    Low,
    Before(Number),
    After(Number),
    High,
}

/// What a line holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grain {
    /// Between two values there is another one.
    Dense,
    /// Whole numbers.
    Whole,
}

impl Cut {
    fn rank(self) -> (u8, Number, bool) {
        match self {
            Self::Low => (0, Number::Whole(0), false),
            Self::Before(number) => (1, number, false),
            Self::After(number) => (1, number, true),
            Self::High => (2, Number::Whole(0), false),
        }
    }

    fn before(number: Number, grain: Grain) -> Self {
        let floor = |fraction: f64| match plain(Number::Fraction(fraction.floor())) {
            Number::Whole(whole) => Number::Whole(whole.saturating_add(1)),
            far @ Number::Fraction(_) => far,
        };
        match (plain(number), grain) {
            (Number::Fraction(fraction), Grain::Whole) => Self::Before(floor(fraction)),
            (number, _) => Self::Before(number),
        }
    }

    fn after(number: Number, grain: Grain) -> Self {
        match (plain(number), grain) {
            (Number::Whole(whole), Grain::Whole) => Self::Before(Number::Whole(whole.saturating_add(1))),
            (number, Grain::Whole) => Self::before(number, grain),
            (number, Grain::Dense) => Self::After(number),
        }
    }
}

impl Ord for Cut {
    fn cmp(&self, other: &Self) -> Ordering {
        let ((a, at, after), (b, other_at, other_after)) = (self.rank(), other.rank());
        a.cmp(&b).then(at.partial_cmp(&other_at).unwrap_or(Ordering::Equal)).then(after.cmp(&other_after))
    }
}

impl PartialOrd for Cut {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Cut {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Cut {}

/// A number as it is written whichever way it came: `1.0` is `1`.
fn plain(number: Number) -> Number {
    match number {
        #[allow(clippy::cast_possible_truncation, reason = "it is whole, and far inside of the range")]
        Number::Fraction(fraction) if fraction.fract() == 0.0 && fraction.abs() < 1e30 => {
            Number::Whole(fraction as i128)
        }
        other => other,
    }
}

impl Domain {
    pub(super) fn line() -> Self {
        Self::Line(vec![(Cut::Low, Cut::High)])
    }

    /// The numbers that are in order to this one; `ne` is everything else.
    pub(super) fn ordered(op: Op, number: Number, grain: Grain) -> Self {
        let (before, after) = (Cut::before(number, grain), Cut::after(number, grain));
        let pieces = match op {
            Op::Lt => vec![(Cut::Low, before)],
            Op::Lte => vec![(Cut::Low, after)],
            Op::Gt => vec![(after, Cut::High)],
            Op::Gte => vec![(before, Cut::High)],
            Op::Ne | Op::NotIn => vec![(Cut::Low, before), (after, Cut::High)],
            _ => vec![(before, after)],
        };
        Self::Line(pieces.into_iter().filter(|(from, to)| from < to).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Line(pieces) => pieces.is_empty(),
            Self::Listed(texts) => texts.is_empty(),
            Self::Except(_) => false,
        }
    }

    /// Whether a text is among them.
    pub(super) fn has(&self, text: &str) -> bool {
        match self {
            Self::Line(_) => true,
            Self::Listed(texts) => texts.contains(text),
            Self::Except(texts) => !texts.contains(text),
        }
    }

    pub(super) fn not(&self) -> Self {
        match self {
            Self::Listed(texts) => Self::Except(texts.clone()),
            Self::Except(texts) => Self::Listed(texts.clone()),
            Self::Line(pieces) => {
                let mut rest = Vec::with_capacity(pieces.len() + 1);
                let mut from = Cut::Low;
                for (start, end) in pieces {
                    rest.extend((from < *start).then_some((from, *start)));
                    from = *end;
                }
                rest.extend((from < Cut::High).then_some((from, Cut::High)));
                Self::Line(rest)
            }
        }
    }

    pub(super) fn and(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Listed(a), Self::Listed(b)) => Self::Listed(a & b),
            (Self::Listed(a), Self::Except(b)) | (Self::Except(b), Self::Listed(a)) => Self::Listed(a - b),
            (Self::Except(a), Self::Except(b)) => Self::Except(a | b),
            (Self::Line(a), Self::Line(b)) => {
                let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
                let mut both = Vec::new();
                while let (Some((a_from, a_to)), Some((b_from, b_to))) = (a.peek(), b.peek()) {
                    let (from, to) = (*a_from.max(b_from), *a_to.min(b_to));
                    both.extend((from < to).then_some((from, to)));
                    if a_to < b_to {
                        a.next()
                    } else {
                        b.next()
                    };
                }
                Self::Line(both)
            }
            // One operand has values of one kind.
            _ => self.clone(),
        }
    }

    pub(super) fn or(&self, other: &Self) -> Self {
        self.not().and(&other.not()).not()
    }

    pub(super) fn is_within(&self, other: &Self) -> bool {
        self.and(other) == *self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(op: Op, number: i64) -> Domain {
        Domain::ordered(op, number.into(), Grain::Whole)
    }

    fn dense(op: Op, number: f64) -> Domain {
        Domain::ordered(op, number.into(), Grain::Dense)
    }

    #[test]
    fn a_line_is_empty_where_no_value_is_left_of_it() {
        for (a, b, empty) in [
            (dense(Op::Gt, 5.0), dense(Op::Lt, 5.0), true),
            (dense(Op::Gte, 5.0), dense(Op::Lt, 5.0), true),
            (dense(Op::Gte, 5.0), dense(Op::Lte, 5.0), false),
            (dense(Op::Gt, 5.0), dense(Op::Lt, 6.0), false),
            (whole(Op::Gt, 5), whole(Op::Lt, 6), true),
            (whole(Op::Gt, 5), whole(Op::Lte, 6), false),
            (Domain::ordered(Op::Eq, 5.5.into(), Grain::Whole), Domain::line(), true),
            (Domain::ordered(Op::Gt, 5.5.into(), Grain::Whole), whole(Op::Lt, 6), true),
            (dense(Op::Eq, 5.0), dense(Op::Ne, 5.0), true),
        ] {
            assert_eq!(a.and(&b).is_empty(), empty, "{a:?} {b:?}");
            assert_eq!(b.and(&a).is_empty(), empty, "{a:?} {b:?}");
        }
        assert_eq!(dense(Op::Lt, 5.0).or(&dense(Op::Gte, 5.0)), Domain::line());
        assert_eq!(whole(Op::Lte, 5).or(&whole(Op::Gte, 6)), Domain::line());
        assert_eq!(dense(Op::Eq, 1.0), Domain::ordered(Op::Eq, 1.into(), Grain::Dense));
        assert_eq!(whole(Op::Ne, 5).not(), whole(Op::Eq, 5));
    }

    #[test]
    fn texts_are_listed_or_left_out() {
        let listed = |texts: &[&str]| Domain::Listed(texts.iter().map(|&text| text.to_owned()).collect());
        let (ab, bc) = (listed(&["a", "b"]), listed(&["b", "c"]));
        assert_eq!(ab.and(&bc), listed(&["b"]));
        assert_eq!(ab.or(&bc), listed(&["a", "b", "c"]));
        assert_eq!(ab.and(&bc.not()), listed(&["a"]));
        assert!(listed(&["b"]).is_within(&ab) && !ab.is_within(&bc) && ab.is_within(&listed(&["d"]).not()));
        assert!(ab.and(&ab.not()).is_empty() && !ab.not().is_empty());
    }
}
