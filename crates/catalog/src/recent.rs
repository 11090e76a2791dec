//! Cache of values derived from the current configurations of organisations, bounded in bytes.

use std::collections::HashMap;

use parking_lot::Mutex;
use tidegate_schemas::ids::OrgId;
use uuid::Uuid;

/// Cache of one value per organisation, valid while the snapshot it was derived from is current.
pub(crate) struct Recent<T> {
    max_bytes: usize,
    state: Mutex<CacheState<T>>,
}

struct CacheState<T> {
    orgs: HashMap<OrgId, Entry<T>>,
    bytes: usize,
    /// Number of lookups, used as the clock of `last_use`.
    lookups: u64,
}

struct Entry<T> {
    snapshot: Uuid,
    value: T,
    bytes: usize,
    last_use: u64,
}

impl<T: Clone> Recent<T> {
    pub(crate) fn new(max_bytes: usize) -> Self {
        Self { max_bytes, state: Mutex::new(CacheState { orgs: HashMap::new(), bytes: 0, lookups: 0 }) }
    }

    pub(crate) fn get(&self, org: &OrgId, snapshot: Uuid) -> Option<T> {
        let mut state = self.state.lock();
        state.lookups += 1;
        let last_use = state.lookups;
        let entry = state.orgs.get_mut(org).filter(|entry| entry.snapshot == snapshot)?;
        entry.last_use = last_use;
        Some(entry.value.clone())
    }

    /// Replaces the organisation's value, and evicts the least recently used values if the cache exceeds its
    /// size. A value above half of the size is not cached: it would evict those of all other organisations.
    pub(crate) fn insert(&self, org: &OrgId, snapshot: Uuid, value: T, bytes: usize) {
        let mut evicted = Vec::new();
        let mut state = self.state.lock();
        evicted.extend(state.remove(org));
        if bytes <= self.max_bytes / 2 {
            while state.bytes + bytes > self.max_bytes {
                let least_recent =
                    state.orgs.iter().min_by_key(|(_, entry)| entry.last_use).map(|(org, _)| org.clone());
                let Some(least_recent_org) = least_recent else { break };
                evicted.extend(state.remove(&least_recent_org));
            }
            state.lookups += 1;
            let last_use = state.lookups;
            state.bytes += bytes;
            state.orgs.insert(org.clone(), Entry { snapshot, value, bytes, last_use });
        }
        // Large values are dropped after the lock is released.
        drop(state);
        drop(evicted);
    }
}

impl<T> CacheState<T> {
    fn remove(&mut self, org: &OrgId) -> Option<Entry<T>> {
        let entry = self.orgs.remove(org)?;
        self.bytes -= entry.bytes;
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Uuid = Uuid::from_u128(1);
    const SECOND: Uuid = Uuid::from_u128(2);

    fn org(name: &str) -> OrgId {
        OrgId::new(name)
    }

    #[test]
    fn value_of_another_snapshot_is_not_returned() {
        let recent = Recent::new(100);
        recent.insert(&org("a"), FIRST, 1, 10);
        assert_eq!((recent.get(&org("a"), FIRST), recent.get(&org("a"), SECOND)), (Some(1), None));
        recent.insert(&org("a"), SECOND, 2, 20);
        assert_eq!((recent.get(&org("a"), FIRST), recent.get(&org("a"), SECOND)), (None, Some(2)));
        assert_eq!(recent.state.lock().bytes, 20);
    }

    #[test]
    fn least_recently_used_values_make_room_for_new_ones() {
        let recent = Recent::new(100);
        for name in ["a", "b"] {
            recent.insert(&org(name), FIRST, name, 50);
        }
        assert_eq!(recent.get(&org("a"), FIRST), Some("a"));
        recent.insert(&org("c"), FIRST, "c", 40);
        assert_eq!((recent.get(&org("a"), FIRST), recent.get(&org("b"), FIRST)), (Some("a"), None));
        assert_eq!(recent.state.lock().bytes, 90);
    }

    #[test]
    fn value_above_half_of_the_bytes_is_not_kept() {
        let recent = Recent::new(100);
        recent.insert(&org("a"), FIRST, 1, 50);
        recent.insert(&org("b"), FIRST, 2, 51);
        assert_eq!((recent.get(&org("a"), FIRST), recent.get(&org("b"), FIRST)), (Some(1), None));
        recent.insert(&org("a"), SECOND, 3, 51);
        let kept = recent.state.lock();
        assert_eq!((kept.bytes, kept.orgs.len()), (0, 0));
    }
}
