//! Brings an adapter's rows into the order of a bundle, and each question to its answer.
//!
//! Rows that come item by item need the memory of one item's rows; all others are sorted, on disk if need be.

#![allow(clippy::cast_possible_truncation, reason = "the upper half of a pseudonym has 64 bits")]

use std::path::Path;

use super::{NO_OBJECT, Row, latest::Latest, sorter::Sorter};
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

/// A row by the first half of its pseudonym, then by its place among those of its item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    half: u64,
    at: u32,
}

fn pass(latest: &mut Latest, row: Row, sink: &mut impl Sink) -> Result<(), Fault> {
    match latest.push(row) {
        Some((row, number)) => sink.take(row, number),
        None => Ok(()),
    }
}

/// Collects the rows of one item until those of the next one come.
#[derive(Debug)]
pub(crate) struct Grouped {
    rows: Vec<Row>,
    order: Vec<Place>,
    /// Those that half a pseudonym does not tell apart.
    same: Vec<Row>,
    most: usize,
    latest: Latest,
}

impl Grouped {
    pub(crate) fn new(order: Order<'_>) -> Self {
        Self {
            rows: Vec::new(),
            order: Vec::new(),
            same: Vec::new(),
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
        if self.rows.iter().any(|row| row.object != NO_OBJECT) {
            self.rows.sort_by_key(Row::place);
            self.rows.drain(..).try_for_each(|row| pass(&mut self.latest, row, sink))?;
            return Ok(());
        }
        // Half of a pseudonym tells nearly all apart, and its sort moves half as much and compares one number.
        self.order.clear();
        self.order
            .extend(self.rows.iter().zip(0..).map(|(row, at)| Place { half: (row.who >> 64) as u64, at }));
        self.order.sort_unstable();
        for same in self.order.chunk_by(|left, right| left.half == right.half) {
            if let [one] = same {
                pass(&mut self.latest, self.rows[one.at as usize], sink)?;
                continue;
            }
            self.same.clear();
            self.same.extend(same.iter().map(|place| self.rows[place.at as usize]));
            self.same.sort_by_key(Row::place);
            self.same.drain(..).try_for_each(|row| pass(&mut self.latest, row, sink))?;
        }
        self.rows.clear();
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
        self.sorter.finish(|row| pass(latest, row, sink))?;
        if let Some((row, number)) = latest.finish() {
            sink.take(row, number)?;
        }
        Ok(latest.superseded)
    }
}
