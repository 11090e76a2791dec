//! Arithmetic of windows: the bucket of an instant, the rows that count at an instant, and their amount. The caller stores
//! and reads the rows. A bucket is a span of fixed length; the rows of a key with times in the same span are stored together.

use std::{collections::HashSet, fmt, ops::RangeInclusive};

use serde::{Deserialize, Serialize};
use tidegate_schemas::ids::{Kind, Millis, WindowId, derive};
use uuid::Uuid;

use crate::item::{Number, Value};

/// Number in millionths, so that sums are independent of their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Amount(pub i64);

const MILLION: i64 = 1_000_000;

impl Amount {
    pub const ZERO: Self = Self(0);
    pub const ONE: Self = Self(MILLION);

    /// Amount of a whole number, at most about nine trillion.
    pub const fn from_whole(number: i64) -> Self {
        Self(number.saturating_mul(MILLION))
    }

    /// Amount of a number. A negative number counts as zero: further rows must never lower a count, because a reader stops as
    /// soon as it reaches its threshold.
    pub(crate) fn from_number(number: Number) -> Self {
        Self(number.millionths().max(0))
    }

    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Smallest larger amount.
    pub(crate) const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// Rounds up to a whole number.
    pub(crate) fn round_up(self) -> Self {
        let remainder = self.0.rem_euclid(MILLION);
        if remainder == 0 { self } else { Self(self.0.saturating_sub(remainder).saturating_add(MILLION)) }
    }

    pub(crate) fn to_json(self) -> serde_json::Value {
        if self.0 % MILLION == 0 {
            return (self.0 / MILLION).into();
        }
        // The text of a decimal is parsed as the nearest float.
        self.to_string().parse::<f64>().map_or(serde_json::Value::Null, serde_json::Value::from)
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, millionths) = (self.0 / MILLION, (self.0 % MILLION).abs());
        // The division drops the sign of amounts between -1 and 0.
        let sign = if self.0 < 0 && whole == 0 { "-" } else { "" };
        if millionths == 0 {
            return write!(f, "{whole}");
        }
        let digits = format!("{millionths:06}");
        write!(f, "{sign}{whole}.{}", digits.trim_end_matches('0'))
    }
}

/// Key that a window counts by: a user, or a value of a field.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WindowKey(pub(crate) String);

/// Maximum bytes of a key, which is part of a row's key. A longer value is replaced by its beginning and a digest.
const MAX_KEY_BYTES: usize = 128;

impl WindowKey {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn from_value(value: &Value<'_>) -> Option<Self> {
        let text = match value {
            Value::Text(text) => (*text).to_owned(),
            Value::Number(number) => number.to_canonical_text(),
            Value::Boolean(boolean) => boolean.to_string(),
            Value::Datetime(instant) => instant.iso(),
            // Keys of item types contain no slash, so the combination is unambiguous.
            Value::Related { type_id, id } => format!("{type_id}/{id}"),
            Value::List(_) | Value::Map(_) => return None,
        };
        if text.len() <= MAX_KEY_BYTES {
            return Some(Self(text));
        }
        // The prefix keeps the digests of keys apart from those of members, which have the same kind.
        let digest: Uuid = derive(Kind::WindowMember, &[b"key", text.as_bytes()]);
        // The beginning keeps the key readable for an operator.
        Some(Self(format!("{}~{digest}", &text[..text.floor_char_boundary(64)])))
    }
}

tidegate_schemas::string_enum! {
    /// Measure of a window.
    pub enum Measure {
        /// Number of items.
        Count = "count",
        /// Sum of the numbers of a field.
        Sum = "sum",
        /// Number of distinct values of a field.
        Distinct = "distinct",
    }
}

/// Window with the properties that the store of its rows needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    pub key: WindowId,
    pub measure: Measure,
    /// Length in milliseconds.
    pub length_millis: i64,
    /// Length of a bucket in milliseconds.
    pub bucket: i64,
}

