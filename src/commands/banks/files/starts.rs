//! Notes at which byte of a table each line begins, for a reader that tells bytes only.
//!
//! Blank lines, and what is left of the end of one before, are no beginning.

use std::{
    cell::RefCell,
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
}

/// Bytes and lines, of what was read and not asked for.
#[derive(Clone, Default)]
pub(super) struct Starts(Rc<RefCell<VecDeque<(u64, u64)>>>);

impl Starts {
    /// The first line, from 1, that begins at a byte or after it. Bytes are asked for in their order.
    pub(super) fn line(&self, byte: u64) -> Option<u64> {
        let mut starts = self.0.borrow_mut();
        while starts.front().is_some_and(|(at, _)| *at < byte) {
            starts.pop_front();
        }
        starts.front().map(|(_, line)| *line)
    }
}

pub(super) fn noted<R>(file: R) -> (Noted<R>, Starts) {
    let starts = Starts::default();
    (Noted { file, starts: starts.clone(), at: 0, line: 1, is_blank: true }, starts)
}

impl<R: Read> Read for Noted<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(into)?;
        for (at, byte) in (self.at..).zip(&into[..read]) {
            match byte {
                b'\n' => {
                    self.line += 1;
                    self.is_blank = true;
                }
                b'\r' => {}
                _ if self.is_blank => {
                    self.is_blank = false;
                    self.starts.0.borrow_mut().push_back((at, self.line));
                }
                _ => {}
            }
        }
        self.at += read as u64;
        Ok(read)
    }
}
