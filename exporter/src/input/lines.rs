//! Splits a stream into blocks of whole lines.
//!
//! A line beyond the limit is refused before it is buffered completely.

use memchr::{memchr, memrchr};

use super::{FileDigest, Stream};
use crate::error::{ConvertError, ErrorKind};

pub(crate) struct Lines {
    stream: Stream,
    block: Vec<u8>,
    /// Complete lines of the block that were not returned yet. The unfinished line behind them follows in the next
    /// block.
    unread: std::ops::Range<usize>,
    /// Beginning of a line that continues in the next block.
    partial_line: Vec<u8>,
    limit: usize,
    is_at_end: bool,
}

impl Lines {
    pub(crate) fn new(stream: Stream, limit: usize) -> Self {
        Self { stream, block: Vec::new(), unread: 0..0, partial_line: Vec::new(), limit, is_at_end: false }
    }

    /// Returns the next complete lines; `first_line` is the number of the first of them, for errors.
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
            // A complete line within one block is bounded by the block size.
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
            // Only the split line is copied; the other lines are returned from the block in place.
            self.partial_line.extend_from_slice(&self.block[..=first]);
            self.unread = first + 1..last + 1;
            return Ok(Some(&self.partial_line));
        }
    }

    pub(crate) fn finish(self) -> Result<FileDigest, ConvertError> {
        self.stream.finish()
    }
}
