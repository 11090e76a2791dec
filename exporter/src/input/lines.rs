//! Blocks of whole lines.
//!
//! A line longer than the bound is refused before it fills the memory.

use memchr::memrchr;

use super::{Ended, Stream};
use crate::fault::{Fault, Wrong};

pub(crate) struct Lines {
    stream: Stream,
    block: Vec<u8>,
    /// Where the unfinished line begins.
    whole: usize,
    limit: usize,
    ended: bool,
}

impl Lines {
    pub(crate) fn new(stream: Stream, limit: usize) -> Self {
        Self { stream, block: Vec::new(), whole: 0, limit, ended: false }
    }

    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>, Fault> {
        if self.ended {
            return Ok(None);
        }
        let mut carried = self.block[self.whole..].to_vec();
        let mut used = std::mem::take(&mut self.block);
        loop {
            if carried.len() > self.limit {
                let detail = "a line is too long (--max-record allows more)";
                return Err(Fault::content(&self.stream.name, None, Wrong::LongRecord, detail));
            }
            let Some(mut block) = self.stream.block(std::mem::take(&mut used))? else {
                self.ended = true;
                self.whole = carried.len();
                self.block = carried;
                return Ok((!self.block.is_empty()).then_some(&self.block));
            };
            let Some(last) = memrchr(b'\n', &block) else {
                carried.extend_from_slice(&block);
                used = block;
                continue;
            };
            self.whole = carried.len() + last + 1;
            if !carried.is_empty() {
                block.splice(0..0, carried.drain(..));
            }
            self.block = block;
            return Ok(Some(&self.block[..self.whole]));
        }
    }

    pub(crate) fn finish(self) -> Result<Ended, Fault> {
        self.stream.finish()
    }
}
