//! Reader that counts lines and refuses an overlong entry before it is in memory.
//!
//! The parser behind it knows where entries end and calls [`LengthLimit::renew`] there.

use std::{
    io::{self, BufRead, Read},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

/// Maximum length of an entry in bytes. Parsers read ahead, so a little more may pass.
const MAX_ENTRY_BYTES: usize = 4 << 20;

/// Reader that limits the length of each entry.
pub(crate) struct LimitedReader<R> {
    file: R,
    limit: LengthLimit,
}

/// Handle on the limit and the line count of a [`LimitedReader`].
#[derive(Clone)]
pub(crate) struct LengthLimit(Arc<Counts>);

struct Counts {
    remaining: AtomicUsize,
    newlines: AtomicU64,
}

impl LengthLimit {
    /// Starts the next entry.
    pub(crate) fn renew(&self) {
        self.0.remaining.store(MAX_ENTRY_BYTES, Relaxed);
    }

    /// Returns the line of the next byte, from 1.
    pub(crate) fn line(&self) -> u64 {
        self.0.newlines.load(Relaxed) + 1
    }
}

/// Limits the length of each entry of `file`.
pub(crate) fn limit_length<R>(file: R) -> (LimitedReader<R>, LengthLimit) {
    let limit = LengthLimit(Arc::new(Counts {
        remaining: AtomicUsize::new(MAX_ENTRY_BYTES),
        newlines: AtomicU64::new(0),
    }));
    (LimitedReader { file, limit: limit.clone() }, limit)
}

impl<R: BufRead> Read for LimitedReader<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(into)?;
        self.consume(read);
        Ok(read)
    }
}

impl<R: BufRead> BufRead for LimitedReader<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.limit.0.remaining.load(Relaxed) == 0 {
            return Err(io::Error::other(format!("an entry is longer than {MAX_ENTRY_BYTES} bytes")));
        }
        self.file.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        let counts = &self.limit.0;
        counts.remaining.store(counts.remaining.load(Relaxed).saturating_sub(count), Relaxed);
        // The consumed bytes are still in the buffer, so this does not read from the file.
        if let Ok(buffer) = self.file.fill_buf() {
            let ends = buffer.iter().take(count).filter(|byte| **byte == b'\n').count() as u64;
            counts.newlines.store(counts.newlines.load(Relaxed) + ends, Relaxed);
        }
        self.file.consume(count);
    }
}
