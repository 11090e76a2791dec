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
    rest: std::ops::Range<usize>,
    /// A line that began in the block before.
    carried: Vec<u8>,
    limit: usize,
    ended: bool,
}

impl Lines {
    pub(crate) fn new(stream: Stream, limit: usize) -> Self {
        Self { stream, block: Vec::new(), rest: 0..0, carried: Vec::new(), limit, ended: false }
    }

    /// `number` is that of the first line that was not given yet.
    pub(crate) fn next(&mut self, number: u64) -> Result<Option<&[u8]>, ConvertError> {
        if !self.rest.is_empty() {
            let rest = self.rest.clone();
            self.rest.start = self.rest.end;
            return Ok(Some(&self.block[rest]));
        }
        if self.ended {
            return Ok(None);
        }
        self.carried.clear();
        self.carried.extend_from_slice(&self.block[self.rest.end..]);
        loop {
            if self.carried.len() > self.limit {
                let detail = "a line is too long (--max-record allows more)";
                return Err(ConvertError::content(&self.stream.name, number, ErrorKind::LongRecord, detail));
            }
            let Some(block) = self.stream.block(std::mem::take(&mut self.block))? else {
                self.ended = true;
                self.rest = 0..0;
                return Ok((!self.carried.is_empty()).then_some(self.carried.as_slice()));
            };
            self.block = block;
            let Some(first) = memchr(b'\n', &self.block) else {
                self.carried.extend_from_slice(&self.block);
                continue;
            };
            let last = memrchr(b'\n', &self.block).unwrap_or(first);
            if self.carried.is_empty() {
                self.rest = last + 1..last + 1;
                return Ok(Some(&self.block[..=last]));
            }
            // Only this line is put together; the others stay where they are.
            self.carried.extend_from_slice(&self.block[..=first]);
            self.rest = first + 1..last + 1;
            return Ok(Some(&self.carried));
        }
    }

    pub(crate) fn finish(self) -> Result<FileDigest, ConvertError> {
        self.stream.finish()
    }
}
