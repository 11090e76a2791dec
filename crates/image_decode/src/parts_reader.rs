//! Reads the parts of a file that are needed for its pixels, without copying. Other parts are hidden from the decoder,
//! because they can make it allocate memory or fail where viewers do not.

use std::{
    cell::Cell,
    io::{self, BufRead, Read, Seek, SeekFrom},
};

/// Sequence of the needed parts of a file.
pub(super) trait Parts<'a> {
    /// Returns the next part. An empty part marks the end.
    fn next(&mut self) -> &'a [u8];
}

pub(super) struct PartsReader<'a, P> {
    parts: P,
    current_part: &'a [u8],
    is_over: Option<&'a Cell<bool>>,
}

impl<'a, P> PartsReader<'a, P> {
    pub(super) fn new(parts: P) -> Self {
        Self { parts, current_part: &[], is_over: None }
    }

    /// Lets the caller end the file early by setting `is_over`.
    pub(super) fn ending_with(self, is_over: &'a Cell<bool>) -> Self {
        Self { is_over: Some(is_over), ..self }
    }
}

impl<'a, P: Parts<'a>> Read for PartsReader<'a, P> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.fill_buf()?.read(buffer)?;
        self.consume(count);
        Ok(count)
    }
}

impl<'a, P: Parts<'a>> BufRead for PartsReader<'a, P> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.is_over.is_some_and(Cell::get) {
            return Ok(&[]);
        }
        if self.current_part.is_empty() {
            self.current_part = self.parts.next();
        }
        Ok(self.current_part)
    }

    fn consume(&mut self, amount: usize) {
        self.current_part = self.current_part.get(amount..).unwrap_or_default();
    }
}

/// Required by the bounds of the decoders, but never called.
impl<P> Seek for PartsReader<'_, P> {
    fn seek(&mut self, _: SeekFrom) -> io::Result<u64> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
