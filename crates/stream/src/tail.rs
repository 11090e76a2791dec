//! Reading a topic in pages without a group: which records are next, over all its partitions.
//!
//! It reads nothing itself: an engine hands it what each partition has.

use std::{collections::BTreeMap, fmt, str::FromStr};

use crate::{record::Tailed, topics::Topic};

/// Which end comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Oldest,
    Newest,
}

/// A page to read.
#[derive(Clone, Debug)]
pub struct Query {
    pub topic: Topic,
    pub order: Order,
    pub limit: usize,
    /// Where the page before ended; with another topic or order than that page's it means nothing.
    pub after: Option<Cursor>,
}

/// A page, in the order of the records' append times over all partitions.
#[derive(Clone, Debug)]
pub struct Page {
    pub records: Vec<Tailed>,
    /// Where the next page begins; none when this was the last.
    pub next: Option<Cursor>,
}

/// Where a page ended: for each partition the next offset to read (oldest first), or the offset below
/// which to read (newest first). Its text is opaque to callers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor(pub(crate) BTreeMap<u32, i64>);

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (partition, offset)) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str(".")?;
            }
            write!(f, "{partition}-{offset}")?;
        }
        Ok(())
    }
}

/// The text is not a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a cursor")]
pub struct NotACursor;

impl FromStr for Cursor {
    type Err = NotACursor;

    fn from_str(text: &str) -> Result<Self, NotACursor> {
        let mut offsets = BTreeMap::new();
        for part in text.split('.').filter(|part| !part.is_empty()) {
            let (partition, offset) = part.split_once('-').ok_or(NotACursor)?;
            let partition = partition.parse().map_err(|_| NotACursor)?;
            let offset: i64 = offset.parse().map_err(|_| NotACursor)?;
            if offset < 0 || offsets.insert(partition, offset).is_some() {
                return Err(NotACursor);
            }
        }
        Ok(Self(offsets))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_survives_its_text_and_nothing_else_is_one() {
        let cursor = Cursor(BTreeMap::from([(0, 17), (3, 0)]));
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
        for text in ["1", "a-1", "1--1", "1-1.1-2", "1-9223372036854775808"] {
            assert_eq!(text.parse::<Cursor>(), Err(NotACursor), "{text}");
        }
    }
}
