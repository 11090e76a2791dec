//! Sorts an adapter's rows into the order of a bundle, and keeps the latest answer to each question. Rows that arrive
//! item by item need memory for the rows of one item; all others are sorted, on disk if necessary.

#![allow(
    clippy::cast_possible_truncation,
    reason = "the upper bits of a pseudonym are few, and rows in memory fewer than 2^32"
)]

use std::path::Path;

use super::{NO_OBJECT, Row, latest::LatestAnswers, sorter::Sorter};
use crate::error::ConvertError;

/// Receiver of rows in the order of a bundle.
pub(crate) trait RowSink {
    /// Receives the next row. `number` is its place among the rows of its question, from 1.
    fn take(&mut self, row: Row, number: u32) -> Result<(), ConvertError>;
    /// Discards all rows received so far. Called when the input turns out not to be in order; its rows are sent again.
    fn restart(&mut self) -> Result<(), ConvertError>;
}

/// Settings of the sort.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SortSettings<'o> {
    pub(crate) events: bool,
    pub(crate) memory: usize,
    pub(crate) folder: &'o Path,
}

/// Answer of a row's receiver: whether the adapter should read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    Continue,
    Stop,
}

fn push_latest(latest: &mut LatestAnswers, row: Row, sink: &mut impl RowSink) -> Result<(), ConvertError> {
    match latest.push(row) {
        Some((row, number)) => sink.take(row, number),
        None => Ok(()),
    }
}

/// Sorts rows that arrive item by item: collects those of one item until a row of the next item arrives.
#[derive(Debug)]
pub(crate) struct ItemwiseSorter {
    rows: Vec<Row>,
    buckets: Buckets,
    max_rows: usize,
    latest: LatestAnswers,
}

/// Bucket sort of one item's rows by the upper bits of their pseudonyms. Pseudonyms are uniformly distributed, so
/// buckets have few rows.
#[derive(Debug, Default)]
struct Buckets {
    rows: Vec<Row>,
    /// End of each bucket in `rows`.
    ends: Vec<u32>,
}

/// Memory of a row: in the collected rows, in the buckets, and its share of `ends`.
const BYTES_PER_ROW: usize = 2 * super::ROW_BYTES + size_of::<u32>();

impl Buckets {
    /// Distributes the rows into buckets. Rows of one bucket keep their order of arrival.
    fn distribute(&mut self, rows: &[Row]) {
        // One or two rows a bucket. At least four buckets, because the shift below would overflow with zero bits.
        let bits = rows.len().max(4).ilog2();
        let bucket_of = |row: &Row| (row.pseudonym >> (u128::BITS - bits)) as usize;
        self.ends.clear();
        self.ends.resize(1 << bits, 0);
        rows.iter().for_each(|row| self.ends[bucket_of(row)] += 1);
        let mut start = 0;
        for end in &mut self.ends {
            start += std::mem::replace(end, start);
        }
        self.rows.clear();
        self.rows.resize(rows.len(), Row::PLACEHOLDER);
        for row in rows {
            let end = &mut self.ends[bucket_of(row)];
            self.rows[*end as usize] = *row;
            *end += 1;
        }
    }

    /// Returns the buckets in order, each sorted.
    fn sorted_buckets(&mut self) -> impl Iterator<Item = &[Row]> {
        let mut remaining_rows = self.rows.as_mut_slice();
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let (bucket, tail) = std::mem::take(&mut remaining_rows).split_at_mut((end - start) as usize);
            (remaining_rows, start) = (tail, *end);
            if bucket.len() > 1 {
                bucket.sort_by_key(Row::sort_key);
            }
            &*bucket
        })
    }
}

impl ItemwiseSorter {
    pub(crate) fn new(order: SortSettings<'_>) -> Self {
        Self {
            rows: Vec::new(),
            buckets: Buckets::default(),
            max_rows: (order.memory / BYTES_PER_ROW).clamp(1, u32::MAX as usize),
            latest: LatestAnswers::new(order.events),
        }
    }

    /// Adds a row. Ends the reading if the rows are not in order, or if those of one item exceed the memory; the caller
    /// then has to sort all rows.
    #[inline]
    pub(crate) fn push(&mut self, row: Row, sink: &mut impl RowSink) -> Result<Flow, ConvertError> {
        if let Some(last) = self.rows.last() {
            if row.subject < last.subject || self.rows.len() >= self.max_rows {
                return Ok(Flow::Stop);
            }
            if row.subject > last.subject {
                self.flush(sink)?;
            }
        }
        self.rows.push(row);
        Ok(Flow::Continue)
    }

    fn flush(&mut self, sink: &mut impl RowSink) -> Result<(), ConvertError> {
        // Buckets order rows by pseudonym, but comparisons are ordered by their second item first.
        if self.rows.iter().any(|row| row.object != NO_OBJECT) {
            self.rows.sort_by_key(Row::sort_key);
            self.rows.drain(..).try_for_each(|row| push_latest(&mut self.latest, row, sink))?;
            return Ok(());
        }
        self.buckets.distribute(&self.rows);
        for bucket in self.buckets.sorted_buckets() {
            bucket.iter().try_for_each(|row| push_latest(&mut self.latest, *row, sink))?;
        }
        self.rows.clear();
        Ok(())
    }

    /// Sends the last rows to the sink, and returns the number of superseded rows.
    pub(crate) fn finish(mut self, sink: &mut impl RowSink) -> Result<u64, ConvertError> {
        self.flush(sink)?;
        if let Some((row, number)) = self.latest.finish() {
            sink.take(row, number)?;
        }
        Ok(self.latest.superseded)
    }
}

/// Sorts rows that arrive in any order, in memory or on disk.
#[derive(Debug)]
pub(crate) struct FullSorter {
    sorter: Sorter,
    latest: LatestAnswers,
}

impl FullSorter {
    pub(crate) fn new(order: SortSettings<'_>) -> Self {
        Self { sorter: Sorter::new(order.folder, order.memory), latest: LatestAnswers::new(order.events) }
    }

    pub(crate) fn push(&mut self, row: Row) -> Result<Flow, ConvertError> {
        self.sorter.push(row)?;
        Ok(Flow::Continue)
    }

    pub(crate) fn finish(mut self, sink: &mut impl RowSink) -> Result<u64, ConvertError> {
        let latest = &mut self.latest;
        self.sorter.finish(|row| push_latest(latest, row, sink))?;
        if let Some((row, number)) = latest.finish() {
            sink.take(row, number)?;
        }
        Ok(latest.superseded)
    }
}
