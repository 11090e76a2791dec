//! Remembers what an item makes the engine note, some of it again and again.

use std::{collections::HashSet, hash::Hash};

use crate::search::hashing::BuildFastHasher;

/// Places that were noted, in as much room as the different ones take. From `FEW` on, only what is new is kept: to sort
/// out later what an item repeats a million times would cost it more than to find it.
#[derive(Default)]
pub(crate) struct DedupList<T, M> {
    places: Vec<T>,
    memory: M,
}

/// Places up to which nobody looks whether one is new, and those that a thread keeps room for from item to item.
const FEW: usize = 1 << 12;

/// The value before.
pub(crate) trait SeenSet<T>: Default {
    fn is_empty(&self) -> bool;
    /// True if there was none.
    fn add(&mut self, one: T) -> bool;
}

impl<T: Copy + Ord, M: SeenSet<T>> DedupList<T, M> {
    #[inline]
    pub(crate) fn push(&mut self, one: T) {
        if self.places.len() < FEW || self.is_new(one) {
            self.places.push(one);
        }
    }

    #[inline(never)]
    fn is_new(&mut self, one: T) -> bool {
        if self.memory.is_empty() {
            for place in &self.places {
                self.memory.add(*place);
            }
        }
        self.memory.add(one)
    }

    /// Each once, in order.
    pub(crate) fn order(&mut self) {
        self.places.sort_unstable();
        self.places.dedup();
    }

    pub(crate) fn as_slice(&self) -> &[T] {
        &self.places
    }

    pub(crate) fn take(&mut self) -> Vec<T> {
        self.order();
        std::mem::take(&mut self.places)
    }

    /// Capacity.
    pub(crate) fn give_back(&mut self, taken: Vec<T>) {
        self.places = taken;
    }

    pub(crate) fn forget(&mut self) {
        self.places.clear();
        self.places.shrink_to(FEW);
        if !self.memory.is_empty() {
            self.memory = M::default();
        }
    }
}

/// Numbers that are not far apart.
#[derive(Default)]
pub(crate) struct Bits(Vec<u64>);

impl SeenSet<u32> for Bits {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn add(&mut self, one: u32) -> bool {
        let (word, bit) = (one as usize / 64, 1 << (one % 64));
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        let was_there = self.0[word] & bit != 0;
        self.0[word] |= bit;
        !was_there
    }
}

impl<T: Eq + Hash> SeenSet<T> for HashSet<T, BuildFastHasher> {
    fn is_empty(&self) -> bool {
        HashSet::is_empty(self)
    }

    fn add(&mut self, one: T) -> bool {
        self.insert(one)
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, cmp::Ordering};

    use super::*;

    impl<T, M: SeenSet<T>> DedupList<T, M> {
        /// Bytes that a thread keeps.
        pub(crate) fn bytes(&self) -> usize {
            assert!(self.memory.is_empty());
            self.places.capacity() * size_of::<T>()
        }
    }

    thread_local! {
        static COMPARED: Cell<usize> = const { Cell::new(0) };
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    struct Place(u32);

    impl Ord for Place {
        fn cmp(&self, other: &Self) -> Ordering {
            COMPARED.set(COMPARED.get() + 1);
            self.0.cmp(&other.0)
        }
    }

    impl PartialOrd for Place {
        fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
            Some(self.cmp(other))
        }
    }

    /// Notes so many different places in turn, and returns what room they take and how many comparisons that took.
    fn noted<T: Copy + Ord, M: SeenSet<T>>(different: u32, place: fn(u32) -> T) -> (usize, usize) {
        let mut noted = DedupList { places: Vec::new(), memory: M::default() };
        let before = COMPARED.get();
        for round in 0..400_000 {
            noted.push(place(round * 7 % different));
        }
        let (room, compared) = (noted.places.capacity(), COMPARED.get() - before);
        noted.order();
        assert!(noted.as_slice().iter().copied().eq((0..different).map(place)));
        noted.forget();
        assert!(noted.as_slice().is_empty() && noted.bytes() <= FEW * size_of::<T>());
        (room, compared)
    }

    #[test]
    fn repeated_entries_take_no_memory_and_no_sorting() {
        for different in [10, 1_000, 5_000, 100_000] {
            let most = 2 * FEW.max(different as usize) + FEW;
            for (room, compared) in [
                noted::<Place, HashSet<Place, BuildFastHasher>>(different, Place),
                noted::<u32, Bits>(different, |nth| nth),
            ] {
                assert!(room <= most && compared == 0, "{different}: {room}, {compared}");
            }
        }
    }
}
