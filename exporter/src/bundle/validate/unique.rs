//! Finds repeated keys and counts distinct ones, exactly and in bounded memory. Keys in ascending order need no memory.

use std::{
    cmp::Ordering,
    collections::{HashMap, HashSet},
    hash::BuildHasher as _,
    io::{self, Read},
};

use foldhash::quality::RandomState;

use super::{repeated_hashes::HashSorter, spool::Spool};
use crate::storage::spill::{Spill, SpillOptions};

/// Result of [`RepeatFinder::push`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyState {
    New,
    Repeated,
    /// Repeated or not: `finish` reports it if it is repeated.
    Undecided,
    /// First key out of order. From here on `finish` reports all repeated keys, including earlier ones, so earlier
    /// reports have to be discarded.
    OrderBroken,
}

/// Finds repeated keys. Ascending keys, by their bytes or by length first, are compared with the previous key only.
/// From the first key out of order on, hashes are kept. The caller then reads the skipped keys again, for their hashes,
/// and all keys once more if two hashes are equal, so that whole keys are compared.
#[derive(Debug)]
pub(crate) struct RepeatFinder {
    spill_options: SpillOptions,
    is_ascending_by_bytes: bool,
    is_ascending_by_length: bool,
    last_key: Vec<u8>,
    count: u64,
    skipped_count: u64,
    hasher: RandomState,
    hashes: HashSorter,
    /// All keys with their locations, if the source cannot be read twice.
    log: Option<Spool>,
    candidates: CandidateHashes,
    candidate_keys: Spill,
}

/// Hashes of keys that may be repeated.
#[derive(Debug)]
enum CandidateHashes {
    /// Sorted hashes.
    Listed(Vec<u64>),
    /// Any key: the hashes do not fit into memory.
    All,
}

/// Encoded size of a key's location.
const LOCATION_BYTES: usize = 24;

impl RepeatFinder {
    /// Creates a finder. `is_rereadable` is true if the keys can be read again in a second pass.
    pub(crate) fn new(spill_options: SpillOptions, is_rereadable: bool) -> Self {
        let mut finder = Self {
            is_ascending_by_bytes: true,
            is_ascending_by_length: true,
            last_key: Vec::new(),
            count: 0,
            skipped_count: 0,
            hasher: RandomState::default(),
            hashes: HashSorter::new(spill_options.share(2)),
            log: None,
            candidates: CandidateHashes::Listed(Vec::new()),
            candidate_keys: Spill::new(spill_options.share(2)),
            spill_options,
        };
        if !is_rereadable {
            finder.keep_all_keys();
        }
        finder
    }

    /// Keeps all keys, for sources that cannot be read twice. Has an effect only before the first key.
    pub(crate) fn keep_all_keys(&mut self) {
        if self.count == 0 && self.log.is_none() {
            self.log = Some(Spool::new(self.spill_options.share(16)));
        }
    }

    #[inline]
    pub(crate) fn push(
        &mut self,
        key: &[u8],
        location: impl FnOnce() -> [u8; LOCATION_BYTES],
    ) -> io::Result<KeyState> {
        // Out of order, or without a second reading, only hashes tell whether a key is repeated.
        if self.skipped_count > 0 || self.log.is_some() {
            self.hashes.push(self.hasher.hash_one(key))?;
            if let Some(log) = &mut self.log {
                log.push(|into| write_record(into, key, location()))?;
            }
            return Ok(KeyState::Undecided);
        }
        if self.count > 0 {
            let byte_order = key.cmp(&self.last_key);
            if byte_order == Ordering::Equal {
                self.count += 1;
                return Ok(KeyState::Repeated);
            }
            // Ascending decimal numbers ascend by length first, other sorted ids by their bytes. One of the orders suffices.
            self.is_ascending_by_bytes &= byte_order == Ordering::Greater;
            self.is_ascending_by_length &=
                key.len().cmp(&self.last_key.len()).then(byte_order) == Ordering::Greater;
            if !self.is_ascending_by_bytes && !self.is_ascending_by_length {
                // The earlier keys have no hash yet: a second reading adds them with `add_skipped`.
                self.skipped_count = self.count;
                self.hashes.push(self.hasher.hash_one(key))?;
                return Ok(KeyState::OrderBroken);
            }
        }
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        self.count += 1;
        Ok(KeyState::New)
    }

