//! Lets concurrent callers with the same key share one computation.
//!
//! The catalog has its own gate: its callers repeat a failed load one by one, each with its own error, while here all
//! callers get a clone of one value.

use std::{collections::HashMap, hash::Hash, sync::Arc};

use futures::{
    FutureExt as _,
    future::{BoxFuture, Shared, WeakShared},
};
use parking_lot::Mutex;

/// Computation that several callers can await. It is dropped with the last of them.
pub type Flight<V> = Shared<BoxFuture<'static, V>>;

/// Running computations. Cheap to clone; clones share them.
pub struct SingleFlight<K, V>(Arc<Mutex<Flights<K, V>>>);

struct Flights<K, V> {
    by_key: HashMap<K, (u64, WeakShared<BoxFuture<'static, V>>)>,
    next_number: u64,
}

impl<K, V> Clone for SingleFlight<K, V> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K, V> Default for SingleFlight<K, V> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Flights { by_key: HashMap::new(), next_number: 0 })))
    }
}

impl<K, V> SingleFlight<K, V>
where
    K: Clone + Eq + Hash + Send + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// Returns the running computation of the key.
    pub fn find(&self, key: &K) -> Option<Flight<V>> {
        self.0.lock().by_key.get(key).and_then(|(_, flight)| flight.upgrade())
    }

    /// Joins the computation of the key, or starts `start`. The flag is true if an existing one was joined.
    ///
    /// The computation starts when the returned future is polled.
    pub fn join<F>(&self, key: &K, start: impl FnOnce() -> F) -> (Flight<V>, bool)
    where
        F: Future<Output = V> + Send + 'static,
    {
        let mut flights = self.0.lock();
        if let Some(flight) = flights.by_key.get(key).and_then(|(_, flight)| flight.upgrade()) {
            return (flight, true);
        }
        flights.next_number += 1;
        let number = flights.next_number;
        let entry = FlightEntry { flights: self.clone(), key: key.clone(), number };
        let value = start();
        // The entry moves into the future, so that completing or dropping the future removes it.
        let flight = async move {
            let _entry = entry;
            value.await
        };
        let flight = flight.boxed().shared();
        if let Some(weak) = flight.downgrade() {
            flights.by_key.insert(key.clone(), (number, weak));
        }
        (flight, false)
    }
}

struct FlightEntry<K: Eq + Hash, V> {
    flights: SingleFlight<K, V>,
    key: K,
    number: u64,
}

impl<K: Eq + Hash, V> Drop for FlightEntry<K, V> {
    fn drop(&mut self) {
        let mut flights = self.flights.0.lock();
        // A later computation of the key may have replaced this one.
        if flights.by_key.get(&self.key).is_some_and(|(number, _)| *number == self.number) {
            flights.by_key.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::pending,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use futures::future::join_all;

    use super::*;

    #[tokio::test]
    async fn callers_of_one_key_share_one_computation() {
        let (flights, runs) = (SingleFlight::<&str, usize>::default(), Arc::new(AtomicUsize::new(0)));
        let join = |key| {
            let runs = Arc::clone(&runs);
            flights.join(&key, || async move {
                tokio::task::yield_now().await;
                runs.fetch_add(1, Ordering::SeqCst)
            })
        };
        let (joined, is_joined): (Vec<_>, Vec<_>) = ["a", "a", "b"].into_iter().map(join).unzip();
        assert_eq!(is_joined, [false, true, false]);
        let values = join_all(joined).await;
        assert_eq!(values[0], values[1]);
        assert_eq!(runs.load(Ordering::SeqCst), 2);
        assert!(flights.0.lock().by_key.is_empty());
        let (repeated, is_joined) = join("a");
        assert!(!is_joined, "a value is not kept");
        assert_eq!(repeated.await, 2);
    }

    #[tokio::test]
    async fn computation_without_waiters_is_dropped() {
        let flights = SingleFlight::<&str, ()>::default();
        let (first, _) = flights.join(&"a", pending::<()>);
        let (second, is_joined) = flights.join(&"a", pending::<()>);
        assert!(is_joined);
        drop(first);
        assert_eq!(flights.0.lock().by_key.len(), 1);
        drop(second);
        assert!(flights.0.lock().by_key.is_empty());
    }
}