/// Entry of one item in a window: one row, which replaces itself if the item is processed again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowEntry {
    pub window: WindowId,
    pub key: WindowKey,
    /// Bucket of `at`.
    pub bucket: i64,
    /// Append time of the item.
    pub at: Millis,
    /// 1 for a count, the number for a sum, 0 for distinct values.
    pub amount: Amount,
    /// Hashes of the item's values, in a window of distinct values.
    pub members: Vec<i64>,
    /// Milliseconds for which the row must be kept.
    pub retention_millis: i64,
}

impl Window {
    pub fn bucket_of(&self, at: Millis) -> i64 {
        at.0.div_euclid(self.bucket)
    }

    /// Times of the rows that share a window with an item at this time: earlier rows, which its own window contains, and later
    /// rows with a window that contains the item. Needed where items are not counted in the order of their times.
    pub fn around(&self, item: Millis) -> RangeInclusive<Millis> {
        Millis(item.0.saturating_sub(self.length_millis).saturating_add(1))
            ..=Millis(item.0.saturating_add(self.length_millis).saturating_sub(1))
    }

    /// Times of the rows in the window that ends with an item at this time.
    pub fn up_to(&self, item: Millis) -> RangeInclusive<Millis> {
        *self.around(item).start()..=item
    }

    /// Buckets that may have rows of these times.
    pub fn buckets(&self, times: &RangeInclusive<Millis>) -> RangeInclusive<i64> {
        self.bucket_of(*times.start())..=self.bucket_of(*times.end())
    }

    /// Milliseconds for which a row must be kept.
    pub fn retention_millis(&self) -> i64 {
        self.length_millis.saturating_add(self.bucket)
    }

    /// Starts the count of rows of these times.
    pub fn tally(&self, times: RangeInclusive<Millis>) -> RunningCount<'_> {
        RunningCount { window: self, times, amount: Amount::ZERO, members: HashSet::new() }
    }
}

/// Count over the rows of a window in a range of times.
#[derive(Debug)]
pub struct RunningCount<'w> {
    window: &'w Window,
    times: RangeInclusive<Millis>,
    amount: Amount,
    members: HashSet<i64>,
}

impl RunningCount<'_> {
    /// Adds a row if it is in the range. Each row must be added only once.
    pub fn add(&mut self, at: Millis, amount: Amount, members: &[i64]) {
        if !self.times.contains(&at) {
            return;
        }
        match self.window.measure {
            Measure::Count => self.amount = self.amount.plus(Amount::ONE),
            // A stored amount below zero would make the count decrease.
            Measure::Sum => self.amount = self.amount.plus(Amount(amount.0.max(0))),
            Measure::Distinct => self.members.extend(members),
        }
    }

    /// Adds the count over other rows.
    pub fn merge(&mut self, other: Self) {
        self.amount = self.amount.plus(other.amount);
        self.members.extend(other.members);
    }

    /// Amount so far. It never decreases, so a comparison with a number may stop as soon as it is reached.
    pub fn amount(&self) -> Amount {
        match self.window.measure {
            Measure::Count | Measure::Sum => self.amount,
            Measure::Distinct => Amount::from_whole(i64::try_from(self.members.len()).unwrap_or(i64::MAX)),
        }
    }
}

