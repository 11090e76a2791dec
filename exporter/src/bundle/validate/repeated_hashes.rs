//! Finds hashes that occur more than once, with an external merge sort.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, binary_heap::PeekMut},
    fs::File,
    io::{self, BufReader, Read as _, Seek as _, Write as _},
};

use crate::storage::spill::{MAX_RUNS, SpillOptions, create_temporary_file};

/// External sorter of hashes.
#[derive(Debug)]
pub(crate) struct HashSorter {
    spill_options: SpillOptions,
    max_hashes: usize,
    hashes: Vec<u64>,
    runs: Vec<File>,
}

/// Lower bound of the hashes in memory, so that runs are never tiny.
const MIN_HASHES: usize = 8 << 10;

impl HashSorter {
    pub(crate) fn new(spill_options: SpillOptions) -> Self {
        let max_hashes = (spill_options.memory / size_of::<u64>()).max(MIN_HASHES);
        Self { spill_options, max_hashes, hashes: Vec::new(), runs: Vec::new() }
    }

    #[inline]
    pub(crate) fn push(&mut self, hash: u64) -> io::Result<()> {
        if self.hashes.len() == self.max_hashes {
            self.write_run()?;
        }
        self.hashes.push(hash);
        Ok(())
    }

    /// Calls `visit` once for each hash that occurs more than once, in ascending order.
    pub(crate) fn visit_repeated(mut self, mut visit: impl FnMut(u64)) -> io::Result<()> {
        let (mut previous, mut reported) = (None, None);
        let mut compare = |hash| {
            // A hash may occur more than twice, and is visited once.
            if previous == Some(hash) && reported != Some(hash) {
                visit(hash);
                reported = previous;
            }
            previous = Some(hash);
        };
        if self.runs.is_empty() {
            self.hashes.sort_unstable();
            self.hashes.iter().for_each(|hash| compare(*hash));
            return Ok(());
        }
        self.write_run()?;
        // Frees the memory before the merge allocates its buffers.
        self.hashes = Vec::new();
        merge_runs(self.runs, |hash| {
            compare(hash);
            Ok(())
        })
    }

    #[cold]
    fn write_run(&mut self) -> io::Result<()> {
        self.hashes.sort_unstable();
        let mut run = create_temporary_file(&self.spill_options.folder)?;
        self.hashes.iter().try_for_each(|hash| run.write_all(&hash.to_le_bytes()))?;
        self.hashes.clear();
        self.runs.push(run.into_inner().map_err(io::IntoInnerError::into_error)?);
        if self.runs.len() == MAX_RUNS {
            let mut merged_run = create_temporary_file(&self.spill_options.folder)?;
            merge_runs(std::mem::take(&mut self.runs), |hash| merged_run.write_all(&hash.to_le_bytes()))?;
            self.runs.push(merged_run.into_inner().map_err(io::IntoInnerError::into_error)?);
        }
        Ok(())
    }
}

fn merge_runs(runs: Vec<File>, mut visit: impl FnMut(u64) -> io::Result<()>) -> io::Result<()> {
    let mut heads = BinaryHeap::with_capacity(runs.len());
    let mut readers = Vec::with_capacity(runs.len());
    for (run, mut file) in runs.into_iter().enumerate() {
        file.rewind()?;
        let mut reader = BufReader::with_capacity(64 << 10, file);
        heads.extend(read_hash(&mut reader)?.map(|hash| Reverse((hash, run))));
        readers.push(reader);
    }
    while let Some(mut head) = heads.peek_mut() {
        let Reverse((hash, run)) = *head;
        visit(hash)?;
        match read_hash(&mut readers[run])? {
            // Replacing the head orders the heap once; a pop and a push would order it twice.
            Some(hash) => *head = Reverse((hash, run)),
            None => _ = PeekMut::pop(head),
        }
    }
    Ok(())
}

fn read_hash(from: &mut BufReader<File>) -> io::Result<Option<u64>> {
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
    fn repeated_hashes_are_visited_once_within_any_memory() {
        let folder = tempfile::tempdir().unwrap();
        // More runs than `MAX_RUNS`, and a last run that is not full.
        let count = (MAX_RUNS + 6) * MIN_HASHES + 5;
        for memory in [0, usize::MAX] {
            let mut hashes = HashSorter::new(SpillOptions { memory, folder: folder.path().to_owned() });
            for at in 0..count as u64 {
                hashes.push(at.wrapping_mul(0x9e37_79b9_7f4a_7c15)).unwrap();
            }
            let repeated = [0, u64::MAX, 77_u64.wrapping_mul(0x9e37_79b9_7f4a_7c15)];
            for hash in repeated.into_iter().chain(repeated) {
                hashes.push(hash).unwrap();
            }
            let mut visited = Vec::new();
            hashes.visit_repeated(|hash| visited.push(hash)).unwrap();
            visited.sort_unstable();
            let mut expected = repeated.to_vec();
            expected.sort_unstable();
            assert_eq!(visited, expected, "{memory}");
        }
    }
}
