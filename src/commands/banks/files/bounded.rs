//! Refuses a part of a file that is longer than any that is meant, before it is in memory.
//!
//! It does not know where parts end: whoever reads them says so.

use std::{
    io::{self, BufRead, Read},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

/// Of one part, or a little more: readers read ahead.
const LONGEST: usize = 4 << 20;

pub(super) struct Bounded<R> {
    file: R,
    bound: Bound,
}

/// What may be read until it is renewed.
#[derive(Clone)]
pub(super) struct Bound(Arc<AtomicUsize>);

impl Bound {
    /// The next part begins.
    pub(super) fn renew(&self) {
        self.0.store(LONGEST, Relaxed);
    }
}

pub(super) fn bounded<R>(file: R) -> (Bounded<R>, Bound) {
    let bound = Bound(Arc::new(AtomicUsize::new(LONGEST)));
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
        if self.bound.0.load(Relaxed) == 0 {
            return Err(io::Error::other(format!("an entry is longer than {LONGEST} bytes")));
        }
        self.file.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        let left = self.bound.0.load(Relaxed).saturating_sub(count);
        self.bound.0.store(left, Relaxed);
        self.file.consume(count);
    }
}
