//! Cache of values made from the current configurations of orgs, within a number of bytes.

use std::collections::HashMap;

use parking_lot::Mutex;
use tidegate_schemas::ids::OrgId;
use uuid::Uuid;

/// Cache of one value an org, made from a snapshot: it is the same as long as the snapshot is current.
pub(crate) struct Recent<T> {
    most: usize,
    kept: Mutex<Kept<T>>,
}

struct Kept<T> {
    orgs: HashMap<OrgId, Entry<T>>,
    bytes: usize,
    /// Number of look-ups; entries have the one at which they were used last.
    used: u64,
}

struct Entry<T> {
    snapshot: Uuid,
    value: T,
    bytes: usize,
    used: u64,
}

impl<T: Clone> Recent<T> {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, kept: Mutex::new(Kept { orgs: HashMap::new(), bytes: 0, used: 0 }) }
    }

    pub(crate) fn get(&self, org: &OrgId, snapshot: Uuid) -> Option<T> {
        let mut kept = self.kept.lock();
        kept.used += 1;
        let used = kept.used;
        let entry = kept.orgs.get_mut(org).filter(|entry| entry.snapshot == snapshot)?;
        entry.used = used;
        Some(entry.value.clone())
    }

    /// Keeps the value instead of the org's former one, and forgets those that were not used for longest if the bytes are
    /// too many. One that takes more than half of them is not kept: it would push out those of all others.
    pub(crate) fn put(&self, org: &OrgId, snapshot: Uuid, value: T, bytes: usize) {
        let mut dropped = Vec::new();
        let mut kept = self.kept.lock();
        dropped.extend(kept.remove(org));
        if bytes <= self.most / 2 {
            while kept.bytes + bytes > self.most {
                let oldest = kept.orgs.iter().min_by_key(|(_, entry)| entry.used).map(|(org, _)| org.clone());
                let Some(oldest) = oldest else { break };
                dropped.extend(kept.remove(&oldest));
            }
            kept.used += 1;
            let used = kept.used;
            kept.bytes += bytes;
            kept.orgs.insert(org.clone(), Entry { snapshot, value, bytes, used });
        }
        // Large values are dropped without the lock.
        drop(kept);
        drop(dropped);
    }
}

impl<T> Kept<T> {
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
        recent.put(&org("a"), FIRST, 1, 10);
        assert_eq!((recent.get(&org("a"), FIRST), recent.get(&org("a"), SECOND)), (Some(1), None));
        recent.put(&org("a"), SECOND, 2, 20);
        assert_eq!((recent.get(&org("a"), FIRST), recent.get(&org("a"), SECOND)), (None, Some(2)));
        assert_eq!(recent.kept.lock().bytes, 20);
    }

    #[test]
    fn least_recently_used_values_make_room_for_new_ones() {
        let recent = Recent::new(100);
        for name in ["a", "b"] {
            recent.put(&org(name), FIRST, name, 50);
        }
        assert_eq!(recent.get(&org("a"), FIRST), Some("a"));
        recent.put(&org("c"), FIRST, "c", 40);
        assert_eq!((recent.get(&org("a"), FIRST), recent.get(&org("b"), FIRST)), (Some("a"), None));
        assert_eq!(recent.kept.lock().bytes, 90);
    }

    #[test]
    fn value_above_half_of_the_bytes_is_not_kept() {
        let recent = Recent::new(100);
        recent.put(&org("a"), FIRST, 1, 50);
        recent.put(&org("b"), FIRST, 2, 51);
        assert_eq!((recent.get(&org("a"), FIRST), recent.get(&org("b"), FIRST)), (Some(1), None));
        recent.put(&org("a"), SECOND, 3, 51);
        let kept = recent.kept.lock();
        assert_eq!((kept.bytes, kept.orgs.len()), (0, 0));
    }
}
