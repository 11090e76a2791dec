//! Serialises work per key: a second caller waits until the first is done, and then finds its result in the
//! caller's cache.

use std::{collections::HashMap, hash::Hash, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

type Gate = Arc<tokio::sync::Mutex<()>>;

/// Gates of the keys in use. An unused key occupies no memory.
pub(crate) struct Flights<K: Hash + Eq>(Mutex<HashMap<K, Gate>>);

pub(crate) struct Flight<'a, K: Hash + Eq> {
    flights: &'a Flights<K>,
    key: K,
    gate: Gate,
    guard: Option<OwnedMutexGuard<()>>,
}

impl<K: Hash + Eq + Clone> Flights<K> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(HashMap::new()))
    }

    pub(crate) async fn enter(&self, key: &K) -> Flight<'_, K> {
        let gate = Arc::clone(self.0.lock().entry(key.clone()).or_default());
        // Created before the wait, so that a cancelled caller cleans up too.
        let mut flight = Flight { flights: self, key: key.clone(), gate, guard: None };
        flight.guard = Some(Arc::clone(&flight.gate).lock_owned().await);
        flight
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.lock().len()
    }
}

impl<K: Hash + Eq> Drop for Flight<'_, K> {
    fn drop(&mut self) {
        drop(self.guard.take());
        let mut gates = self.flights.0.lock();
        // Two references: the map's and this one. No other caller waits, and none can join while the map is
        // locked.
        if Arc::strong_count(&self.gate) == 2 {
            gates.remove(&self.key);
        }
    }
}
