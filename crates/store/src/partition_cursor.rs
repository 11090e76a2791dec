//! Cursor of lists that run through several partitions, such as the days of a journal or the buckets of a bank.

use std::{fmt, str::FromStr};

use crate::{Cursor, Error};

/// Partition in the text of a [`PartitionCursor`].
pub trait CursorPartition: fmt::Display + FromStr {
    /// Sign between the partition and the cursor in it. Clients hold such texts, so it must not change.
    const SEPARATOR: char = '~';
}

/// Position in a list that runs through several partitions: a partition, and a cursor in it.
///
/// Clients may hold it as text: `<partition>~<cursor>`, without a cursor at the start of the partition. A forged partition
/// must be harmless or refused by its `FromStr`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionCursor<P> {
    pub partition: P,
    /// `None` before the first row of the partition.
    pub after: Option<Cursor>,
}

/// Cursor of a list with one partition for each day.
pub type DayCursor = PartitionCursor<i64>;

impl CursorPartition for i64 {}

impl<P> PartitionCursor<P> {
    /// Returns the position before the first row of the partition.
    pub const fn start_of(partition: P) -> Self {
        Self { partition, after: None }
    }
}

impl<P: CursorPartition> fmt::Display for PartitionCursor<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.partition, P::SEPARATOR)?;
        self.after.as_ref().map_or(Ok(()), |after| after.fmt(f))
    }
}

impl<P: CursorPartition> FromStr for PartitionCursor<P> {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        // The text of a partition may contain the separator, but a cursor in hexadecimal digits never does.
        let (partition, after) = text.rsplit_once(P::SEPARATOR).ok_or(Error::BadCursor)?;
        let partition = partition.parse().map_err(|_| Error::BadCursor)?;
        let after = if after.is_empty() { None } else { Some(after.parse()?) };
        Ok(Self { partition, after })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn day_cursor_round_trips_and_other_text_is_refused() {
        for (text, partition, after) in [("20778~", 20_778, None), ("-3~00ff", -3, Some("00ff"))] {
            let cursor = DayCursor { partition, after: after.map(|after| after.parse().unwrap()) };
            assert_eq!(cursor.to_string(), text);
            assert_eq!(text.parse::<DayCursor>().unwrap(), cursor);
        }
        for text in ["", "1", "a~", "~", "1~xyz", "1~2~00ff"] {
            assert!(matches!(text.parse::<DayCursor>(), Err(Error::BadCursor)), "{text}");
        }
    }
}
