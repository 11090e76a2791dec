//! Numbers as decimal digits, of any length.

use std::cmp::Ordering;

use tidegate_rules::Number;

/// Digits of a number before and after its point. A 64-bit fraction has no more digits than these.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Exact {
    negative: bool,
    whole: String,
    rest: String,
}

impl Exact {
    pub(super) fn of(number: Number) -> Self {
        match number {
            Number::Whole(whole) => Self::digits(&whole.to_string()),
            Number::Fraction(fraction) => Self::digits(&format!("{fraction:.1074}")),
        }
    }

    /// Parses a JSON number. One with a point or an exponent is the nearest float.
    pub(super) fn parse(text: &str) -> Self {
        if text.contains(['.', 'e', 'E']) {
            Self::digits(&format!("{:.1074}", text.parse::<f64>().unwrap()))
        } else {
            Self::digits(text)
        }
    }

    fn digits(text: &str) -> Self {
        let plain = text.trim_start_matches('-');
        let (whole, rest) = plain.split_once('.').unwrap_or((plain, ""));
        let (whole, rest) = (whole.trim_start_matches('0').to_owned(), rest.trim_end_matches('0').to_owned());
        let is_zero = whole.is_empty() && rest.is_empty();
        Self { negative: text.starts_with('-') && !is_zero, whole, rest }
    }
}

impl Ord for Exact {
    fn cmp(&self, other: &Self) -> Ordering {
        let far = |number: &Self| (number.whole.len(), number.whole.clone(), number.rest.clone());
        match (self.negative, other.negative) {
            (false, false) => far(self).cmp(&far(other)),
            (true, true) => far(other).cmp(&far(self)),
            (false, true) => Ordering::Greater,
            (true, false) => Ordering::Less,
        }
    }
}

impl PartialOrd for Exact {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
