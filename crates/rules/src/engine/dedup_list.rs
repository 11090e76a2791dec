//! List of the places that an item makes the engine note, many of them repeatedly.

use std::{collections::HashSet, hash::Hash};

use crate::search::hashing::BuildFastHasher;

/// List of noted places, in memory proportional to the distinct ones. From `UNCHECKED` on, only new places are added:
/// sorting out a million repetitions afterwards would cost more than finding them.
#[derive(Default)]
pub(crate) struct DedupList<T, M> {
    places: Vec<T>,
    seen_places: M,
}

/// Number of places that are added without a check for repetition, and capacity that a thread keeps between items.
const UNCHECKED: usize = 1 << 12;

/// Set of the places noted so far.
pub(crate) trait SeenSet<T>: Default {
    fn is_empty(&self) -> bool;
    /// Returns true if the place is new.
    fn add(&mut self, place: T) -> bool;
}

impl<T: Copy + Ord, M: SeenSet<T>> DedupList<T, M> {
    #[inline]
    pub(crate) fn push(&mut self, place: T) {
        // Sorting a short list once is cheaper than a check at each push.
        if self.places.len() < UNCHECKED || self.is_new(place) {
            self.places.push(place);
        }
    }

    #[inline(never)]
    fn is_new(&mut self, new_place: T) -> bool {
        // The set is filled at the first check, so that most items never need it.
        if self.seen_places.is_empty() {
            for place in &self.places {
                self.seen_places.add(*place);
            }
        }
        self.seen_places.add(new_place)
    }

    /// Sorts the list and removes repetitions.
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

    /// Returns the memory of [`Self::take`] for reuse.
    pub(crate) fn give_back(&mut self, list: Vec<T>) {
        self.places = list;
    }

    pub(crate) fn reset(&mut self) {
        self.places.clear();
        // A thread must not keep the memory of one extreme item.
        self.places.shrink_to(UNCHECKED);
        if !self.seen_places.is_empty() {
            self.seen_places = M::default();
        }
    }
}

/// Set of small numbers as bits.
#[derive(Default)]
pub(crate) struct Bits(Vec<u64>);

impl SeenSet<u32> for Bits {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn add(&mut self, number: u32) -> bool {
        let (word, bit) = (number as usize / 64, 1 << (number % 64));
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        let is_present = self.0[word] & bit != 0;
        self.0[word] |= bit;
        !is_present
    }
}

impl<T: Eq + Hash> SeenSet<T> for HashSet<T, BuildFastHasher> {
    fn is_empty(&self) -> bool {
        HashSet::is_empty(self)
    }

    fn add(&mut self, place: T) -> bool {
        self.insert(place)
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, cmp::Ordering};

    use super::*;

    impl<T, M: SeenSet<T>> DedupList<T, M> {
        /// Bytes that a thread keeps.
        pub(crate) fn bytes(&self) -> usize {
            assert!(self.seen_places.is_empty());
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

    /// Notes this many distinct places repeatedly. Returns the memory used and the number of comparisons.
    fn noted<T: Copy + Ord, M: SeenSet<T>>(different: u32, place: fn(u32) -> T) -> (usize, usize) {
        let mut noted = DedupList { places: Vec::new(), seen_places: M::default() };
        let before = COMPARED.get();
        for round in 0..400_000 {
            noted.push(place(round * 7 % different));
        }
        let (room, compared) = (noted.places.capacity(), COMPARED.get() - before);
        noted.order();
        assert!(noted.as_slice().iter().copied().eq((0..different).map(place)));
        noted.reset();
        assert!(noted.as_slice().is_empty() && noted.bytes() <= UNCHECKED * size_of::<T>());
        (room, compared)
    }

    #[test]
    fn repeated_places_take_no_memory_and_no_sorting() {
        for different in [10, 1_000, 5_000, 100_000] {
            let most = 2 * UNCHECKED.max(different as usize) + UNCHECKED;
            for (room, compared) in [
                noted::<Place, HashSet<Place, BuildFastHasher>>(different, Place),
                noted::<u32, Bits>(different, |nth| nth),
            ] {
                assert!(room <= most && compared == 0, "{different}: {room}, {compared}");
            }
        }
    }
}
