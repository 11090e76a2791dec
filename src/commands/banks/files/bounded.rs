//! Refuses a part of a file that is longer than any that is meant, before it is in memory, and counts its lines.
//!
//! It does not know where parts end: whoever reads them says so.

use std::{
    io::{self, BufRead, Read},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

/// Of one part, or a little more: readers read ahead.
const LONGEST: usize = 4 << 20;

pub(super) struct Bounded<R> {
    file: R,
    bound: Bound,
}

/// What may be read until it is renewed, and how far it is.
#[derive(Clone)]
pub(super) struct Bound(Arc<Counts>);

struct Counts {
    left: AtomicUsize,
    ends_of_lines: AtomicU64,
}

impl Bound {
    /// The next part begins.
    pub(super) fn renew(&self) {
        self.0.left.store(LONGEST, Relaxed);
    }

    /// The line, from 1, that the next byte is in.
    pub(super) fn line(&self) -> u64 {
        self.0.ends_of_lines.load(Relaxed) + 1
    }
}

pub(super) fn bounded<R>(file: R) -> (Bounded<R>, Bound) {
    let bound = Bound(Arc::new(Counts { left: AtomicUsize::new(LONGEST), ends_of_lines: AtomicU64::new(0) }));
    (Bounded { file, bound: bound.clone() }, bound)
}

impl<R: BufRead> Read for Bounded<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(into)?;
        self.consume(read);
        Ok(read)
    }
}

impl<R: BufRead> BufRead for Bounded<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.bound.0.left.load(Relaxed) == 0 {
            return Err(io::Error::other(format!("an entry is longer than {LONGEST} bytes")));
        }
        self.file.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        let counts = &self.bound.0;
        counts.left.store(counts.left.load(Relaxed).saturating_sub(count), Relaxed);
        // What is consumed is in the buffer already, so this reads nothing.
        if let Ok(buffer) = self.file.fill_buf() {
            let ends = buffer.iter().take(count).filter(|byte| **byte == b'\n').count() as u64;
            counts.ends_of_lines.store(counts.ends_of_lines.load(Relaxed) + ends, Relaxed);
        }
        self.file.consume(count);
    }
}