    /// Number of keys at the start without a hash. They have to be passed to `add_skipped`.
    pub(crate) fn skipped_count(&self) -> u64 {
        self.skipped_count
    }

    /// Adds the hash of a skipped key.
    pub(crate) fn add_skipped(&mut self, key: &[u8]) -> io::Result<()> {
        self.hashes.push(self.hasher.hash_one(key))
    }

    /// True if two hashes are equal, so that all keys have to be passed to `add_candidate`. Keys from the log are added
    /// here, without the caller. No key may be pushed afterwards.
    pub(crate) fn needs_reread(&mut self) -> io::Result<bool> {
        let max_hashes = self.spill_options.share(2 * size_of::<u64>()).memory;
        let hashes = std::mem::replace(&mut self.hashes, HashSorter::new(self.spill_options.share(2)));
        let candidates = &mut self.candidates;
        hashes.visit_repeated(|hash| match candidates {
            CandidateHashes::Listed(hashes) if hashes.len() < max_hashes => hashes.push(hash),
            // The hashes do not fit into memory, so every key becomes a candidate, and `candidate_keys` uses the disk.
            _ => *candidates = CandidateHashes::All,
        })?;
        let has_candidates = !matches!(candidates, CandidateHashes::Listed(hashes) if hashes.is_empty());
        let Some(log) = self.log.take() else { return Ok(has_candidates) };
        if has_candidates {
            let (mut log_reader, mut key) = (log.into_reader()?, Vec::new());
            while let Some(location) = read_record(&mut log_reader, &mut key)? {
                self.add_candidate(&key, || location)?;
            }
        }
        // The log stands in for the second reading, so the caller has no keys to add.
        Ok(false)
    }

    /// Adds a key if its hash occurs more than once.
    #[inline]
    pub(crate) fn add_candidate(
        &mut self,
        key: &[u8],
        location: impl FnOnce() -> [u8; LOCATION_BYTES],
    ) -> io::Result<()> {
        let is_candidate = match &self.candidates {
            // `visit_repeated` reports hashes in ascending order, so the list is sorted.
            CandidateHashes::Listed(hashes) => {
                !hashes.is_empty() && hashes.binary_search(&self.hasher.hash_one(key)).is_ok()
            }
            CandidateHashes::All => true,
        };
        if is_candidate { self.candidate_keys.push(key, &location()) } else { Ok(()) }
    }

    /// Calls `visit` with each repetition of a key that `push` did not report, and with its location.
    pub(crate) fn finish(self, mut visit: impl FnMut(&[u8], &[u8]) -> io::Result<()>) -> io::Result<()> {
        self.candidate_keys
            .finish(|key, location, is_first| if is_first { Ok(()) } else { visit(key, location) })
    }
}

fn write_record(into: &mut Vec<u8>, key: &[u8], location: [u8; LOCATION_BYTES]) -> io::Result<()> {
    into.extend_from_slice(&location);
    into.extend_from_slice(&u32::try_from(key.len()).map_err(io::Error::other)?.to_le_bytes());
    into.extend_from_slice(key);
    Ok(())
}

