//! Exact value of a written number: no digit is lost before it is checked.

/// Longest number in bytes; longer ones are reported instead of kept.
pub(crate) const LONGEST: usize = 1_024;

/// A number as JSON Schema sees it: `1`, `1.0` and `1e0` are the same.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Number {
    negative: bool,
    zero: bool,
    /// True if it has no fraction.
    pub(crate) whole: bool,
    /// One and not more.
    one: bool,
    /// True if it is at least 1, ignoring the sign.
    large: bool,
    /// Its value, if it is whole, not negative and not longer than this.
    value: Option<u128>,
    /// The nearest double; infinite if there is none.
    pub(crate) double: f64,
}

impl Number {
    #[inline]
    pub(crate) fn small(value: u64) -> Self {
        Self {
            negative: false,
            zero: value == 0,
            whole: true,
            one: value == 1,
            large: value > 0,
            value: Some(u128::from(value)),
            double: value as f64,
        }
    }

    /// Parses a number; `None` if it is not written as JSON requires.
    pub(crate) fn parse(token: &[u8]) -> Option<Self> {
        let Parts { negative, mantissa, power } = Parts::of(token)?;
        let zero = mantissa.is_empty();
        let first = i64::try_from(mantissa.len()).ok()? + power;
        let whole = zero || power >= 0;
        let value = match negative {
            false if zero => Some(0),
            false if whole && first <= 38 => {
                let value =
                    mantissa.iter().fold(0_u128, |value, digit| value * 10 + u128::from(digit - b'0'));
                Some(value * 10_u128.pow(u32::try_from(power).ok()?))
            }
            _ => None,
        };
        Some(Self {
            negative,
            zero,
            whole,
            one: mantissa == b"1" && power == 0 && !negative,
            large: !zero && first > 0,
            value,
            double: std::str::from_utf8(token).ok()?.parse().ok()?,
        })
    }

    pub(crate) fn at_least(&self, least: u64) -> bool {
        match (least, self.value) {
            _ if self.negative => false,
            (0, _) => true,
            (1, _) => self.large,
            (least, Some(value)) => value >= u128::from(least),
            (least, None) => self.double >= least as f64,
        }
    }

    pub(crate) fn at_most_one(&self) -> bool {
        self.negative || self.zero || self.one || !self.large
    }

    /// Value as a count, saturating.
    pub(crate) fn count(&self) -> u128 {
        self.value.unwrap_or(if self.whole && !self.negative { u128::MAX } else { 0 })
    }
}

/// A number as its digits without zeros at either end, and the power of ten they are taken times.
struct Parts {
    /// Zero is not.
    negative: bool,
    mantissa: Vec<u8>,
    power: i64,
}

impl Parts {
    fn of(token: &[u8]) -> Option<Self> {
        let negative = token.first() == Some(&b'-');
        let rest = &token[usize::from(negative)..];
        let (before, rest) = digits(rest);
        if before.is_empty() || (before.len() > 1 && before[0] == b'0') {
            return None;
        }
        let (after, rest) = match rest {
            [b'.', rest @ ..] => {
                let (after, rest) = digits(rest);
                if after.is_empty() {
                    return None;
                }
                (after, rest)
            }
            rest => (&rest[..0], rest),
        };
        let exponent = match rest {
            [] => 0,
            [b'e' | b'E', rest @ ..] => {
                let (down, rest) = match rest.strip_prefix(b"-") {
                    Some(rest) => (true, rest),
                    None => (false, rest.strip_prefix(b"+").unwrap_or(rest)),
                };
                let (power, []) = digits(rest) else { return None };
                if power.is_empty() {
                    return None;
                }
                // Far beyond any double, and far from the end of the type.
                let power = power
                    .iter()
                    .fold(0_i64, |sum, digit| (sum * 10 + i64::from(digit - b'0')).min(1_000_000_000));
                if down { -power } else { power }
            }
            _ => return None,
        };
        let mut mantissa: Vec<u8> = [before, after].concat();
        let mut power = exponent - i64::try_from(after.len()).ok()?;
        while mantissa.last() == Some(&b'0') {
            mantissa.pop();
            power += 1;
        }
        let leading = mantissa.iter().take_while(|digit| **digit == b'0').count();
        mantissa.drain(..leading);
        let negative = negative && !mantissa.is_empty();
        Some(Self { negative, mantissa, power })
    }

