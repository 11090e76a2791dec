//! Reads the parts of a file that its pixels need, without copying them. Other parts can ask a decoder for memory, or
//! break a rule that no viewer minds.

use std::{
    cell::Cell,
    io::{self, BufRead, Read, Seek, SeekFrom},
};

/// The needed parts of a file, one after the other.
pub(super) trait Parts<'a> {
    /// Returns the next part; an empty one at the end.
    fn next(&mut self) -> &'a [u8];
}

pub(super) struct PartsReader<'a, P> {
    parts: P,
    rest: &'a [u8],
    is_over: Option<&'a Cell<bool>>,
}

impl<'a, P> PartsReader<'a, P> {
    pub(super) fn new(parts: P) -> Self {
        Self { parts, rest: &[], is_over: None }
    }

    /// Lets the caller end the file early by setting `is_over`.
    pub(super) fn until(self, is_over: &'a Cell<bool>) -> Self {
        Self { is_over: Some(is_over), ..self }
    }
}

impl<'a, P: Parts<'a>> Read for PartsReader<'a, P> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(into)?;
        self.consume(read);
        Ok(read)
    }
}

impl<'a, P: Parts<'a>> BufRead for PartsReader<'a, P> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.is_over.is_some_and(Cell::get) {
            return Ok(&[]);
        }
        if self.rest.is_empty() {
            self.rest = self.parts.next();
        }
        Ok(self.rest)
    }

    fn consume(&mut self, amount: usize) {
        self.rest = self.rest.get(amount..).unwrap_or_default();
    }
}

/// Required by the decoders' types, and never called.
impl<P> Seek for PartsReader<'_, P> {
    fn seek(&mut self, _: SeekFrom) -> io::Result<u64> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
