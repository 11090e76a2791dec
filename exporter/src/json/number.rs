//! Exact values of JSON numbers, computed from their digits.

/// Maximum length of a number in bytes; longer numbers are reported as flaws.
pub(crate) const MAX_NUMBER_BYTES: usize = 1_024;

/// Number as JSON Schema compares it: `1`, `1.0` and `1e0` are equal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Number {
    is_negative: bool,
    is_zero: bool,
    /// True if the number has no fraction.
    pub(crate) is_whole: bool,
    /// True if the number is exactly 1.
    is_one: bool,
    /// True if the absolute value is at least 1.
    is_at_least_one: bool,
    /// Value of a whole, non-negative number that fits.
    integer: Option<u128>,
    /// Nearest double; infinite beyond the range of doubles.
    pub(crate) double: f64,
}

impl Number {
    #[inline]
    pub(crate) fn from_u64(value: u64) -> Self {
        Self {
            is_negative: false,
            is_zero: value == 0,
            is_whole: true,
            is_one: value == 1,
            is_at_least_one: value > 0,
            integer: Some(u128::from(value)),
            double: value as f64,
        }
    }

    /// Parses a number; `None` if its syntax is not that of JSON.
    pub(crate) fn parse(token: &[u8]) -> Option<Self> {
        let Decimal { is_negative, mantissa, power } = Decimal::parse(token)?;
        let is_zero = mantissa.is_empty();
        let point = i64::try_from(mantissa.len()).ok()? + power;
        let has_no_fraction = is_zero || power >= 0;
        let integer = match is_negative {
            false if is_zero => Some(0),
            // 38 digits always fit into 128 bits.
            false if has_no_fraction && point <= 38 => {
                let value =
                    mantissa.iter().fold(0_u128, |value, digit| value * 10 + u128::from(digit - b'0'));
                Some(value * 10_u128.pow(u32::try_from(power).ok()?))
            }
            _ => None,
        };
        Some(Self {
            is_negative,
            is_zero,
            is_whole: has_no_fraction,
            is_one: mantissa == b"1" && power == 0 && !is_negative,
            is_at_least_one: !is_zero && point > 0,
            integer,
            double: std::str::from_utf8(token).ok()?.parse().ok()?,
        })
    }

    pub(crate) fn is_at_least(&self, minimum: u64) -> bool {
        match (minimum, self.integer) {
            _ if self.is_negative => false,
            (0, _) => true,
            (1, _) => self.is_at_least_one,
            (minimum, Some(integer)) => integer >= u128::from(minimum),
            (minimum, None) => self.double >= minimum as f64,
        }
    }

    pub(crate) fn is_at_most_one(&self) -> bool {
        self.is_negative || self.is_zero || self.is_one || !self.is_at_least_one
    }

    /// Value as a count: saturated if it is too large, and 0 for negative numbers and fractions.
    pub(crate) fn saturating_count(&self) -> u128 {
        self.integer.unwrap_or(if self.is_whole && !self.is_negative { u128::MAX } else { 0 })
    }
}

/// Number as `mantissa` times ten to the `power`, without zeros at either end of the mantissa.
struct Decimal {
    /// False for zero, so that `-0` equals `0`.
    is_negative: bool,
    mantissa: Vec<u8>,
    power: i64,
}

