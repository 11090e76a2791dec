//! Pages of a topic, read without a group: merges the records of all partitions by append time.

use std::{collections::BTreeMap, fmt, str::FromStr};

use crate::{
    codec::Codec,
    error::PageError,
    record::{FetchedRecord, PageRecord},
    topics::Topic,
};

/// Order of a page's records by append time.
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
    /// Cursor of the previous page. Valid only for the same topic and order.
    pub after: Option<Cursor>,
}

/// A page, in the order of the records' append times over all partitions.
#[derive(Clone, Debug)]
pub struct Page {
    pub records: Vec<PageRecord>,
    /// Cursor of the next page; `None` after the last page.
    pub next: Option<Cursor>,
}

/// End of a page: for each partition the next offset to read (oldest first), or the offset below which to read
/// (newest first). Its text is opaque to callers.
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

/// Error for a text that is not a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a cursor")]
pub struct InvalidCursor;

impl FromStr for Cursor {
    type Err = InvalidCursor;

    fn from_str(text: &str) -> Result<Self, InvalidCursor> {
        let mut offsets = BTreeMap::new();
        for part in text.split('.').filter(|part| !part.is_empty()) {
            let (partition, offset) = part.split_once('-').ok_or(InvalidCursor)?;
            let partition = partition.parse().map_err(|_| InvalidCursor)?;
            let offset: i64 = offset.parse().map_err(|_| InvalidCursor)?;
            // A repeated partition would make the position ambiguous.
            if offset < 0 || offsets.insert(partition, offset).is_some() {
                return Err(InvalidCursor);
            }
        }
        Ok(Self(offsets))
    }
}

/// Records of one partition for a page, in the page's order.
#[derive(Debug, Default)]
pub(crate) struct PartitionRecords {
    pub(crate) records: Vec<FetchedRecord>,
    /// True if the partition has more records after the last one.
    pub(crate) more: bool,
}

/// Merges the records of the partitions into a page, and unframes them.
pub(crate) fn page(
    codec: &Codec,
    query: Query,
    parts: Vec<(u32, PartitionRecords)>,
) -> Result<Page, PageError> {
    let Query { topic, order, limit, after } = query;
    let (fetched, next) = merge(order, limit, after.unwrap_or_default(), parts);
    let records =
        fetched.into_iter().map(|record| unframe(codec, topic, record)).collect::<Result<_, _>>()?;
    Ok(Page { records, next })
}

/// Unframes a record.
pub(crate) fn unframe(codec: &Codec, topic: Topic, record: FetchedRecord) -> Result<PageRecord, PageError> {
    let FetchedRecord { at, key, framed, headers, written_at } = record;
    let value = codec
        .unframe(topic, &framed)
        .map_err(|error| PageError::Malformed { position: at, detail: error.to_string() })?;
    Ok(PageRecord { at, key, value, headers, written_at })
}

/// Merges the records of all partitions by append time. It stops at the end of a partition with unread records, because its
/// next record might precede those of the other partitions.
fn merge(
    order: Order,
    limit: usize,
    mut cursor: Cursor,
    parts: Vec<(u32, PartitionRecords)>,
) -> (Vec<FetchedRecord>, Option<Cursor>) {
    let mut has_more = false;
    let mut heads: Vec<_> = parts
        .into_iter()
        .map(|(index, part)| {
            has_more |= part.more;
            (index, part.records.into_iter().peekable(), part.more)
        })
        .collect();
    let mut merged = Vec::new();
    while merged.len() < limit
        && !heads.iter_mut().any(|(_, records, more)| *more && records.peek().is_none())
    {
        let candidates = heads.iter_mut().enumerate().filter_map(|(at, (_, records, _))| {
            records.peek().map(|record| ((record.written_at, record.at.partition.index), at))
        });
        let first = match order {
            Order::Oldest => candidates.min(),
            Order::Newest => candidates.max(),
        };
        let Some((_, at)) = first else { break };
        let (index, records, _) = &mut heads[at];
        if let Some(record) = records.next() {
            let offset = match order {
                Order::Oldest => record.at.offset.next().0,
                Order::Newest => record.at.offset.0,
            };
            cursor.0.insert(*index, offset);
            merged.push(record);
        }
    }
    let has_more = has_more || heads.iter_mut().any(|(_, records, _)| records.peek().is_some());
    (merged, has_more.then_some(cursor))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use bytes::Bytes;
    use proptest::prelude::*;
    use tidegate_schemas::ids::Millis;

    use super::*;
    use crate::{
        record::Headers,
        topics::{Offset, Partition, Position},
    };

    fn fetched(index: u32, offset: i64, at: i64) -> FetchedRecord {
        FetchedRecord {
            at: Position { partition: Partition::new(Topic::Items, index), offset: Offset(offset) },
            key: Bytes::new(),
            framed: Bytes::new(),
            headers: Headers::default(),
            written_at: Millis(at),
        }
    }

    /// A partition of the model, read as an engine reads it: at most `chunk` records at once.
    fn read(index: u32, times: &[i64], order: Order, from: Option<i64>, chunk: usize) -> PartitionRecords {
        let end = i64::try_from(times.len()).unwrap();
        let all: Vec<FetchedRecord> =
            (0..end).map(|offset| fetched(index, offset, times[usize::try_from(offset).unwrap()])).collect();
        let wanted: Vec<FetchedRecord> = match order {
            Order::Oldest => all.into_iter().filter(|one| one.at.offset.0 >= from.unwrap_or(0)).collect(),
            Order::Newest => {
                all.into_iter().rev().filter(|one| one.at.offset.0 < from.unwrap_or(end)).collect()
            }
        };
        let more = wanted.len() > chunk;
        PartitionRecords { records: wanted.into_iter().take(chunk).collect(), more }
    }

    proptest! {
        #[test]
        fn pages_show_every_record_once_and_in_order_of_time(
            mut times in prop::collection::vec(prop::collection::vec(0..50_i64, 0..12), 1..4),
            limit in 1..7_usize,
            chunk in 1..7_usize,
            newest in any::<bool>(),
        ) {
            times.iter_mut().for_each(|own| own.sort_unstable());
            let order = if newest { Order::Newest } else { Order::Oldest };
            let mut seen = Vec::new();
            let mut after = Some(Cursor::default());
            while let Some(cursor) = after {
                let parts = (0_u32..).zip(&times).map(|(index, own)| {
                    (index, read(index, own, order, cursor.0.get(&index).copied(), chunk))
                });
                let (page, next) = merge(order, limit, cursor.clone(), parts.collect());
                prop_assert!(page.len() <= limit);
                prop_assert!(!page.is_empty() || next.is_none(), "a page moves on");
                seen.extend(page);
                after = next;
            }
            prop_assert_eq!(seen.len(), times.iter().map(Vec::len).sum::<usize>());
            let ordered = seen.windows(2).all(|two| match order {
                Order::Oldest => two[0].written_at <= two[1].written_at,
                Order::Newest => two[0].written_at >= two[1].written_at,
            });
            prop_assert!(ordered);
        }
    }

    #[test]
    fn cursor_text_round_trips_and_other_text_is_refused() {
        let cursor = Cursor(BTreeMap::from([(0, 17), (3, 0)]));
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
        for text in ["1", "a-1", "1--1", "1-1.1-2", "1-9223372036854775808"] {
            assert_eq!(text.parse::<Cursor>(), Err(InvalidCursor), "{text}");
        }
    }
}
