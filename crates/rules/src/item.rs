//! Input of an evaluation: an item, its values as its type coerced them, and numbers that compare exactly.

use std::cmp::Ordering;

use tidegate_schemas::{
    ids::{ItemKey, Millis, SubmissionId, TypeId},
    item_types,
};

tidegate_schemas::string_enum! {
    /// Event that triggers rules.
    pub enum Trigger {
        Item = "item",
        Report = "report",
        /// Triggers no rules.
        Appeal = "appeal",
    }
}

/// Value of a field, converted to its type.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// Every textual type: strings, ids, URLs, media, addresses, geohashes.
    Text(&'a str),
    Number(Number),
    Boolean(bool),
    Datetime(Millis),
    /// Reference to another item.
    Related {
        type_id: &'a str,
        id: &'a str,
    },
    List(Vec<Value<'a>>),
    Map(Vec<(&'a str, Value<'a>)>),
}

/// Fields of an item's `data`. `None` for an absent or null field.
pub trait Fields {
    fn field(&self, name: &str) -> Option<Value<'_>>;
}

impl Fields for item_types::Values {
    fn field(&self, name: &str) -> Option<Value<'_>> {
        self.field(name).map(Value::from)
    }
}

impl<'a> From<&'a item_types::Value> for Value<'a> {
    fn from(value: &'a item_types::Value) -> Self {
        use item_types::Value as Checked;
        match value {
            Checked::Text(text) | Checked::Geohash(text) | Checked::Url(text) | Checked::Media(text) => {
                Self::Text(text)
            }
            Checked::Number(item_types::Number::Int(whole)) => Self::Number(Number::Whole(*whole)),
            Checked::Number(item_types::Number::Float(fraction)) => Self::Number((*fraction).into()),
            Checked::Bool(boolean) => Self::Boolean(*boolean),
            Checked::DateTime(instant) => Self::Datetime(*instant),
            Checked::Related(item) => Self::Related { type_id: item.type_id.as_str(), id: item.id.as_str() },
            Checked::List(list) => Self::List(list.iter().map(Self::from).collect()),
            Checked::Map(map) => {
                Self::Map(map.iter().map(|(key, value)| (key.as_str(), Self::from(value))).collect())
            }
        }
    }
}

/// Item under evaluation.
#[derive(Clone, Copy)]
pub struct Item<'a> {
    pub type_id: &'a TypeId,
    pub values: &'a dyn Fields,
    /// User with the strike points: the field with role creator, or the item itself if it is a user.
    pub user: Option<&'a ItemKey>,
    /// Event that triggers the evaluation.
    pub on: Trigger,
    /// Append time of the item's record. A clock would make a replay differ.
    pub now: Millis,
    pub submission: SubmissionId,
}

/// JSON number. Whole numbers compare exactly with each other and with fractions.
#[derive(Clone, Copy, Debug)]
pub enum Number {
    Whole(i128),
    Fraction(f64),
}

impl Number {
    /// Parses the text of a JSON number. `None` beyond the range of a 64-bit float.
    pub fn parse(text: &str) -> Option<Self> {
        if let Ok(whole) = text.parse() {
            return Some(Self::Whole(whole));
        }
        text.parse().ok().filter(|n: &f64| n.is_finite()).map(Self::Fraction)
    }

    /// Nearest float. Rounding never reverses the order of two numbers.
    pub(crate) fn to_f64(self) -> f64 {
        match self {
            #[allow(
                clippy::cast_precision_loss,
                reason = "rounding keeps the order, which is all that is asked"
            )]
            Self::Whole(whole) => whole as f64,
            Self::Fraction(fraction) => fraction,
        }
    }

    /// Value in millionths, rounded and clamped to the range.
    #[allow(clippy::cast_possible_truncation, reason = "a cast saturates, as intended")]
    pub(crate) fn millionths(self) -> i64 {
        match self {
            Self::Whole(whole) => {
                let millionths = whole.saturating_mul(1_000_000);
                i64::try_from(millionths).unwrap_or(if whole < 0 { i64::MIN } else { i64::MAX })
            }
            Self::Fraction(fraction) => (fraction * 1e6).round() as i64,
        }
    }

    /// Text that is the same for equal numbers: a whole number has no decimal point.
    pub(crate) fn to_canonical_text(self) -> String {
        match self {
            // Beyond this range no whole number is equal to a fraction.
            #[allow(clippy::cast_possible_truncation, reason = "it is whole, and inside of the range")]
            Self::Fraction(fraction) if fraction.fract() == 0.0 && (-END..END).contains(&fraction) => {
                (fraction as i128).to_string()
            }
            _ => self.to_json().to_string(),
        }
    }

    pub(crate) fn to_json(self) -> serde_json::Value {
        let number = match self {
            Self::Whole(whole) => serde_json::Number::from_i128(whole),
            Self::Fraction(fraction) => serde_json::Number::from_f64(fraction),
        };
        number.map_or(serde_json::Value::Null, serde_json::Value::Number)
    }
}