/// Reads the next key into `key`, and returns its location; `None` at the end.
fn read_record(from: &mut impl Read, key: &mut Vec<u8>) -> io::Result<Option<[u8; LOCATION_BYTES]>> {
    let (mut location, mut length) = ([0; LOCATION_BYTES], [0; 4]);
    match from.read_exact(&mut location) {
        // The log ends before a record. An end within a record is an error of the reads below.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    from.read_exact(&mut length)?;
    key.resize(u32::from_le_bytes(length) as usize, 0);
    from.read_exact(key)?;
    Ok(Some(location))
}

/// Set of keys, in memory up to the limit and on disk beyond it.
#[derive(Debug)]
pub(crate) struct KeySet {
    keys: HashSet<Box<[u8]>, RandomState>,
    used_bytes: usize,
    spill_options: SpillOptions,
    spill: Option<Spill>,
}

/// Memory of an entry in addition to its key, in bytes.
const ENTRY_OVERHEAD: usize = 48;

impl KeySet {
    pub(crate) fn new(spill_options: SpillOptions) -> Self {
        Self { keys: HashSet::default(), used_bytes: 0, spill_options, spill: None }
    }

    /// Adds a key. False if the key is in memory already; true does not mean that it is new, because keys on disk are not searched.
    #[inline]
    pub(crate) fn insert(&mut self, key: &[u8]) -> io::Result<bool> {
        if self.keys.contains(key) {
            return Ok(false);
        }
        self.used_bytes += key.len() + ENTRY_OVERHEAD;
        self.keys.insert(key.into());
        if self.used_bytes > self.spill_options.memory {
            let spill = self.spill.get_or_insert_with(|| Spill::new(self.spill_options.clone()));
            // A key may be added again after this. `finish` visits it once, however often it is on disk.
            for key in self.keys.drain() {
                spill.push(&key, &[])?;
            }
            self.used_bytes = 0;
        }
        Ok(true)
    }

    /// Calls `visit` once with each key.
    pub(crate) fn finish(self, mut visit: impl FnMut(&[u8])) -> io::Result<()> {
        let Some(mut spill) = self.spill else {
            self.keys.iter().for_each(|key| visit(key));
            return Ok(());
        };
        for key in &self.keys {
            spill.push(key, &[])?;
        }
        spill.finish(|key, _, is_first| {
            if is_first {
                visit(key);
            }
            Ok(())
        })
    }
}

/// Sums by key, in memory up to the limit and on disk beyond it.
#[derive(Debug)]
pub(crate) struct Sums<const N: usize> {
    sums: HashMap<[u8; N], u64, RandomState>,
    spill_options: SpillOptions,
    spill: Option<Spill>,
}

impl<const N: usize> Sums<N> {
    pub(crate) fn new(spill_options: SpillOptions) -> Self {
        Self { sums: HashMap::default(), spill_options, spill: None }
    }

    pub(crate) fn add(&mut self, key: [u8; N], count: u64) -> io::Result<()> {
        let sum = self.sums.entry(key).or_default();
        *sum = sum.saturating_add(count);
        if self.sums.len() * (N + ENTRY_OVERHEAD) > self.spill_options.memory {
            let spill = self.spill.get_or_insert_with(|| Spill::new(self.spill_options.clone()));
            for (key, sum) in self.sums.drain() {
                spill.push(&key, &sum.to_le_bytes())?;
            }
        }
        Ok(())
    }

    pub(crate) fn finish(self, mut visit: impl FnMut(&[u8], u64)) -> io::Result<()> {
        let Some(mut spill) = self.spill else {
            self.sums.iter().for_each(|(key, sum)| visit(key, *sum));
            return Ok(());
        };
        for (key, sum) in &self.sums {
            spill.push(key, &sum.to_le_bytes())?;
        }
        let (mut last_key, mut sum) = (Vec::new(), 0_u64);
        spill.finish(|key, value, is_first| {
            // The sum is still zero at the first key, which has no predecessor to visit.
            if is_first && sum > 0 {
                visit(&last_key, sum);
                sum = 0;
            }
            if is_first {
                last_key = key.to_vec();
            }
            // A key has several sums on disk if it was added again after a spill. Each has eight bytes.
            sum = sum.saturating_add(value.try_into().map_or(0, u64::from_le_bytes));
            Ok(())
        })?;
        if sum > 0 {
            visit(&last_key, sum);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn spill_options(memory: usize) -> (SpillOptions, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        (SpillOptions { memory, folder: folder.path().to_owned() }, folder)
    }

    #[test]
    fn ascending_keys_are_decided_at_once_by_bytes_or_length() {
        let (spill_options, _folder) = spill_options(0);
        for keys in [["a10", "a9", "b"], ["a9", "b9", "a10"]] {
            let mut unique = RepeatFinder::new(spill_options.clone(), true);
            let states = keys.map(|key| unique.push(key.as_bytes(), || [0; LOCATION_BYTES]).unwrap());
            assert_eq!(states, [KeyState::New; 3]);
            assert_eq!(unique.push(keys[2].as_bytes(), || [0; LOCATION_BYTES]).unwrap(), KeyState::Repeated);
            assert_eq!(unique.skipped_count(), 0);
        }
    }

    /// Returns the repeated keys with their numbers, after a second pass if it is possible and necessary.
    fn find_repeated(keys: &[Vec<u8>], is_rereadable: bool, memory: usize) -> Vec<(Vec<u8>, u8)> {
        let (spill_options, folder) = spill_options(memory);
        let mut unique = RepeatFinder::new(spill_options, is_rereadable);
        let mut repeated = Vec::new();
        let location = |at: usize| [u8::try_from(at).unwrap(); LOCATION_BYTES];
        for (at, key) in keys.iter().enumerate() {
            match unique.push(key, || location(at)).unwrap() {
                KeyState::New | KeyState::Undecided => {}
                KeyState::Repeated => repeated.push((key.clone(), location(at)[0])),
                KeyState::OrderBroken => repeated.clear(),
            }
        }
        let skipped_count = usize::try_from(unique.skipped_count()).unwrap();
        keys[..skipped_count].iter().for_each(|key| unique.add_skipped(key).unwrap());
        if unique.needs_reread().unwrap() {
            keys.iter().enumerate().for_each(|(at, key)| unique.add_candidate(key, || location(at)).unwrap());
        }
        unique
            .finish(|key, location| {
                repeated.push((key.to_vec(), location[0]));
                Ok(())
            })
            .unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        repeated.sort_by_key(|key| key.1);
        repeated
    }

    proptest! {
        #[test]
        fn repeated_keys_are_found_in_any_order_and_source(
            mut keys in proptest::collection::vec("[a-c]{0,2}", 0..40),
            in_order in 0_usize..40,
        ) {
            let in_order = in_order.min(keys.len());
            keys[..in_order].sort();
            let keys: Vec<Vec<u8>> = keys.into_iter().map(String::into_bytes).collect();
            let expected: Vec<_> = (0..keys.len())
                .filter(|at| keys[..*at].contains(&keys[*at]))
                .map(|at| (keys[at].clone(), u8::try_from(at).unwrap()))
                .collect();
            for (is_rereadable, memory) in [(true, 0), (false, 0), (true, 1 << 20), (false, 1 << 20)] {
                prop_assert_eq!(&find_repeated(&keys, is_rereadable, memory), &expected, "{} {}", is_rereadable, memory);
            }
        }
    }

    #[test]
    fn different_keys_with_equal_hashes_are_not_repeated() {
        let (spill_options, _folder) = spill_options(0);
        let mut unique = RepeatFinder::new(spill_options, true);
        for key in [b"b", b"a"] {
            unique.push(key, || [0; LOCATION_BYTES]).unwrap();
        }
        // Simulates that `b` has the hash of `a`.
        unique.add_skipped(b"a").unwrap();
        assert!(unique.needs_reread().unwrap());
        for key in [b"b", b"a"] {
            unique.add_candidate(key, || [0; LOCATION_BYTES]).unwrap();
        }
        unique.finish(|key, _| panic!("{key:?}")).unwrap();
    }

    #[test]
    fn sets_and_sums_do_not_depend_on_memory() {
        for memory in [2_000, usize::MAX] {
            let (spill_options, _folder) = spill_options(memory);
            let mut set = KeySet::new(spill_options.clone());
            let mut sums = Sums::new(spill_options);
            for at in 0..5_000_u32 {
                let key = (at.wrapping_mul(2_654_435_761) % 613).to_be_bytes();
                set.insert(&key).unwrap();
                sums.add(key, 2).unwrap();
            }
            let mut keys = Vec::new();
            set.finish(|key| keys.push(key.to_vec())).unwrap();
            keys.sort();
            let mut sums_by_key = BTreeMap::new();
            sums.finish(|key, sum| assert_eq!(sums_by_key.insert(key.to_vec(), sum), None)).unwrap();
            assert_eq!(keys.len(), 613);
            assert!(keys.iter().eq(sums_by_key.keys()));
            assert_eq!(sums_by_key.values().sum::<u64>(), 10_000);
        }
    }
}
