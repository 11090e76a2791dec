//! A file without the parts that its pixels do not need, read without a copy: any part can ask for memory, or break a
//! rule that no viewer minds.

use std::io::{self, BufRead, Read, Seek, SeekFrom};

/// A file's parts, one after the other.
pub(super) trait Parts<'a> {
    /// The next that is needed; nothing at the end.
    fn next(&mut self) -> &'a [u8];
}

pub(super) struct Needed<'a, P> {
    parts: P,
    left: &'a [u8],
}

impl<P> Needed<'_, P> {
    pub(super) fn new(parts: P) -> Self {
        Self { parts, left: &[] }
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
