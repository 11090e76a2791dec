//! Sorts an adapter's rows into the order of a bundle, and keeps the latest answer to each question.
//!
//! Rows that come item by item need the memory of one item's rows; all others are sorted, on disk if need be.

#![allow(
    clippy::cast_possible_truncation,
    reason = "the upper bits of a pseudonym are few, and rows in memory fewer than 2^32"
)]

use std::path::Path;

use super::{NO_OBJECT, Row, latest::Latest, sorter::Sorter};
use crate::error::ConvertError;

/// Receiver of rows in the order of a bundle.
pub(crate) trait Sink {
    /// `number` counts the rows of one question.
    fn take(&mut self, row: Row, number: u32) -> Result<(), ConvertError>;
    /// Everything so far was in vain and will come again: the input was not in order after all.
    fn again(&mut self) -> Result<(), ConvertError>;
}

/// Settings for sorting rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order<'o> {
    pub(crate) events: bool,
    pub(crate) memory: usize,
    pub(crate) folder: &'o Path,
}

/// Tells a reader of rows whether to continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    More,
    Enough,
}

fn pass(latest: &mut Latest, row: Row, sink: &mut impl Sink) -> Result<(), ConvertError> {
    match latest.push(row) {
        Some((row, number)) => sink.take(row, number),
        None => Ok(()),
    }
}

/// Collects the rows of one item until those of the next one come.
#[derive(Debug)]
pub(crate) struct Grouped {
    rows: Vec<Row>,
    dealt: Piles,
    most: usize,
    latest: Latest,
}

/// Rows of one question by the first bits of their pseudonyms, which are as good as random: few share their pile.
#[derive(Debug, Default)]
struct Piles {
    rows: Vec<Row>,
    /// End of each pile.
    ends: Vec<u32>,
}

/// Bytes that a row takes: where it is collected, where it is dealt to, and its part of the piles.
const COST: usize = 2 * super::SIZE + size_of::<u32>();

impl Piles {
    /// Rows of a pile keep the order in which they came.
    fn deal(&mut self, rows: &[Row]) {
        // One or two rows a pile; with one pile alone there is no bit to look at.
        let bits = rows.len().max(4).ilog2();
        let pile = |row: &Row| (row.who >> (u128::BITS - bits)) as usize;
        self.ends.clear();
        self.ends.resize(1 << bits, 0);
        rows.iter().for_each(|row| self.ends[pile(row)] += 1);
        let mut begins = 0;
        for end in &mut self.ends {
            begins += std::mem::replace(end, begins);
        }
        self.rows.clear();
        self.rows.resize(rows.len(), Row::NONE);
        for row in rows {
            let end = &mut self.ends[pile(row)];
            self.rows[*end as usize] = *row;
            *end += 1;
        }
    }

    /// Returns the piles, each sorted.
    fn piles(&mut self) -> impl Iterator<Item = &[Row]> {
        let mut rest = self.rows.as_mut_slice();
        let mut begins = 0;
        self.ends.iter().map(move |end| {
            let (pile, behind) = std::mem::take(&mut rest).split_at_mut((end - begins) as usize);
            (rest, begins) = (behind, *end);
            if pile.len() > 1 {
                pile.sort_by_key(Row::sort_key);
            }
            &*pile
        })
    }
}

impl Grouped {
    pub(crate) fn new(order: Order<'_>) -> Self {
        Self {
            rows: Vec::new(),
            dealt: Piles::default(),
            most: (order.memory / COST).clamp(1, u32::MAX as usize),
            latest: Latest::new(order.events),
        }
    }

    /// `Enough`: these rows are not in order, or one item's do not fit, and have to be sorted.
    #[inline]
    pub(crate) fn push(&mut self, row: Row, sink: &mut impl Sink) -> Result<Flow, ConvertError> {
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

    fn flush(&mut self, sink: &mut impl Sink) -> Result<(), ConvertError> {
        if self.rows.iter().any(|row| row.object != NO_OBJECT) {
            self.rows.sort_by_key(Row::sort_key);
            self.rows.drain(..).try_for_each(|row| pass(&mut self.latest, row, sink))?;
            return Ok(());
        }
        self.dealt.deal(&self.rows);
        for pile in self.dealt.piles() {
            pile.iter().try_for_each(|row| pass(&mut self.latest, *row, sink))?;
        }
        self.rows.clear();
        Ok(())
    }

    /// Passes on the last rows and returns the number of superseded ones.
    pub(crate) fn finish(mut self, sink: &mut impl Sink) -> Result<u64, ConvertError> {
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

    pub(crate) fn push(&mut self, row: Row) -> Result<Flow, ConvertError> {
        self.sorter.push(row)?;
        Ok(Flow::More)
    }

    pub(crate) fn finish(mut self, sink: &mut impl Sink) -> Result<u64, ConvertError> {
        let latest = &mut self.latest;
        self.sorter.finish(|row| pass(latest, row, sink))?;
        if let Some((row, number)) = latest.finish() {
            sink.take(row, number)?;
        }
        Ok(latest.superseded)
    }
}
