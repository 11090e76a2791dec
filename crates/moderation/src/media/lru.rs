//! Least-recently-used cache with a fixed capacity and no expiry.

use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
};

#[derive(Debug)]
pub(super) struct LruCache<K, V> {
    capacity: usize,
    values: HashMap<K, (u64, V)>,
    by_use: BTreeMap<u64, K>,
    uses: u64,
}

impl<K: Clone + Eq + Hash, V: Clone> LruCache<K, V> {
    /// Creates a cache; one of capacity 0 stays empty.
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, values: HashMap::new(), by_use: BTreeMap::new(), uses: 0 }
    }

    pub(super) fn get(&mut self, key: &K) -> Option<V> {
        let (used, value) = self.values.get_mut(key)?;
        let key = self.by_use.remove(used)?;
        self.uses += 1;
        *used = self.uses;
        self.by_use.insert(self.uses, key);
        Some(value.clone())
    }

    pub(super) fn insert(&mut self, key: K, value: V) {
        // Otherwise every value would be inserted and evicted at once.
        if self.capacity == 0 {
            return;
        }
        self.uses += 1;
        if let Some((last_use, _)) = self.values.insert(key.clone(), (self.uses, value)) {
            self.by_use.remove(&last_use);
        }
        self.by_use.insert(self.uses, key);
        if self.values.len() > self.capacity
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.values.remove(&oldest);
        }
    }

    pub(super) fn remove(&mut self, key: &K) {
        if let Some((used, _)) = self.values.remove(key) {
            self.by_use.remove(&used);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_value_is_evicted() {
        let mut cache = LruCache::new(2);
        cache.insert('a', 1);
        cache.insert('b', 2);
        assert_eq!(cache.get(&'a'), Some(1));
        cache.insert('c', 3);
        assert_eq!((cache.get(&'a'), cache.get(&'b'), cache.get(&'c')), (Some(1), None, Some(3)));
        cache.insert('a', 4);
        assert_eq!((cache.get(&'a'), cache.get(&'c')), (Some(4), Some(3)));
        cache.remove(&'a');
        assert_eq!((cache.get(&'a'), cache.values.len(), cache.by_use.len()), (None, 1, 1));
    }

    #[test]
    fn cache_of_capacity_zero_stays_empty() {
        let mut cache = LruCache::new(0);
        cache.insert('a', 1);
        assert_eq!(cache.get(&'a'), None);
    }
}
