//! Which keys come again, and how many there are: exactly, in bounded memory, and for free where they come in order.
//!
//! What a key stands for is the caller's.

use std::{
    cmp::Ordering,
    collections::{HashMap, HashSet},
    io,
};

use crate::{
    hash::Folding,
    spill::{Room, Spill},
};

/// What is known of a key when it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    New,
    Again,
    /// `finish` will tell.
    Later,
    /// The keys came in order until now, and this one does not: `finish` will tell of all, also of those before.
    Broken,
}

/// Finds keys that come again. Keys in ascending order, by their bytes or by length first, need no memory; should the
/// order break late, the keys before must be brought again.
#[derive(Debug)]
pub(crate) struct Unique {
    bytes: bool,
    length: bool,
    last: Vec<u8>,
    count: u64,
    lost: u64,
    again: bool,
    spill: Spill,
}

impl Unique {
    /// `again`: the keys can be brought again.
    pub(crate) fn new(room: Room, again: bool) -> Self {
        let (last, spill) = (Vec::new(), Spill::new(room));
        Self { bytes: true, length: true, last, count: 0, lost: 0, again, spill }
    }

    /// From here on every key is kept: it will not come twice. Only before the first.
    pub(crate) fn keep_all(&mut self) {
        self.again &= self.count > 0;
    }

    #[inline]
    pub(crate) fn push(&mut self, key: &[u8], rest: impl FnOnce() -> [u8; 24]) -> io::Result<Seen> {
        if !self.again || self.lost > 0 {
            self.spill.push(key, &rest())?;
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
                self.spill.push(key, &rest())?;
                return Ok(Seen::Broken);
            }
        }
        self.last.clear();
        self.last.extend_from_slice(key);
        self.count += 1;
        Ok(Seen::New)
    }

    /// How many of the first keys have to be brought again.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// Takes a key that was lost.
    pub(crate) fn bring(&mut self, key: &[u8], rest: [u8; 24]) -> io::Result<()> {
        self.spill.push(key, &rest)
    }

    /// Calls with what was not told before, those of one key after each other; `true` for the first of a key.
    pub(crate) fn finish(self, each: impl FnMut(&[u8], &[u8], bool) -> io::Result<()>) -> io::Result<()> {
        self.spill.finish(each)
    }
}

/// Distinct keys, in memory while there is room.
#[derive(Debug)]
pub(crate) struct Set {
    keys: HashSet<Box<[u8]>, Folding>,
    held: usize,
    room: Room,
    spill: Option<Spill>,
}

/// What a key costs beyond its bytes.
const OVERHEAD: usize = 48;

impl Set {
    pub(crate) fn new(room: Room) -> Self {
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
    sums: HashMap<[u8; N], u64, Folding>,
    room: Room,
    spill: Option<Spill>,
}

impl<const N: usize> Sums<N> {
    pub(crate) fn new(room: Room) -> Self {
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

    use super::*;

    fn room(memory: usize) -> (Room, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        (Room { memory, folder: folder.path().to_owned() }, folder)
    }

    #[test]
    fn keys_in_order_are_judged_at_once_by_bytes_or_by_length_first() {
        let (room, _folder) = room(0);
        for keys in [["a10", "a9", "b"], ["a9", "b9", "a10"]] {
            let mut unique = Unique::new(room.clone(), true);
            let seen = keys.map(|key| unique.push(key.as_bytes(), || [0; 24]).unwrap());
            assert_eq!(seen, [Seen::New; 3]);
            assert_eq!(unique.push(keys[2].as_bytes(), || [0; 24]).unwrap(), Seen::Again);
            assert_eq!(unique.lost(), 0);
        }
    }

    #[test]
    fn a_key_out_of_order_calls_the_ones_before_back() {
        let (room, _folder) = room(0);
        let mut unique = Unique::new(room, true);
        let rest = |at: u8| [at; 24];
        assert_eq!(unique.push(b"b", || rest(0)).unwrap(), Seen::New);
        assert_eq!(unique.push(b"c", || rest(1)).unwrap(), Seen::New);
        assert_eq!(unique.push(b"a", || rest(2)).unwrap(), Seen::Broken);
        assert_eq!(unique.push(b"c", || rest(3)).unwrap(), Seen::Later);
        assert_eq!(unique.lost(), 2);
        unique.bring(b"b", rest(0)).unwrap();
        unique.bring(b"c", rest(1)).unwrap();
        let mut again = Vec::new();
        unique
            .finish(|key, rest, new| {
                if !new {
                    again.push((key.to_vec(), rest[0]));
                }
                Ok(())
            })
            .unwrap();
        assert_eq!(again, [(b"c".to_vec(), 3)]);
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
