//! Brings an adapter's rows into the order of a bundle, and each question to its answer.
//!
//! Rows that come item by item need the memory of one item's rows; all others are sorted, on disk if need be.

use std::path::Path;

use super::{Row, latest::Latest, sorter::Sorter};
use crate::fault::Fault;

/// Whoever takes rows in the order of a bundle.
pub(crate) trait Sink {
    /// `number` counts the rows of one question.
    fn take(&mut self, row: Row, number: u32) -> Result<(), Fault>;
    /// Everything so far was in vain and will come again: the input was not in order after all.
    fn again(&mut self) -> Result<(), Fault>;
}

/// How rows are put in order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order<'o> {
    pub(crate) events: bool,
    pub(crate) memory: usize,
    pub(crate) folder: &'o Path,
}

/// Whether more rows are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    More,
    Enough,
}

/// Collects the rows of one item until those of the next one come.
#[derive(Debug)]
pub(crate) struct Grouped {
    rows: Vec<Row>,
    most: usize,
    latest: Latest,
}

impl Grouped {
    pub(crate) fn new(order: Order<'_>) -> Self {
        Self {
            rows: Vec::new(),
            most: (order.memory / super::SIZE * 2 / 3).max(1),
            latest: Latest::new(order.events),
        }
    }

    /// `Enough`: these rows are not in order, or one item's do not fit, and have to be sorted.
    #[inline]
    pub(crate) fn push(&mut self, row: Row, sink: &mut impl Sink) -> Result<Flow, Fault> {
        if let Some(last) = self.rows.last() {
            if row.subject < last.subject || self.rows.len() >= self.most {
                return Ok(Flow::Enough);
            }
            if row.subject > last.subject {
                self.flush(sink)?;
            }
        }
        self.rows.push(row);
        Ok(Flow::More)
    }

    fn flush(&mut self, sink: &mut impl Sink) -> Result<(), Fault> {
        self.rows.sort_by_key(|row| (row.object.wrapping_add(1), row.who, row.place().3));
        for row in self.rows.drain(..) {
            if let Some((row, number)) = self.latest.push(row) {
                sink.take(row, number)?;
            }
        }
        Ok(())
    }

    /// Passes on the last rows and tells how many were superseded.
    pub(crate) fn finish(mut self, sink: &mut impl Sink) -> Result<u64, Fault> {
        self.flush(sink)?;
        if let Some((row, number)) = self.latest.finish() {
            sink.take(row, number)?;
        }
        Ok(self.latest.superseded)
    }
}

/// Sorts everything.
#[derive(Debug)]
pub(crate) struct Sorted {
    sorter: Sorter,
    latest: Latest,
}

impl Sorted {
    pub(crate) fn new(order: Order<'_>) -> Self {
        Self { sorter: Sorter::new(order.folder, order.memory), latest: Latest::new(order.events) }
    }

    pub(crate) fn push(&mut self, row: Row) -> Result<Flow, Fault> {
        self.sorter.push(row)?;
        Ok(Flow::More)
    }

    pub(crate) fn finish(mut self, sink: &mut impl Sink) -> Result<u64, Fault> {
        let latest = &mut self.latest;
        self.sorter.finish(|row| match latest.push(row) {
            Some((row, number)) => sink.take(row, number),
            None => Ok(()),
        })?;
        if let Some((row, number)) = latest.finish() {
            sink.take(row, number)?;
        }
        Ok(latest.superseded)
    }
}
