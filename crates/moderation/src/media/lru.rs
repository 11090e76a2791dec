//! Keeps the values that were asked for last, up to a number.
//!
//! It knows no clock: what is stale is its user's to say.

use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
};

#[derive(Debug)]
pub(super) struct Keep<K, V> {
    most: usize,
    values: HashMap<K, (u64, V)>,
    by_use: BTreeMap<u64, K>,
    uses: u64,
}

impl<K: Clone + Eq + Hash, V: Clone> Keep<K, V> {
    /// `most` 0 keeps nothing.
    pub(super) fn new(most: usize) -> Self {
        Self { most, values: HashMap::new(), by_use: BTreeMap::new(), uses: 0 }
    }

    pub(super) fn get(&mut self, key: &K) -> Option<V> {
        let (used, value) = self.values.get_mut(key)?;
        let key = self.by_use.remove(used)?;
        self.uses += 1;
        *used = self.uses;
        self.by_use.insert(self.uses, key);
        Some(value.clone())
    }

    pub(super) fn put(&mut self, key: K, value: V) {
        if self.most == 0 {
            return;
        }
        self.uses += 1;
        if let Some((before, _)) = self.values.insert(key.clone(), (self.uses, value)) {
            self.by_use.remove(&before);
        }
        self.by_use.insert(self.uses, key);
        if self.values.len() > self.most
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.values.remove(&oldest);
        }
    }

    pub(super) fn forget(&mut self, key: &K) {
        if let Some((used, _)) = self.values.remove(key) {
            self.by_use.remove(&used);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_last_stays() {
        let mut keep = Keep::new(2);
        keep.put('a', 1);
        keep.put('b', 2);
        assert_eq!(keep.get(&'a'), Some(1));
        keep.put('c', 3);
        assert_eq!((keep.get(&'a'), keep.get(&'b'), keep.get(&'c')), (Some(1), None, Some(3)));
        keep.put('a', 4);
        assert_eq!((keep.get(&'a'), keep.get(&'c')), (Some(4), Some(3)));
        keep.forget(&'a');
        assert_eq!((keep.get(&'a'), keep.values.len(), keep.by_use.len()), (None, 1, 1));
    }

    #[test]
    fn nothing_is_kept_where_nothing_is_to_be() {
        let mut keep = Keep::new(0);
        keep.put('a', 1);
        assert_eq!(keep.get(&'a'), None);
    }
}
