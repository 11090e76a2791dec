//! Groups records by key in bounded memory, with sorted runs on disk beyond the limit. Whole keys are compared; their
//! hash only determines the order.

use std::{
    cmp::{Ordering, Reverse},
    collections::{BinaryHeap, hash_map::RandomState},
    fs::File,
    hash::BuildHasher as _,
    io::{self, BufReader, BufWriter, Read, Seek as _, Write},
    path::{Path, PathBuf},
};

/// Memory limit, and the folder for data that exceeds it.
#[derive(Clone, Debug)]
pub struct SpillOptions {
    /// Maximum memory in bytes.
    pub memory: usize,
    /// Folder for unnamed files, which the operating system removes when the process ends.
    pub folder: PathBuf,
}

impl SpillOptions {
    /// Options with a fraction `1 / parts` of the memory.
    pub(crate) fn share(&self, parts: usize) -> Self {
        Self { memory: self.memory / parts, folder: self.folder.clone() }
    }
}

/// Number of runs at which all are merged into one. Each run costs an open file and a read buffer.
pub(crate) const MAX_RUNS: usize = 64;
/// Buffer of each run.
const BUFFER_BYTES: usize = 64 << 10;
/// Memory that is used even if the limit is smaller, so that runs are never tiny.
const MIN_MEMORY_BYTES: usize = 64 << 10;

/// Records of a key and a value, returned in groups of equal keys.
#[derive(Debug)]
pub(crate) struct Spill {
    options: SpillOptions,
    hasher: RandomState,
    arena: Vec<u8>,
    index: Vec<RecordSpan>,
    runs: Vec<File>,
}

/// Location of a record in the arena: the value follows the key.
#[derive(Clone, Copy, Debug)]
struct RecordSpan {
    hash: u64,
    start: usize,
    key_length: u32,
    value_length: u32,
}

impl RecordSpan {
    fn key(self, arena: &[u8]) -> &[u8] {
        &arena[self.start..self.start + self.key_length as usize]
    }

    fn value(self, arena: &[u8]) -> &[u8] {
        let value_start = self.start + self.key_length as usize;
        &arena[value_start..value_start + self.value_length as usize]
    }
}

impl Spill {
    pub(crate) fn new(options: SpillOptions) -> Self {
        Self { options, hasher: RandomState::new(), arena: Vec::new(), index: Vec::new(), runs: Vec::new() }
    }

    pub(crate) fn push(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        let span = RecordSpan {
            hash: self.hasher.hash_one(key),
            start: self.arena.len(),
            key_length: encode_length(key)?,
            value_length: encode_length(value)?,
        };
        self.arena.extend_from_slice(key);
        self.arena.extend_from_slice(value);
        self.index.push(span);
        let used_bytes = self.arena.len() + self.index.len() * size_of::<RecordSpan>();
        if used_bytes > self.options.memory.max(MIN_MEMORY_BYTES) { self.write_run() } else { Ok(()) }
    }

    /// Calls `visit` with the key and value of each record, and true for the first record of a key. Records of one key
    /// are consecutive and ordered by value.
    pub(crate) fn finish(
        mut self,
        mut visit: impl FnMut(&[u8], &[u8], bool) -> io::Result<()>,
    ) -> io::Result<()> {
        // All records fit into memory: no file was created.
        if self.runs.is_empty() {
            self.sort();
            let mut previous: Option<RecordSpan> = None;
            for span in &self.index {
                let key = span.key(&self.arena);
                let is_first = previous.is_none_or(|last| last.key(&self.arena) != key);
                visit(key, span.value(&self.arena), is_first)?;
                previous = Some(*span);
            }
            return Ok(());
        }
        if !self.index.is_empty() {
            self.write_run()?;
        }
        // Frees the memory before the merge allocates its buffers.
        self.arena = Vec::new();
        self.index = Vec::new();
        let mut previous: Option<Vec<u8>> = None;
        merge_runs(self.runs, |record| {
            let is_first = previous.as_ref().is_none_or(|last| *last != record.key);
            visit(&record.key, &record.value, is_first)?;
            if is_first {
                previous.get_or_insert_default().clone_from(&record.key);
            }
            Ok(())
        })
    }

    fn sort(&mut self) {
        let arena = &self.arena;
        // The hash state is random, so the order of groups differs between processes.
        self.index.sort_unstable_by(|left, right| {
            left.hash
                .cmp(&right.hash)
                .then_with(|| left.key(arena).cmp(right.key(arena)))
                .then_with(|| left.value(arena).cmp(right.value(arena)))
        });
    }

    #[cold]
    fn write_run(&mut self) -> io::Result<()> {
        self.sort();
        let mut run = self.create_run()?;
        for span in &self.index {
            write_record(&mut run, span.hash, span.key(&self.arena), span.value(&self.arena))?;
        }
        self.runs.push(run.into_inner().map_err(io::IntoInnerError::into_error)?);
        self.arena.clear();
        self.index.clear();
        if self.runs.len() == MAX_RUNS {
            let mut merged_run = self.create_run()?;
            merge_runs(std::mem::take(&mut self.runs), |record| {
                write_record(&mut merged_run, record.hash, &record.key, &record.value)
            })?;
            self.runs.push(merged_run.into_inner().map_err(io::IntoInnerError::into_error)?);
        }
        Ok(())
    }

