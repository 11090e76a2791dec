//! Finds repeated keys and counts distinct ones: exactly, in bounded memory, and without any memory for keys in
//! order.

use std::{
    cmp::Ordering,
    collections::{HashMap, HashSet},
    hash::BuildHasher as _,
    io::{self, Read},
};

use foldhash::quality::RandomState;

use super::{repeated_hashes::Hashes, spool::Spool};
use crate::storage::spill::{Spill, SpillOptions};

/// State of a key when it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    New,
    Again,
    /// Not known before `finish`.
    Later,
    /// Keys came in order until this one: `finish` reports all repeated keys, including earlier ones.
    Broken,
}

/// Finds keys that come again. Keys in ascending order, by their bytes or by length first, need no memory. Of others only a
/// hash is kept: where two are equal, their keys must be brought again, to be compared whole. Should the order break late,
/// the keys before it must be, too.
#[derive(Debug)]
pub(crate) struct Unique {
    room: SpillOptions,
    bytes: bool,
    length: bool,
    last: Vec<u8>,
    count: u64,
    lost: u64,
    hasher: RandomState,
    hashes: Hashes,
    /// All keys, if the source cannot be read again.
    log: Option<Spool>,
    wanted: Wanted,
    brought: Spill,
}

/// Hashes of keys that may be repeated.
#[derive(Debug)]
enum Wanted {
    /// Sorted hashes.
    Some(Vec<u64>),
    /// More than fit into memory.
    All,
}

/// Bytes of a key's location.
const REST: usize = 24;

impl Unique {
    /// `again`: the keys can be brought again.
    pub(crate) fn new(room: SpillOptions, again: bool) -> Self {
        let mut new = Self {
            bytes: true,
            length: true,
            last: Vec::new(),
            count: 0,
            lost: 0,
            hasher: RandomState::default(),
            hashes: Hashes::new(room.share(2)),
            log: None,
            wanted: Wanted::Some(Vec::new()),
            brought: Spill::new(room.share(2)),
            room,
        };
        if !again {
            new.keep_all();
        }
        new
    }

    /// Keeps every key from here on because keys cannot be read twice. Has an effect only before the first key.
    pub(crate) fn keep_all(&mut self) {
        if self.count == 0 && self.log.is_none() {
            self.log = Some(Spool::new(self.room.share(16)));
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, key: &[u8], rest: impl FnOnce() -> [u8; REST]) -> io::Result<Seen> {
        if self.lost > 0 || self.log.is_some() {
            self.hashes.push(self.hasher.hash_one(key))?;
            if let Some(log) = &mut self.log {
                log.push(|into| record(into, key, rest()))?;
            }
            return Ok(Seen::Later);
        }
        if self.count > 0 {
            let bytes = key.cmp(&self.last);
            if bytes == Ordering::Equal {
                self.count += 1;
                return Ok(Seen::Again);
            }
            self.bytes &= bytes == Ordering::Greater;
            self.length &= key.len().cmp(&self.last.len()).then(bytes) == Ordering::Greater;
            if !self.bytes && !self.length {
                self.lost = self.count;
                self.hashes.push(self.hasher.hash_one(key))?;
                return Ok(Seen::Broken);
            }
        }
        self.last.clear();
        self.last.extend_from_slice(key);
        self.count += 1;
        Ok(Seen::New)
    }

    /// Number of keys at the start that were skipped and have to be read again.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// Takes a key that was lost.
    pub(crate) fn see(&mut self, key: &[u8]) -> io::Result<()> {
        self.hashes.push(self.hasher.hash_one(key))
    }

    /// True if some key may be repeated, so that all keys have to be read again. No key may be pushed afterwards.
    pub(crate) fn wants(&mut self) -> io::Result<bool> {
        let most = self.room.share(2 * size_of::<u64>()).memory;
        let hashes = std::mem::replace(&mut self.hashes, Hashes::new(self.room.share(2)));
        let wanted = &mut self.wanted;
        hashes.repeated(|hash| match wanted {
            Wanted::Some(some) if some.len() < most => some.push(hash),
            _ => *wanted = Wanted::All,
        })?;
        let wants = !matches!(wanted, Wanted::Some(some) if some.is_empty());
        let Some(log) = self.log.take() else { return Ok(wants) };
        if wants {
            let (mut from, mut key) = (log.into_reader()?, Vec::new());
            while let Some(rest) = read(&mut from, &mut key)? {
                self.bring(&key, || rest)?;
            }
        }
        Ok(false)
    }

    /// Takes a key that may be wanted.
    #[inline]
    pub(crate) fn bring(&mut self, key: &[u8], rest: impl FnOnce() -> [u8; REST]) -> io::Result<()> {
        let wanted = match &self.wanted {
            Wanted::Some(some) => !some.is_empty() && some.binary_search(&self.hasher.hash_one(key)).is_ok(),
            Wanted::All => true,
        };
        if wanted { self.brought.push(key, &rest()) } else { Ok(()) }
    }

    /// Calls with each repeated key that has not been reported yet, and its location; not with the first of its kind.
    pub(crate) fn finish(self, mut each: impl FnMut(&[u8], &[u8]) -> io::Result<()>) -> io::Result<()> {
        self.brought.finish(|key, rest, first| if first { Ok(()) } else { each(key, rest) })
    }
}

fn record(into: &mut Vec<u8>, key: &[u8], rest: [u8; REST]) -> io::Result<()> {
    into.extend_from_slice(&rest);
    into.extend_from_slice(&u32::try_from(key.len()).map_err(io::Error::other)?.to_le_bytes());
    into.extend_from_slice(key);
    Ok(())
}

/// Reads the next record; `None` at the end.
fn read(from: &mut impl Read, key: &mut Vec<u8>) -> io::Result<Option<[u8; REST]>> {
    let (mut rest, mut length) = ([0; REST], [0; 4]);
    match from.read_exact(&mut rest) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    from.read_exact(&mut length)?;
    key.resize(u32::from_le_bytes(length) as usize, 0);
    from.read_exact(key)?;
    Ok(Some(rest))
}

/// Distinct keys, in memory while there is room.
#[derive(Debug)]
pub(crate) struct Set {
    keys: HashSet<Box<[u8]>, RandomState>,
    held: usize,
    room: SpillOptions,
    spill: Option<Spill>,
}

/// Bytes that a key takes beyond its own.
const OVERHEAD: usize = 48;

impl Set {
    pub(crate) fn new(room: SpillOptions) -> Self {
        Self { keys: HashSet::default(), held: 0, room, spill: None }
    }

