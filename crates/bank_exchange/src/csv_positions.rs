//! Tracks the lines at which the rows of a table begin, for a CSV parser that only reports byte offsets.
//!
//! It also detects a file that ends within a quote, because the parser takes that for the end of the cell.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    io::{self, Read},
    rc::Rc,
};

/// Reader that tracks where rows begin.
pub(crate) struct TrackedReader<R> {
    file: R,
    positions: RowPositions,
    offset: u64,
    line: u64,
    is_blank: bool,
    state: QuoteState,
}

/// State of the quotes at a byte of a table.
#[derive(Clone, Copy, PartialEq)]
enum QuoteState {
    /// At the start of a cell.
    CellStart,
    Plain,
    Quote,
    /// After a quote, which ends the quoted part unless another one follows.
    QuoteEnd,
}

impl QuoteState {
    fn after(self, byte: u8) -> Self {
        match (self, byte) {
            (Self::Quote, b'"') => Self::QuoteEnd,
            (Self::CellStart | Self::QuoteEnd, b'"') | (Self::Quote, _) => Self::Quote,
            (_, b',' | b'\n' | b'\r') => Self::CellStart,
            _ => Self::Plain,
        }
    }
}

/// Positions of rows, filled while a [`TrackedReader`] is read.
#[derive(Clone, Default)]
pub(crate) struct RowPositions {
    /// Byte offset and line of each row that was read and not requested yet.
    lines: Rc<RefCell<VecDeque<(u64, u64)>>>,
    ends_within_a_quote: Rc<Cell<bool>>,
}

impl RowPositions {
    /// Returns the first line, from 1, that begins at a byte or after it. Bytes must be requested in ascending order.
    pub(crate) fn line(&self, byte: u64) -> Option<u64> {
        let mut positions = self.lines.borrow_mut();
        while positions.front().is_some_and(|(offset, _)| *offset < byte) {
            positions.pop_front();
        }
        positions.front().map(|(_, line)| *line)
    }

    /// True if the file ends within a quote; known once the last row is read.
    pub(crate) fn ends_within_a_quote(&self) -> bool {
        self.ends_within_a_quote.get()
    }
}

/// Tracks the lines at which the rows of `file` begin.
pub(crate) fn track_positions<R>(file: R) -> (TrackedReader<R>, RowPositions) {
    let positions = RowPositions::default();
    (
        TrackedReader {
            file,
            positions: positions.clone(),
            offset: 0,
            line: 1,
            is_blank: true,
            state: QuoteState::CellStart,
        },
        positions,
    )
}

impl<R: Read> Read for TrackedReader<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(into)?;
        self.positions.ends_within_a_quote.set(read == 0 && self.state == QuoteState::Quote);
        for (offset, byte) in (self.offset..).zip(&into[..read]) {
            self.state = self.state.after(*byte);
            match byte {
                b'\n' => {
                    self.line += 1;
                    self.is_blank = true;
                }
                b'\r' => {}
                // Lines within a quote are recorded as well; `RowPositions::line` skips them.
                _ if self.is_blank => {
                    self.is_blank = false;
                    self.positions.lines.borrow_mut().push_back((offset, self.line));
                }
                _ => {}
            }
        }
        self.offset += read as u64;
        Ok(read)
    }
}