impl Decimal {
    fn parse(token: &[u8]) -> Option<Self> {
        let has_minus = token.first() == Some(&b'-');
        let rest = &token[usize::from(has_minus)..];
        let (integer_digits, rest) = split_digits(rest);
        if integer_digits.is_empty() || (integer_digits.len() > 1 && integer_digits[0] == b'0') {
            return None;
        }
        let (fraction_digits, rest) = match rest {
            [b'.', rest @ ..] => {
                let (digits, rest) = split_digits(rest);
                if digits.is_empty() {
                    return None;
                }
                (digits, rest)
            }
            rest => (&rest[..0], rest),
        };
        let exponent = match rest {
            [] => 0,
            [b'e' | b'E', rest @ ..] => {
                let (is_negative_exponent, rest) = match rest.strip_prefix(b"-") {
                    Some(rest) => (true, rest),
                    None => (false, rest.strip_prefix(b"+").unwrap_or(rest)),
                };
                let (power, []) = split_digits(rest) else { return None };
                if power.is_empty() {
                    return None;
                }
                // The bound is beyond the range of doubles, and small enough for the sums below not to overflow.
                let power = power
                    .iter()
                    .fold(0_i64, |sum, digit| (sum * 10 + i64::from(digit - b'0')).min(1_000_000_000));
                if is_negative_exponent { -power } else { power }
            }
            _ => return None,
        };
        let mut mantissa: Vec<u8> = [integer_digits, fraction_digits].concat();
        let mut power = exponent - i64::try_from(fraction_digits.len()).ok()?;
        while mantissa.last() == Some(&b'0') {
            mantissa.pop();
            power += 1;
        }
        let leading_zeros = mantissa.iter().take_while(|digit| **digit == b'0').count();
        mantissa.drain(..leading_zeros);
        let is_negative = has_minus && !mantissa.is_empty();
        Some(Self { is_negative, mantissa, power })
    }

    /// Formats the number with the decimal point and exponent of ECMAScript.
    fn into_ecmascript(self) -> Option<String> {
        let Self { is_negative, mantissa, power } = self;
        let digits = String::from_utf8(mantissa).ok()?;
        let sign = if is_negative { "-" } else { "" };
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
                let (exponent, plus) = (point - 1, if point > 0 { "+" } else { "" });
                format!("{sign}{first}{dot}{rest}e{plus}{exponent}")
            }
        })
    }
}

/// Formats a number with all its digits. Equal numbers give equal text.
pub(super) fn format_exact(token: &[u8]) -> Option<String> {
    Decimal::parse(token)?.into_ecmascript()
}

/// Formats the nearest double as ECMAScript does; `None` beyond the range of doubles.
pub(super) fn format_double(token: &[u8]) -> Option<String> {
    let double: f64 = std::str::from_utf8(token).ok()?.parse().ok()?;
    if !double.is_finite() {
        return None;
    }
    // `ryu` chooses the even one of two equally near shortest representations, as RFC 8785 requires. The standard
    // library chooses the greater one. Only the position of the decimal point differs from ECMAScript.
    Decimal::parse(ryu::Buffer::new().format_finite(double).as_bytes())?.into_ecmascript()
}

fn split_digits(text: &[u8]) -> (&[u8], &[u8]) {
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
    fn notation_does_not_change_the_value() {
        for one in ["1", "1.0", "1e0", "1.000E+00", "10e-1", "0.1e1", "1000000000000000000000e-21"] {
            let one = number(one);
            assert!(
                one.is_whole && one.is_at_least(1) && one.is_at_most_one() && one.saturating_count() == 1,
                "{one:?}"
            );
        }
        for zero in ["0", "-0", "0.0", "0e999999999999999999999", "-0e-5"] {
            let zero = number(zero);
            assert!(
                zero.is_whole && zero.is_at_least(0) && !zero.is_at_least(1) && zero.is_at_most_one(),
                "{zero:?}"
            );
        }
        assert!(!number("1.0000000000000000000000000000001").is_whole);
        assert!(!number("1.0000000000000000000000000000001").is_at_most_one());
        assert!(number("0.99999999999999999999999999999999").is_at_most_one());
        assert!(!number("-1e-400").is_at_least(0) && number("-1e-400").is_at_most_one());
        assert!(number("1e400").is_whole && number("1e400").double.is_infinite());
        assert_eq!(number("18446744073709551617").saturating_count(), 18_446_744_073_709_551_617);
        assert_eq!(number("1e30").saturating_count(), 10_u128.pow(30));
        assert_eq!(number("1e300").saturating_count(), u128::MAX);
        assert_eq!(number("-5").saturating_count(), 0);
    }

    #[test]
    fn syntax_outside_of_json_is_rejected() {
        for text in ["", "-", "01", "-01", "1.", ".5", "1e", "1e+", "+1", "1.e1", "1e1.0", "0x1", "1-", "--1"]
        {
            assert_eq!(Number::parse(text.as_bytes()), None, "{text}");
        }
    }
}
