//! Groups records by key in bounded memory: in memory while they fit, in sorted runs on disk beyond.
//!
//! Keys are compared whole; their hash only decides the order.

use std::{
    cmp::{Ordering, Reverse},
    collections::{BinaryHeap, hash_map::RandomState},
    fs::File,
    hash::BuildHasher as _,
    io::{self, BufReader, BufWriter, Read, Seek as _, Write},
    path::{Path, PathBuf},
};

/// Memory limit, and the folder for data beyond it.
#[derive(Clone, Debug)]
pub struct SpillOptions {
    /// Bytes.
    pub memory: usize,
    /// Folder for unnamed files, which vanish with the process.
    pub folder: PathBuf,
}

impl SpillOptions {
    /// Options with a part of the memory.
    pub(crate) fn share(&self, of: usize) -> Self {
        Self { memory: self.memory / of, folder: self.folder.clone() }
    }
}

/// More runs than this are merged into one: each costs a file and a buffer.
pub(crate) const MOST_RUNS: usize = 64;
const BUFFER: usize = 64 << 10;
const LEAST_BYTES: usize = 64 << 10;

/// Records of a key and what belongs to it.
#[derive(Debug)]
pub(crate) struct Spill {
    room: SpillOptions,
    hasher: RandomState,
    bytes: Vec<u8>,
    index: Vec<RecordIndex>,
    runs: Vec<File>,
}

#[derive(Clone, Copy, Debug)]
struct RecordIndex {
    hash: u64,
    start: usize,
    key: u32,
    rest: u32,
}

impl RecordIndex {
    fn key(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.start..self.start + self.key as usize]
    }

    fn rest(self, bytes: &[u8]) -> &[u8] {
        let start = self.start + self.key as usize;
        &bytes[start..start + self.rest as usize]
    }
}

impl Spill {
    pub(crate) fn new(room: SpillOptions) -> Self {
        Self { room, hasher: RandomState::new(), bytes: Vec::new(), index: Vec::new(), runs: Vec::new() }
    }

    pub(crate) fn push(&mut self, key: &[u8], rest: &[u8]) -> io::Result<()> {
        let index = RecordIndex {
            hash: self.hasher.hash_one(key),
            start: self.bytes.len(),
            key: length(key)?,
            rest: length(rest)?,
        };
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(rest);
        self.index.push(index);
        let held = self.bytes.len() + self.index.len() * size_of::<RecordIndex>();
        if held > self.room.memory.max(LEAST_BYTES) { self.write_run() } else { Ok(()) }
    }

    /// Calls with each record; those of one key follow each other, ordered by the rest. `true` for the first of a key.
    pub(crate) fn finish(
        mut self,
        mut each: impl FnMut(&[u8], &[u8], bool) -> io::Result<()>,
    ) -> io::Result<()> {
        if self.runs.is_empty() {
            self.sort();
            let mut last: Option<RecordIndex> = None;
            for index in &self.index {
                let key = index.key(&self.bytes);
                let new = last.is_none_or(|last| last.key(&self.bytes) != key);
                each(key, index.rest(&self.bytes), new)?;
                last = Some(*index);
            }
            return Ok(());
        }
        if !self.index.is_empty() {
            self.write_run()?;
        }
        self.bytes = Vec::new();
        self.index = Vec::new();
        let mut last: Option<Vec<u8>> = None;
        merge(self.runs, |record| {
            let new = last.as_ref().is_none_or(|last| *last != record.key);
            each(&record.key, &record.rest, new)?;
            if new {
                last.get_or_insert_default().clone_from(&record.key);
            }
            Ok(())
        })
    }

    fn sort(&mut self) {
        let bytes = &self.bytes;
        self.index.sort_unstable_by(|left, right| {
            left.hash
                .cmp(&right.hash)
                .then_with(|| left.key(bytes).cmp(right.key(bytes)))
                .then_with(|| left.rest(bytes).cmp(right.rest(bytes)))
        });
    }

    #[cold]
    fn write_run(&mut self) -> io::Result<()> {
        self.sort();
        let mut run = self.run()?;
        for index in &self.index {
            write(&mut run, index.hash, index.key(&self.bytes), index.rest(&self.bytes))?;
        }
        self.runs.push(run.into_inner().map_err(io::IntoInnerError::into_error)?);
        self.bytes.clear();
        self.index.clear();
        if self.runs.len() == MOST_RUNS {
            let mut whole = self.run()?;
            merge(std::mem::take(&mut self.runs), |record| {
                write(&mut whole, record.hash, &record.key, &record.rest)
            })?;
            self.runs.push(whole.into_inner().map_err(io::IntoInnerError::into_error)?);
        }
        Ok(())
    }