impl From<i64> for Number {
    fn from(whole: i64) -> Self {
        Self::Whole(whole.into())
    }
}

impl From<f64> for Number {
    fn from(fraction: f64) -> Self {
        Self::Fraction(fraction)
    }
}

impl PartialEq for Number {
    fn eq(&self, other: &Self) -> bool {
        self.partial_cmp(other) == Some(Ordering::Equal)
    }
}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        match (*self, *other) {
            (Self::Whole(a), Self::Whole(b)) => Some(a.cmp(&b)),
            (Self::Fraction(a), Self::Fraction(b)) => a.partial_cmp(&b),
            (Self::Whole(a), Self::Fraction(b)) => compare(a, b),
            (Self::Fraction(a), Self::Whole(b)) => compare(b, a).map(Ordering::reverse),
        }
    }
}

/// Smallest positive float that no whole number reaches. Its negation is the smallest whole number.
const END: f64 = 170_141_183_460_469_231_731_687_303_715_884_105_728.0;

fn compare(whole: i128, fraction: f64) -> Option<Ordering> {
    // Beyond the whole numbers the sign decides, and NaN compares with no number.
    if !(-END..END).contains(&fraction) {
        return 0.0.partial_cmp(&fraction);
    }
    #[allow(clippy::cast_possible_truncation, reason = "the part after the point is compared below")]
    let trunc = fraction.trunc() as i128;
    match whole.cmp(&trunc) {
        Ordering::Equal => 0.0.partial_cmp(&fraction.fract()),
        unequal => Some(unequal),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn neighbouring_large_numbers_differ() {
        let n = |text| Number::parse(text).unwrap();
        assert_ne!(n("9007199254740993"), n("9007199254740992"));
        assert!(n("9007199254740993") > n("9007199254740992.0"));
        assert_eq!(n("1e3"), n("1000"));
        for (less, more) in [("2", "2.5"), ("-2.5", "-2"), ("2.5", "3"), ("-3", "-2.5")] {
            assert!(n(less) < n(more) && n(more) > n(less), "{less} {more}");
        }
        assert!(n("170141183460469231731687303715884105727") < n("1e300"));
        assert!(n("-170141183460469231731687303715884105728") > n("-1e300"));
        assert!(n("170141183460469231731687303715884105727") > n("1.7e38"));
        assert!(n("170141183460469231731687303715884105727") < n("1.7014118346046923e38"));
        assert!(n("-170141183460469231731687303715884105727") < n("-1.7e38"));
        assert_eq!(n("-170141183460469231731687303715884105728"), n("-1.7014118346046923e38"));
        assert!(Number::Whole(0).partial_cmp(&Number::Fraction(f64::NAN)).is_none());
        assert_eq!(n("-0.0"), n("0"));
    }

    #[test]
    fn equal_numbers_have_equal_texts() {
        let plain = |text: &str| Number::parse(text).unwrap().to_canonical_text();
        for (text, written) in [
            ("1", "1"),
            ("1.0", "1"),
            ("1e0", "1"),
            ("-0.0", "0"),
            ("-2.50", "-2.5"),
            ("1e30", "1000000000000000019884624838656"),
            ("1e300", "1e+300"),
            ("0.1", "0.1"),
        ] {
            assert_eq!(plain(text), written);
        }
        assert_eq!(plain("1267650600228229401496703205376"), plain("1267650600228229401496703205376.0"));
        for fraction in [1.7e38, 1.701e38, -1.7e38, -1.701_411_834_604_692_3e38] {
            let written = format!("{fraction:.0}");
            assert_eq!(Number::Fraction(fraction).to_canonical_text(), plain(&written));
        }
    }

    #[test]
    fn number_beyond_the_range_of_floats_is_refused() {
        assert!(Number::parse("1e999999999").is_none());
        assert!(Number::parse("NaN").is_none() && Number::parse("inf").is_none());
    }
}
