//! Finds hashes that occur more than once: sorted in memory, or in runs on disk.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, binary_heap::PeekMut},
    fs::File,
    io::{self, BufReader, Read as _, Seek as _, Write as _},
};

use crate::storage::spill::{MOST_RUNS, SpillOptions, temporary};

#[derive(Debug)]
pub(crate) struct Hashes {
    room: SpillOptions,
    most: usize,
    held: Vec<u64>,
    runs: Vec<File>,
}

const LEAST: usize = 8 << 10;

impl Hashes {
    pub(crate) fn new(room: SpillOptions) -> Self {
        let most = (room.memory / size_of::<u64>()).max(LEAST);
        Self { room, most, held: Vec::new(), runs: Vec::new() }
    }

    #[inline]
    pub(crate) fn push(&mut self, hash: u64) -> io::Result<()> {
        if self.held.len() == self.most {
            self.write_run()?;
        }
        self.held.push(hash);
        Ok(())
    }

    /// Calls with each that comes more than once, in order, and once only.
    pub(crate) fn repeated(mut self, mut each: impl FnMut(u64)) -> io::Result<()> {
        let (mut last, mut told) = (None, None);
        let mut see = |hash| {
            if last == Some(hash) && told != Some(hash) {
                each(hash);
                told = last;
            }
            last = Some(hash);
        };
        if self.runs.is_empty() {
            self.held.sort_unstable();
            self.held.iter().for_each(|hash| see(*hash));
            return Ok(());
        }
        self.write_run()?;
        self.held = Vec::new();
        merge(self.runs, |hash| {
            see(hash);
            Ok(())
        })
    }

    #[cold]
    fn write_run(&mut self) -> io::Result<()> {
        self.held.sort_unstable();
        let mut run = temporary(&self.room.folder)?;
        self.held.iter().try_for_each(|hash| run.write_all(&hash.to_le_bytes()))?;
        self.held.clear();
        self.runs.push(run.into_inner().map_err(io::IntoInnerError::into_error)?);
        if self.runs.len() == MOST_RUNS {
            let mut whole = temporary(&self.room.folder)?;
            merge(std::mem::take(&mut self.runs), |hash| whole.write_all(&hash.to_le_bytes()))?;
            self.runs.push(whole.into_inner().map_err(io::IntoInnerError::into_error)?);
        }
        Ok(())
    }
}

fn merge(runs: Vec<File>, mut each: impl FnMut(u64) -> io::Result<()>) -> io::Result<()> {
    let mut next = BinaryHeap::with_capacity(runs.len());
    let mut readers = Vec::with_capacity(runs.len());
    for (run, mut file) in runs.into_iter().enumerate() {
        file.rewind()?;
        let mut reader = BufReader::with_capacity(64 << 10, file);
        next.extend(read(&mut reader)?.map(|hash| Reverse((hash, run))));
        readers.push(reader);
    }
    while let Some(mut first) = next.peek_mut() {
        let Reverse((hash, run)) = *first;
        each(hash)?;
        match read(&mut readers[run])? {
            Some(hash) => *first = Reverse((hash, run)),
            None => _ = PeekMut::pop(first),
        }
    }
    Ok(())
}

fn read(from: &mut BufReader<File>) -> io::Result<Option<u64>> {
    let mut hash = [0; size_of::<u64>()];
    match from.read_exact(&mut hash) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        read => read.map(|()| Some(u64::from_le_bytes(hash))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_comes_again_is_told_once_whatever_the_room() {
        let folder = tempfile::tempdir().unwrap();
        // More runs than are merged at once, the last one only begun.
        let count = (MOST_RUNS + 6) * LEAST + 5;
        for memory in [0, usize::MAX] {
            let mut hashes = Hashes::new(SpillOptions { memory, folder: folder.path().to_owned() });
            for at in 0..count as u64 {
                hashes.push(at.wrapping_mul(0x9e37_79b9_7f4a_7c15)).unwrap();
            }
            let again = [0, u64::MAX, 77_u64.wrapping_mul(0x9e37_79b9_7f4a_7c15)];
            for hash in again.into_iter().chain(again) {
                hashes.push(hash).unwrap();
            }
            let mut found = Vec::new();
            hashes.repeated(|hash| found.push(hash)).unwrap();
            found.sort_unstable();
            let mut wanted = again.to_vec();
            wanted.sort_unstable();
            assert_eq!(found, wanted, "{memory}");
        }
    }
}