    /// False if it is known to be there.
    #[inline]
    pub(crate) fn insert(&mut self, key: &[u8]) -> io::Result<bool> {
        if self.keys.contains(key) {
            return Ok(false);
        }
        self.held += key.len() + OVERHEAD;
        self.keys.insert(key.into());
        if self.held > self.room.memory {
            let spill = self.spill.get_or_insert_with(|| Spill::new(self.room.clone()));
            for key in self.keys.drain() {
                spill.push(&key, &[])?;
            }
            self.held = 0;
        }
        Ok(true)
    }

    /// Calls with each key once.
    pub(crate) fn finish(self, mut each: impl FnMut(&[u8])) -> io::Result<()> {
        let Some(mut spill) = self.spill else {
            self.keys.iter().for_each(|key| each(key));
            return Ok(());
        };
        for key in &self.keys {
            spill.push(key, &[])?;
        }
        spill.finish(|key, _, new| {
            if new {
                each(key);
            }
            Ok(())
        })
    }
}

/// Sums by key, in memory while there is room.
#[derive(Debug)]
pub(crate) struct Sums<const N: usize> {
    sums: HashMap<[u8; N], u64, RandomState>,
    room: SpillOptions,
    spill: Option<Spill>,
}

impl<const N: usize> Sums<N> {
    pub(crate) fn new(room: SpillOptions) -> Self {
        Self { sums: HashMap::default(), room, spill: None }
    }

    pub(crate) fn add(&mut self, key: [u8; N], count: u64) -> io::Result<()> {
        let sum = self.sums.entry(key).or_default();
        *sum = sum.saturating_add(count);
        if self.sums.len() * (N + OVERHEAD) > self.room.memory {
            let spill = self.spill.get_or_insert_with(|| Spill::new(self.room.clone()));
            for (key, sum) in self.sums.drain() {
                spill.push(&key, &sum.to_le_bytes())?;
            }
        }
        Ok(())
    }

