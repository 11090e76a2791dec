//! Splits a stream into blocks of whole lines.
//!
//! A line longer than the limit is refused before it fills the memory.

use memchr::{memchr, memrchr};

use super::{FileDigest, Stream};
use crate::error::{ConvertError, ErrorKind};

pub(crate) struct Lines {
    stream: Stream,
    block: Vec<u8>,
    /// Unread part of the block, up to where the unfinished line begins.
    unread: std::ops::Range<usize>,
    /// A line that began in the block before.
    partial_line: Vec<u8>,
    limit: usize,
    is_at_end: bool,
}

impl Lines {
    pub(crate) fn new(stream: Stream, limit: usize) -> Self {
        Self { stream, block: Vec::new(), unread: 0..0, partial_line: Vec::new(), limit, is_at_end: false }
    }

    /// `number` is that of the first line that was not given yet.
    pub(crate) fn next(&mut self, first_line: u64) -> Result<Option<&[u8]>, ConvertError> {
        if !self.unread.is_empty() {
            let range = self.unread.clone();
            self.unread.start = self.unread.end;
            return Ok(Some(&self.block[range]));
        }
        if self.is_at_end {
            return Ok(None);
        }
        self.partial_line.clear();
        self.partial_line.extend_from_slice(&self.block[self.unread.end..]);
        loop {
            if self.partial_line.len() > self.limit {
                let detail = "a line is too long (--max-record allows more)";
                return Err(ConvertError::content(
                    &self.stream.name,
                    first_line,
                    ErrorKind::LongRecord,
                    detail,
                ));
            }
            let Some(block) = self.stream.block(std::mem::take(&mut self.block))? else {
                self.is_at_end = true;
                self.unread = 0..0;
                return Ok((!self.partial_line.is_empty()).then_some(self.partial_line.as_slice()));
            };
            self.block = block;
            let Some(first) = memchr(b'\n', &self.block) else {
                self.partial_line.extend_from_slice(&self.block);
                continue;
            };
            let last = memrchr(b'\n', &self.block).unwrap_or(first);
            if self.partial_line.is_empty() {
                self.unread = last + 1..last + 1;
                return Ok(Some(&self.block[..=last]));
            }
            // Only this line is put together; the others stay where they are.
            self.partial_line.extend_from_slice(&self.block[..=first]);
            self.unread = first + 1..last + 1;
            return Ok(Some(&self.partial_line));
        }
    }

    pub(crate) fn finish(self) -> Result<FileDigest, ConvertError> {
        self.stream.finish()
    }
}