/// Hash of a value for a window of distinct values. Values with the same text, such as `1` and `"1"`, count as one.
pub(crate) fn hash_member(value: &Value<'_>) -> Option<i64> {
    let key = WindowKey::from_value(value)?;
    let id: Uuid = derive(Kind::WindowMember, &[b"value", key.0.as_bytes()]);
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&id.as_bytes()[..8]);
    Some(i64::from_be_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(measure: Measure) -> Window {
        Window { key: WindowId::new("w"), measure, length_millis: 60_000, bucket: 25_000 }
    }

    #[test]
    fn counted_rows_are_in_the_buckets_read() {
        let window = window(Measure::Count);
        for item in [0, 1, 24_999, 25_000, 60_000, 1_767_225_600_000] {
            let (until, around) = (window.up_to(Millis(item)), window.around(Millis(item)));
            for at in
                (item - 130_000..=item + 130_000).step_by(997).chain([item - 60_000, item - 59_999, item])
            {
                let at = Millis(at);
                assert_eq!(until.contains(&at), at.0 > item - 60_000 && at.0 <= item, "{at:?} at {item}");
                assert_eq!(around.contains(&at), (at.0 - item).abs() < 60_000, "{at:?} at {item}");
                for times in [&until, &around] {
                    let is_read = window.buckets(times).contains(&window.bucket_of(at));
                    assert!(!times.contains(&at) || is_read, "{at:?} at {item}");
                }
            }
            assert!(window.buckets(&until).count() <= 4, "{until:?}");
        }
    }

    #[test]
    fn row_is_kept_while_a_reader_can_ask_for_its_bucket() {
        let window = window(Measure::Count);
        let at = Millis(26_000);
        let last = Millis(at.0 + window.length_millis - 1);
        assert!(window.around(last).contains(&at) && last.0 - at.0 < window.retention_millis());
    }

    #[test]
    fn merged_counts_add_up() {
        for (measure, amount) in [(Measure::Count, 3), (Measure::Sum, 6), (Measure::Distinct, 2)] {
            let window = window(measure);
            let sum = |rows: &[i64]| {
                let mut tally = window.tally(window.up_to(Millis(100_000)));
                rows.iter().for_each(|row| tally.add(Millis(90_000), Amount::from_whole(2), &[*row]));
                tally
            };
            let mut tally = sum(&[7, 8]);
            tally.merge(sum(&[7]));
            assert_eq!(tally.amount(), Amount::from_whole(amount));
        }
    }

    #[test]
    fn sums_are_exact_and_never_fall() {
        let window = window(Measure::Sum);
        let mut tally = window.tally(window.up_to(Millis(100_000)));
        for _ in 0..10 {
            tally.add(Millis(90_000), Amount::from_number(Number::Fraction(0.1)), &[]);
        }
        tally.add(Millis(90_000), Amount::from_number(Number::Fraction(-7.0)), &[]);
        tally.add(Millis(40_000), Amount::from_whole(99), &[]);
        tally.add(Millis(100_001), Amount::from_whole(99), &[]);
        assert_eq!(tally.amount(), Amount::ONE);
        assert_eq!(Amount::from_whole(i64::MAX).plus(Amount::ONE), Amount(i64::MAX));
        assert_eq!(Amount::from_number(Number::Whole(i128::MAX)), Amount(i64::MAX));
    }

    #[test]
    fn repeated_value_counts_once() {
        let window = window(Measure::Distinct);
        let mut tally = window.tally(window.up_to(Millis(100_000)));
        let of = |text: &str| hash_member(&Value::Text(text)).into_iter().collect::<Vec<_>>();
        for text in ["a", "b", "a"] {
            tally.add(Millis(90_000), Amount::ZERO, &of(text));
        }
        assert_eq!(tally.amount(), Amount::from_whole(2));
        assert_eq!(hash_member(&Value::Number(Number::Whole(1))), hash_member(&Value::Text("1")));
        assert_eq!(hash_member(&Value::Number(Number::Fraction(1.0))), hash_member(&Value::Text("1")));
    }

    #[test]
    fn amount_is_written_like_a_number() {
        for (amount, text) in [
            (0, "0"),
            (1_000_000, "1"),
            (2_500_000, "2.5"),
            (1, "0.000001"),
            (-500_000, "-0.5"),
            (-1_500_000, "-1.5"),
        ] {
            assert_eq!(Amount(amount).to_string(), text);
        }
        assert_eq!(Amount(2_500_000).to_json(), serde_json::json!(2.5));
        assert_eq!(Amount::from_whole(7).to_json(), serde_json::json!(7));
    }

    #[test]
    fn long_key_becomes_its_beginning_and_a_digest() {
        let long = |end: &str| WindowKey::from_value(&Value::Text(&format!("{}{end}", "é".repeat(200))));
        assert!(long("a") != long("b") && long("a").is_some_and(|key| key.0.len() <= MAX_KEY_BYTES));
        let related = Value::Related { type_id: "user", id: "u/1" };
        assert_eq!(WindowKey::from_value(&related), Some(WindowKey("user/u/1".to_owned())));
    }
}