    /// Writes the decimal point where ECMAScript does.
    fn written(self) -> Option<String> {
        let Self { negative, mantissa, power } = self;
        let digits = String::from_utf8(mantissa).ok()?;
        let sign = if negative { "-" } else { "" };
        let point = i64::try_from(digits.len()).ok()? + power;
        let zeros = |count: i64| "0".repeat(usize::try_from(count).unwrap_or_default());
        Some(match point {
            _ if digits.is_empty() => "0".to_owned(),
            _ if power >= 0 && point <= 21 => format!("{sign}{digits}{}", zeros(power)),
            1..=21 => {
                let (before, after) = digits.split_at(usize::try_from(point).ok()?);
                format!("{sign}{before}.{after}")
            }
            -5..=0 => format!("{sign}0.{}{digits}", zeros(-point)),
            _ => {
                let (first, rest) = digits.split_at(1);
                let dot = if rest.is_empty() { "" } else { "." };
                let (e, up) = (point - 1, if point > 0 { "+" } else { "" });
                format!("{sign}{first}{dot}{rest}e{up}{e}")
            }
        })
    }
}

/// The number in one way only, with all its digits.
pub(super) fn exact(token: &[u8]) -> Option<String> {
    Parts::of(token)?.written()
}

/// The nearest double as ECMAScript writes it; nothing, if there is none.
pub(super) fn double(token: &[u8]) -> Option<String> {
    let double: f64 = std::str::from_utf8(token).ok()?.parse().ok()?;
    if !double.is_finite() {
        return None;
    }
    // The shortest digits that come back as the same double, of two equally near ones the even; the standard library
    // takes the greater. Only where the point stands is ECMAScript's own.
    Parts::of(ryu::Buffer::new().format_finite(double).as_bytes())?.written()
}

fn digits(text: &[u8]) -> (&[u8], &[u8]) {
    text.split_at(text.iter().take_while(|byte| byte.is_ascii_digit()).count())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn number(text: &str) -> Number {
        Number::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_number_is_what_it_amounts_to_however_it_is_written() {
        for one in ["1", "1.0", "1e0", "1.000E+00", "10e-1", "0.1e1", "1000000000000000000000e-21"] {
            let one = number(one);
            assert!(one.whole && one.at_least(1) && one.at_most_one() && one.count() == 1, "{one:?}");
        }
        for zero in ["0", "-0", "0.0", "0e999999999999999999999", "-0e-5"] {
            let zero = number(zero);
            assert!(zero.whole && zero.at_least(0) && !zero.at_least(1) && zero.at_most_one(), "{zero:?}");
        }
        assert!(!number("1.0000000000000000000000000000001").whole);
        assert!(!number("1.0000000000000000000000000000001").at_most_one());
        assert!(number("0.99999999999999999999999999999999").at_most_one());
        assert!(!number("-1e-400").at_least(0) && number("-1e-400").at_most_one());
        assert!(number("1e400").whole && number("1e400").double.is_infinite());
        assert_eq!(number("18446744073709551617").count(), 18_446_744_073_709_551_617);
        assert_eq!(number("1e30").count(), 10_u128.pow(30));
        assert_eq!(number("1e300").count(), u128::MAX);
        assert_eq!(number("-5").count(), 0);
    }

    #[test]
    fn what_json_does_not_write_is_no_number() {
        for text in ["", "-", "01", "-01", "1.", ".5", "1e", "1e+", "+1", "1.e1", "1e1.0", "0x1", "1-", "--1"]
        {
            assert_eq!(Number::parse(text.as_bytes()), None, "{text}");
        }
    }
}
