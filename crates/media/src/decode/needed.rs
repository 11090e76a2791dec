//! A file without the parts that its pixels do not need, read without a copy: any part can ask for memory, or break a
//! rule that no viewer minds.

use std::{
    cell::Cell,
    io::{self, BufRead, Read, Seek, SeekFrom},
};

/// A file's parts, one after the other.
pub(super) trait Parts<'a> {
    /// The next that is needed; nothing at the end.
    fn next(&mut self) -> &'a [u8];
}

pub(super) struct Needed<'a, P> {
    parts: P,
    left: &'a [u8],
    is_over: Option<&'a Cell<bool>>,
}

impl<'a, P> Needed<'a, P> {
    pub(super) fn new(parts: P) -> Self {
        Self { parts, left: &[], is_over: None }
    }

    /// Whoever reads says when the file ends, if not at its end.
    pub(super) fn until(self, is_over: &'a Cell<bool>) -> Self {
        Self { is_over: Some(is_over), ..self }
    }
}

impl<'a, P: Parts<'a>> Read for Needed<'a, P> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(into)?;
        self.consume(read);
        Ok(read)
    }
}

impl<'a, P: Parts<'a>> BufRead for Needed<'a, P> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.is_over.is_some_and(Cell::get) {
            return Ok(&[]);
        }
        if self.left.is_empty() {
            self.left = self.parts.next();
        }
        Ok(self.left)
    }

    fn consume(&mut self, amount: usize) {
        self.left = self.left.get(amount..).unwrap_or_default();
    }
}

/// Asked for by the decoders' types, and never used.
impl<P> Seek for Needed<'_, P> {
    fn seek(&mut self, _: SeekFrom) -> io::Result<u64> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