    fn run(&self) -> io::Result<BufWriter<File>> {
        temporary(&self.room.folder)
    }
}

pub(crate) fn temporary(folder: &Path) -> io::Result<BufWriter<File>> {
    Ok(BufWriter::with_capacity(BUFFER, tempfile::tempfile_in(folder)?))
}

fn length(bytes: &[u8]) -> io::Result<u32> {
    u32::try_from(bytes.len()).map_err(io::Error::other)
}

fn write(into: &mut impl Write, hash: u64, key: &[u8], rest: &[u8]) -> io::Result<()> {
    into.write_all(&hash.to_le_bytes())?;
    into.write_all(&length(key)?.to_le_bytes())?;
    into.write_all(&length(rest)?.to_le_bytes())?;
    into.write_all(key)?;
    into.write_all(rest)
}

fn merge(mut runs: Vec<File>, mut each: impl FnMut(&Record) -> io::Result<()>) -> io::Result<()> {
    let mut next = BinaryHeap::with_capacity(runs.len());
    let mut readers = Vec::with_capacity(runs.len());
    for (run, file) in runs.iter_mut().enumerate() {
        file.rewind()?;
        let mut reader = BufReader::with_capacity(BUFFER, file);
        let mut record = Record { run, ..Record::default() };
        if record.read(&mut reader)? {
            next.push(Reverse(record));
        }
        readers.push(reader);
    }
    while let Some(Reverse(mut record)) = next.pop() {
        each(&record)?;
        if record.read(&mut readers[record.run])? {
            next.push(Reverse(record));
        }
    }
    Ok(())
}

#[derive(Debug, Default)]
struct Record {
    hash: u64,
    key: Vec<u8>,
    rest: Vec<u8>,
    run: usize,
}

impl Record {
    /// False at the end.
    fn read(&mut self, from: &mut impl Read) -> io::Result<bool> {
        let mut hash = [0; 8];
        match from.read_exact(&mut hash) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
            read => read?,
        }
        self.hash = u64::from_le_bytes(hash);
        let mut lengths = [[0; 4]; 2];
        from.read_exact(&mut lengths[0])?;
        from.read_exact(&mut lengths[1])?;
        let [key, rest] = lengths.map(|length| u32::from_le_bytes(length) as usize);
        self.key.resize(key, 0);
        from.read_exact(&mut self.key)?;
        self.rest.resize(rest, 0);
        from.read_exact(&mut self.rest)?;
        Ok(true)
    }

    fn sort_key(&self) -> (u64, &[u8], &[u8]) {
        (self.hash, &self.key, &self.rest)
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

    fn grouped(memory: usize, count: u32) -> BTreeMap<Vec<u8>, Vec<u32>> {
        let folder = tempfile::tempdir().unwrap();
        let mut spill = Spill::new(SpillOptions { memory, folder: folder.path().to_owned() });
        for at in 0..count {
            let key = format!("key {}", at.wrapping_mul(2_654_435_761) % 9_973);
            spill.push(key.as_bytes(), &at.to_be_bytes()).unwrap();
        }
        let mut groups: BTreeMap<Vec<u8>, Vec<u32>> = BTreeMap::new();
        let mut last = Vec::new();
        spill
            .finish(|key, rest, new| {
                assert_eq!(new, last != key, "a key comes once");
                assert!(!new || !groups.contains_key(key), "a key comes once");
                last = key.to_vec();
                groups.entry(key.to_vec()).or_default().push(u32::from_be_bytes(rest.try_into().unwrap()));
                Ok(())
            })
            .unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        groups
    }

    #[test]
    fn groups_are_the_same_in_memory_and_from_many_runs() {
        let count = 200_000;
        let memory = grouped(usize::MAX, count);
        assert_eq!(memory.values().map(Vec::len).sum::<usize>(), 200_000);
        assert!(memory.values().all(|rests| rests.is_sorted()));
        // About a thousand records a run: more runs than are merged at once.
        assert_eq!(grouped(0, count), memory);
    }
}
