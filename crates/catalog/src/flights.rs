//! One at a time per key: whoever comes second waits for the first and finds its result.
//!
//! It keeps no results.

use std::{collections::HashMap, hash::Hash, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

type Gate = Arc<tokio::sync::Mutex<()>>;

/// The gates of the keys that somebody is at; a key that nobody is at takes no room.
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
        // Made before the wait, so that a caller who gives up waiting cleans up as well.
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
        // The map's and this one: nobody else waits, and nobody can join while the map is locked.
        if Arc::strong_count(&self.gate) == 2 {
            gates.remove(&self.key);
        }
    }
}