    pub(crate) fn finish(self, mut each: impl FnMut(&[u8], u64)) -> io::Result<()> {
        let Some(mut spill) = self.spill else {
            self.sums.iter().for_each(|(key, sum)| each(key, *sum));
            return Ok(());
        };
        for (key, sum) in &self.sums {
            spill.push(key, &sum.to_le_bytes())?;
        }
        let (mut last, mut sum) = (Vec::new(), 0_u64);
        spill.finish(|key, rest, new| {
            if new && sum > 0 {
                each(&last, sum);
                sum = 0;
            }
            if new {
                last = key.to_vec();
            }
            sum = sum.saturating_add(rest.try_into().map_or(0, u64::from_le_bytes));
            Ok(())
        })?;
        if sum > 0 {
            each(&last, sum);
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

    fn room(memory: usize) -> (SpillOptions, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        (SpillOptions { memory, folder: folder.path().to_owned() }, folder)
    }

    #[test]
    fn keys_in_order_are_judged_at_once_by_bytes_or_by_length_first() {
        let (room, _folder) = room(0);
        for keys in [["a10", "a9", "b"], ["a9", "b9", "a10"]] {
            let mut unique = Unique::new(room.clone(), true);
            let seen = keys.map(|key| unique.push(key.as_bytes(), || [0; REST]).unwrap());
            assert_eq!(seen, [Seen::New; 3]);
            assert_eq!(unique.push(keys[2].as_bytes(), || [0; REST]).unwrap(), Seen::Again);
            assert_eq!(unique.lost(), 0);
        }
    }

    /// Keys with their number, from where they break or where they must be kept; those that are found to come again.
    fn again(keys: &[Vec<u8>], again: bool, memory: usize) -> Vec<(Vec<u8>, u8)> {
        let (room, folder) = room(memory);
        let mut unique = Unique::new(room, again);
        let mut found = Vec::new();
        let rest = |at: usize| [u8::try_from(at).unwrap(); REST];
        for (at, key) in keys.iter().enumerate() {
            match unique.push(key, || rest(at)).unwrap() {
                Seen::New | Seen::Later => {}
                Seen::Again => found.push((key.clone(), rest(at)[0])),
                Seen::Broken => found.clear(),
            }
        }
        let lost = usize::try_from(unique.lost()).unwrap();
        keys[..lost].iter().for_each(|key| unique.see(key).unwrap());
        if unique.wants().unwrap() {
            keys.iter().enumerate().for_each(|(at, key)| unique.bring(key, || rest(at)).unwrap());
        }
        unique
            .finish(|key, rest| {
                found.push((key.to_vec(), rest[0]));
                Ok(())
            })
            .unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        found.sort_by_key(|found| found.1);
        found
    }

    proptest! {
        #[test]
        fn repeated_keys_are_found_in_any_order_and_from_any_source(
            mut keys in proptest::collection::vec("[a-c]{0,2}", 0..40),
            in_order in 0_usize..40,
        ) {
            let in_order = in_order.min(keys.len());
            keys[..in_order].sort();
            let keys: Vec<Vec<u8>> = keys.into_iter().map(String::into_bytes).collect();
            let wanted: Vec<_> = (0..keys.len())
                .filter(|at| keys[..*at].contains(&keys[*at]))
                .map(|at| (keys[at].clone(), u8::try_from(at).unwrap()))
                .collect();
            for (can, memory) in [(true, 0), (false, 0), (true, 1 << 20), (false, 1 << 20)] {
                prop_assert_eq!(&again(&keys, can, memory), &wanted, "{} {}", can, memory);
            }
        }
    }

    #[test]
    fn equal_hashes_make_no_equal_keys() {
        let (room, _folder) = room(0);
        let mut unique = Unique::new(room, true);
        for key in [b"b", b"a"] {
            unique.push(key, || [0; REST]).unwrap();
        }
        // As if `b` had the hash of `a`.
        unique.see(b"a").unwrap();
        assert!(unique.wants().unwrap());
        for key in [b"b", b"a"] {
            unique.bring(key, || [0; REST]).unwrap();
        }
        unique.finish(|key, _| panic!("{key:?}")).unwrap();
    }

    #[test]
    fn sets_and_sums_are_the_same_whatever_the_room() {
        for memory in [2_000, usize::MAX] {
            let (room, _folder) = room(memory);
            let mut set = Set::new(room.clone());
            let mut sums = Sums::new(room);
            for at in 0..5_000_u32 {
                let key = (at.wrapping_mul(2_654_435_761) % 613).to_be_bytes();
                set.insert(&key).unwrap();
                sums.add(key, 2).unwrap();
            }
            let mut keys = Vec::new();
            set.finish(|key| keys.push(key.to_vec())).unwrap();
            keys.sort();
            let mut found = BTreeMap::new();
            sums.finish(|key, sum| assert_eq!(found.insert(key.to_vec(), sum), None)).unwrap();
            assert_eq!(keys.len(), 613);
            assert!(keys.iter().eq(found.keys()));
            assert_eq!(found.values().sum::<u64>(), 10_000);
        }
    }
}
