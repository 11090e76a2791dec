//! Cache of lookups with a time limit and a capacity. Concurrent lookups of one key share one fetch.

use std::{collections::HashMap, hash::Hash, time::Duration};

use parking_lot::Mutex;
use tidegate_schemas::ids::Millis;
use tidegate_store::Clock;

use crate::flights::Flights;

pub(crate) struct Cache<K: Hash + Eq, T> {
    hit_ttl: Duration,
    miss_ttl: Duration,
    capacity: usize,
    entries: Mutex<HashMap<K, CacheEntry<T>>>,
    flights: Flights<K>,
    clock: Clock,
}

struct CacheEntry<T> {
    value: Option<T>,
    /// Time before the fetch began; the value is at least as new.
    looked_up_at: Millis,
}

impl<K: Hash + Eq + Clone, T: Clone> Cache<K, T> {
    pub(crate) fn new(hit_ttl: Duration, miss_ttl: Duration, capacity: usize, clock: Clock) -> Self {
        let entries = Mutex::new(HashMap::new());
        Self { hit_ttl, miss_ttl, capacity, entries, flights: Flights::new(), clock }
    }

    /// Returns the cached value, or else the result of `fetch`. An error is not cached.
    pub(crate) async fn get<E, F: Future<Output = Result<Option<T>, E>>>(
        &self,
        key: &K,
        fetch: impl FnOnce() -> F,
    ) -> Result<Option<T>, E> {
        if let Some(value) = self.get_fresh(key) {
            return Ok(value);
        }
        let _flight = self.flights.enter(key).await;
        // A flight before this one may have fetched the value.
        if let Some(value) = self.get_fresh(key) {
            return Ok(value);
        }
        let looked_up_at = (self.clock)();
        let value = fetch().await?;
        self.insert(key.clone(), CacheEntry { value: value.clone(), looked_up_at });
        Ok(value)
    }

    pub(crate) fn forget(&self, key: &K) {
        self.entries.lock().remove(key);
    }

    fn get_fresh(&self, key: &K) -> Option<Option<T>> {
        let now = (self.clock)();
        let entries = self.entries.lock();
        let entry = entries.get(key)?;
        self.is_fresh(entry, now).then(|| entry.value.clone())
    }

    /// True if the entry is within its time limit. An entry from the future is stale: a clock that was set
    /// back must not extend its life.
    fn is_fresh(&self, entry: &CacheEntry<T>, now: Millis) -> bool {
        let ttl = if entry.value.is_some() { self.hit_ttl } else { self.miss_ttl };
        entry.looked_up_at <= now && now < entry.looked_up_at.plus(ttl)
    }

    fn insert(&self, key: K, entry: CacheEntry<T>) {
        let mut entries = self.entries.lock();
        // Replacing an entry needs no room.
        if entries.len() >= self.capacity && !entries.contains_key(&key) {
            self.make_room(&mut entries);
        }
        entries.insert(key, entry);
    }

    /// Evicts stale entries first, then misses: requests with made-up keys must not evict the keys in use.
    /// Evicts an eighth of the capacity at once, so that a full cache is not scanned on each insertion.
    fn make_room(&self, entries: &mut HashMap<K, CacheEntry<T>>) {
        let now = (self.clock)();
        entries.retain(|_, entry| self.is_fresh(entry, now));
        let target_len = self.capacity - (self.capacity / 8).max(1);
        for missing_only in [true, false] {
            let mut surplus = entries.len().saturating_sub(target_len);
            entries.retain(|_, entry| {
                let is_evicted = surplus > 0 && !(missing_only && entry.value.is_some());
                surplus -= usize::from(is_evicted);
                !is_evicted
            });
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{
        convert::Infallible,
        sync::{
            Arc,
            atomic::{AtomicI64, AtomicUsize, Ordering},
        },
    };

    use super::*;

    fn cache(capacity: usize) -> (Arc<Cache<u32, u32>>, Arc<AtomicI64>) {
        let now = Arc::new(AtomicI64::new(1_000_000));
        let clock: Clock = {
            let now = Arc::clone(&now);
            Arc::new(move || Millis(now.load(Ordering::SeqCst)))
        };
        (Arc::new(Cache::new(Duration::from_secs(30), Duration::from_secs(5), capacity, clock)), now)
    }

    async fn look_up(
        cache: &Cache<u32, u32>,
        key: u32,
        value: Option<u32>,
        asked: &AtomicUsize,
    ) -> Option<u32> {
        let fetch = || async {
            asked.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            Ok::<_, Infallible>(value)
        };
        let Ok(found) = cache.get(&key, fetch).await;
        found
    }

    #[tokio::test]
    async fn hits_and_misses_expire_after_their_own_times() {
        let (cache, now) = cache(10);
        let asked = AtomicUsize::new(0);
        look_up(&cache, 1, Some(7), &asked).await;
        look_up(&cache, 2, None, &asked).await;
        now.fetch_add(4_999, Ordering::SeqCst);
        assert_eq!(look_up(&cache, 1, None, &asked).await, Some(7));
        assert_eq!(look_up(&cache, 2, Some(8), &asked).await, None);
        assert_eq!(asked.load(Ordering::SeqCst), 2);
        now.fetch_add(1, Ordering::SeqCst);
        assert_eq!(look_up(&cache, 2, Some(8), &asked).await, Some(8));
        now.fetch_add(25_000, Ordering::SeqCst);
        assert_eq!(look_up(&cache, 1, None, &asked).await, None);
    }

    #[tokio::test]
    async fn clock_set_back_does_not_extend_entries() {
        let (cache, now) = cache(10);
        let asked = AtomicUsize::new(0);
        look_up(&cache, 1, Some(7), &asked).await;
        now.fetch_sub(1, Ordering::SeqCst);
        assert_eq!(look_up(&cache, 1, None, &asked).await, None);
    }

    #[tokio::test]
    async fn concurrent_lookups_of_one_key_share_one_fetch() {
        let (cache, _) = cache(10);
        let asked = Arc::new(AtomicUsize::new(0));
        let all: Vec<_> = (0..50)
            .map(|_| {
                let (cache, asked) = (Arc::clone(&cache), Arc::clone(&asked));
                tokio::spawn(async move { look_up(&cache, 1, None, &asked).await })
            })
            .collect();
        for one in all {
            assert_eq!(one.await.unwrap(), None);
        }
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        assert_eq!(cache.flights.len(), 0, "a key that nobody is at takes no room");
    }

    #[tokio::test]
    async fn unknown_keys_do_not_evict_known_ones() {
        let (cache, _) = cache(100);
        let asked = AtomicUsize::new(0);
        for key in 0..50 {
            look_up(&cache, key, Some(key), &asked).await;
        }
        for key in 1_000..11_000 {
            look_up(&cache, key, None, &asked).await;
        }
        assert!(cache.entries.lock().len() <= 100);
        for key in 0..50 {
            assert_eq!(look_up(&cache, key, None, &asked).await, Some(key));
        }
        for key in 0..1_000 {
            look_up(&cache, key, Some(key), &asked).await;
        }
        assert!(cache.entries.lock().len() <= 100);
    }
}
