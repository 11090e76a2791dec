//! Remembers look-ups for a bounded time and in bounded room, and makes one look-up of many for the same key.
//!
//! It does not know what is looked up.

use std::{collections::HashMap, hash::Hash, time::Duration};

use parking_lot::Mutex;
use tidegate_schemas::ids::Millis;
use tidegate_store::Clock;

use crate::flights::Flights;

pub(crate) struct Cache<K: Hash + Eq, T> {
    found_for: Duration,
    missing_for: Duration,
    capacity: usize,
    kept: Mutex<HashMap<K, Kept<T>>>,
    flights: Flights<K>,
    clock: Clock,
}

struct Kept<T> {
    value: Option<T>,
    /// Time before the look-up began; its result is at least as new.
    since: Millis,
}

impl<K: Hash + Eq + Clone, T: Clone> Cache<K, T> {
    pub(crate) fn new(found_for: Duration, missing_for: Duration, capacity: usize, clock: Clock) -> Self {
        let kept = Mutex::new(HashMap::new());
        Self { found_for, missing_for, capacity, kept, flights: Flights::new(), clock }
    }

    /// Returns the cached value, or else the result of `fetch`. A failed look-up is not cached.
    pub(crate) async fn get<E, F: Future<Output = Result<Option<T>, E>>>(
        &self,
        key: &K,
        fetch: impl FnOnce() -> F,
    ) -> Result<Option<T>, E> {
        if let Some(value) = self.remembered(key) {
            return Ok(value);
        }
        let _flight = self.flights.enter(key).await;
        if let Some(value) = self.remembered(key) {
            return Ok(value);
        }
        let since = (self.clock)();
        let value = fetch().await?;
        self.keep(key.clone(), Kept { value: value.clone(), since });
        Ok(value)
    }

    pub(crate) fn forget(&self, key: &K) {
        self.kept.lock().remove(key);
    }

    fn remembered(&self, key: &K) -> Option<Option<T>> {
        let now = (self.clock)();
        let kept = self.kept.lock();
        let found = kept.get(key)?;
        self.is_fresh(found, now).then(|| found.value.clone())
    }

    /// A clock that was set back must not make an entry live longer.
    fn is_fresh(&self, kept: &Kept<T>, now: Millis) -> bool {
        let lasts = if kept.value.is_some() { self.found_for } else { self.missing_for };
        kept.since <= now && now < kept.since.plus(lasts)
    }

    fn keep(&self, key: K, value: Kept<T>) {
        let mut kept = self.kept.lock();
        if kept.len() >= self.capacity && !kept.contains_key(&key) {
            self.make_room(&mut kept);
        }
        kept.insert(key, value);
    }

    /// First what is stale, then what was not found: made-up keys must not push out the ones in use. An eighth at
    /// once, so that a full cache is not searched at each insertion.
    fn make_room(&self, kept: &mut HashMap<K, Kept<T>>) {
        let now = (self.clock)();
        kept.retain(|_, entry| self.is_fresh(entry, now));
        let most = self.capacity - (self.capacity / 8).max(1);
        for missing_only in [true, false] {
            let mut surplus = kept.len().saturating_sub(most);
            kept.retain(|_, entry| {
                let goes = surplus > 0 && !(missing_only && entry.value.is_some());
                surplus -= usize::from(goes);
                !goes
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
    async fn what_was_found_is_remembered_for_its_time_and_what_was_not_for_less() {
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
    async fn a_clock_that_is_set_back_makes_nothing_live_longer() {
        let (cache, now) = cache(10);
        let asked = AtomicUsize::new(0);
        look_up(&cache, 1, Some(7), &asked).await;
        now.fetch_sub(1, Ordering::SeqCst);
        assert_eq!(look_up(&cache, 1, None, &asked).await, None);
    }

    #[tokio::test]
    async fn many_who_ask_for_one_key_make_one_look_up() {
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
    async fn unknown_keys_neither_grow_the_cache_nor_push_known_ones_out() {
        let (cache, _) = cache(100);
        let asked = AtomicUsize::new(0);
        for key in 0..50 {
            look_up(&cache, key, Some(key), &asked).await;
        }
        for key in 1_000..11_000 {
            look_up(&cache, key, None, &asked).await;
        }
        assert!(cache.kept.lock().len() <= 100);
        for key in 0..50 {
            assert_eq!(look_up(&cache, key, None, &asked).await, Some(key));
        }
        for key in 0..1_000 {
            look_up(&cache, key, Some(key), &asked).await;
        }
        assert!(cache.kept.lock().len() <= 100);
    }
}