    fn create_run(&self) -> io::Result<BufWriter<File>> {
        create_temporary_file(&self.options.folder)
    }
}

pub(crate) fn create_temporary_file(folder: &Path) -> io::Result<BufWriter<File>> {
    Ok(BufWriter::with_capacity(BUFFER_BYTES, tempfile::tempfile_in(folder)?))
}

fn encode_length(bytes: &[u8]) -> io::Result<u32> {
    u32::try_from(bytes.len()).map_err(io::Error::other)
}

fn write_record(into: &mut impl Write, hash: u64, key: &[u8], value: &[u8]) -> io::Result<()> {
    into.write_all(&hash.to_le_bytes())?;
    into.write_all(&encode_length(key)?.to_le_bytes())?;
    into.write_all(&encode_length(value)?.to_le_bytes())?;
    into.write_all(key)?;
    into.write_all(value)
}

fn merge_runs(mut runs: Vec<File>, mut visit: impl FnMut(&Record) -> io::Result<()>) -> io::Result<()> {
    let mut heads = BinaryHeap::with_capacity(runs.len());
    let mut readers = Vec::with_capacity(runs.len());
    for (run, file) in runs.iter_mut().enumerate() {
        file.rewind()?;
        let mut reader = BufReader::with_capacity(BUFFER_BYTES, file);
        let mut record = Record { run, ..Record::default() };
        if record.read(&mut reader)? {
            heads.push(Reverse(record));
        }
        readers.push(reader);
    }
    while let Some(Reverse(mut record)) = heads.pop() {
        visit(&record)?;
        if record.read(&mut readers[record.run])? {
            heads.push(Reverse(record));
        }
    }
    Ok(())
}

/// Record of a run during a merge. Ordered like the records in memory.
#[derive(Debug, Default)]
struct Record {
    hash: u64,
    key: Vec<u8>,
    value: Vec<u8>,
    run: usize,
}

impl Record {
    /// Reads the next record of a run into `self`, reusing its buffers; false at the end.
    fn read(&mut self, from: &mut impl Read) -> io::Result<bool> {
        let mut hash = [0; 8];
        match from.read_exact(&mut hash) {
            // A run ends before a record. An end within a record is an error of the reads below.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
            read => read?,
        }
        self.hash = u64::from_le_bytes(hash);
        let mut lengths = [[0; 4]; 2];
        from.read_exact(&mut lengths[0])?;
        from.read_exact(&mut lengths[1])?;
        let [key_length, value_length] = lengths.map(|length| u32::from_le_bytes(length) as usize);
        self.key.resize(key_length, 0);
        from.read_exact(&mut self.key)?;
        self.value.resize(value_length, 0);
        from.read_exact(&mut self.value)?;
        Ok(true)
    }

    fn sort_key(&self) -> (u64, &[u8], &[u8]) {
        // Without `run`: equal records of two runs are interchangeable.
        (self.hash, &self.key, &self.value)
    }
}

impl Ord for Record {
    fn cmp(&self, other: &Self) -> Ordering {
        self.sort_key().cmp(&other.sort_key())
    }
}

impl PartialOrd for Record {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Record {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Record {}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeMap;

    use super::*;

    fn group_records(memory: usize, count: u32) -> BTreeMap<Vec<u8>, Vec<u32>> {
        let folder = tempfile::tempdir().unwrap();
        let mut spill = Spill::new(SpillOptions { memory, folder: folder.path().to_owned() });
        for at in 0..count {
            let key = format!("key {}", at.wrapping_mul(2_654_435_761) % 9_973);
            spill.push(key.as_bytes(), &at.to_be_bytes()).unwrap();
        }
        let mut groups: BTreeMap<Vec<u8>, Vec<u32>> = BTreeMap::new();
        let mut previous_key = Vec::new();
        spill
            .finish(|key, value, is_first| {
                assert_eq!(is_first, previous_key != key, "records of one key are consecutive");
                assert!(!is_first || !groups.contains_key(key), "each key has one group");
                previous_key = key.to_vec();
                groups.entry(key.to_vec()).or_default().push(u32::from_be_bytes(value.try_into().unwrap()));
                Ok(())
            })
            .unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        groups
    }

    #[test]
    fn groups_are_the_same_in_memory_and_from_many_runs() {
        let count = 200_000;
        let from_memory = group_records(usize::MAX, count);
        assert_eq!(from_memory.values().map(Vec::len).sum::<usize>(), 200_000);
        assert!(from_memory.values().all(|rests| rests.is_sorted()));
        // About a thousand records a run: more runs than `MAX_RUNS`.
        assert_eq!(group_records(0, count), from_memory);
    }
}
