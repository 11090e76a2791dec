//! Notes at which byte of a table each line begins, for a reader that tells bytes only, and whether the file ends within
//! a quote, which that reader takes for the end of its cell.
//!
//! Blank lines, and what is left of the end of one before, are no beginning.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    io::{self, Read},
    rc::Rc,
};

pub(super) struct Noted<R> {
    file: R,
    starts: Starts,
    at: u64,
    line: u64,
    is_blank: bool,
    within: Within,
}

/// Where a byte of a table is.
#[derive(Clone, Copy, PartialEq)]
enum Within {
    /// A cell begins.
    Nothing,
    Plain,
    Quote,
    /// A quote ends, unless another one follows.
    Behind,
}

impl Within {
    fn after(self, byte: u8) -> Self {
        match (self, byte) {
            (Self::Quote, b'"') => Self::Behind,
            (Self::Nothing | Self::Behind, b'"') | (Self::Quote, _) => Self::Quote,
            (_, b',' | b'\n' | b'\r') => Self::Nothing,
            _ => Self::Plain,
        }
    }
}

#[derive(Clone, Default)]
pub(super) struct Starts {
    /// Bytes and lines, of what was read and not asked for.
    lines: Rc<RefCell<VecDeque<(u64, u64)>>>,
    ends_within_a_quote: Rc<Cell<bool>>,
}

impl Starts {
    /// The first line, from 1, that begins at a byte or after it. Bytes are asked for in their order.
    pub(super) fn line(&self, byte: u64) -> Option<u64> {
        let mut starts = self.lines.borrow_mut();
        while starts.front().is_some_and(|(at, _)| *at < byte) {
            starts.pop_front();
        }
        starts.front().map(|(_, line)| *line)
    }

    /// Known when its last record is read.
    pub(super) fn ends_within_a_quote(&self) -> bool {
        self.ends_within_a_quote.get()
    }
}

pub(super) fn noted<R>(file: R) -> (Noted<R>, Starts) {
    let starts = Starts::default();
    (Noted { file, starts: starts.clone(), at: 0, line: 1, is_blank: true, within: Within::Nothing }, starts)
}

impl<R: Read> Read for Noted<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(into)?;
        self.starts.ends_within_a_quote.set(read == 0 && self.within == Within::Quote);
        for (at, byte) in (self.at..).zip(&into[..read]) {
            self.within = self.within.after(*byte);
            match byte {
                b'\n' => {
                    self.line += 1;
                    self.is_blank = true;
                }
                b'\r' => {}
                _ if self.is_blank => {
                    self.is_blank = false;
                    self.starts.lines.borrow_mut().push_back((at, self.line));
                }
                _ => {}
            }
        }
        self.at += read as u64;
        Ok(read)
    }
}
