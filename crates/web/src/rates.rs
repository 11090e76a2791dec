//! Token buckets that limit requests per second of an organisation or another key. Callers pass the current time.

use std::{
    collections::HashMap,
    hash::Hash,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tidegate_schemas::ids::OrgId;

/// Token buckets by organisation or other key.
#[derive(Debug)]
pub struct RateLimiter<K = OrgId> {
    per_second: u32,
    burst: u32,
    buckets: Mutex<HashMap<K, Bucket>>,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    tokens: f64,
    updated_at: Instant,
}

/// Result of taking a request from a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateDecision {
    Unlimited,
    /// Admitted; this number of requests may follow at once.
    Remaining(u32),
    /// Refused; the next request is admitted after this time.
    Exceeded(Duration),
}

/// Number of buckets from which full ones are removed, so that idle keys do not accumulate.
const SWEEP_THRESHOLD: usize = 10_000;

impl<K: Clone + Eq + Hash> RateLimiter<K> {
    pub fn new(per_second: u32, burst: u32) -> Self {
        Self { per_second, burst, buckets: Mutex::new(HashMap::new()) }
    }

    pub fn burst(&self) -> u32 {
        self.burst
    }

    /// Returns the time in which an empty bucket fills.
    pub fn window(&self) -> Duration {
        Duration::from_secs_f64(f64::from(self.burst) / f64::from(self.per_second.max(1)))
    }

    pub fn take(&self, key: &K, now: Instant) -> RateDecision {
        if self.per_second == 0 {
            return RateDecision::Unlimited;
        }
        let mut buckets = self.buckets.lock();
        if buckets.len() >= SWEEP_THRESHOLD {
            buckets.retain(|_, bucket| self.refilled_tokens(*bucket, now) < f64::from(self.burst));
        }
        let full = Bucket { tokens: f64::from(self.burst), updated_at: now };
        // A new key starts with a full bucket, like one that has been idle.
        let bucket = buckets.entry(key.clone()).or_insert(full);
        let tokens = self.refilled_tokens(*bucket, now);
        if tokens < 1.0 {
            return RateDecision::Exceeded(Duration::from_secs_f64(
                (1.0 - tokens) / f64::from(self.per_second),
            ));
        }
        *bucket = Bucket { tokens: tokens - 1.0, updated_at: now };
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and burst")]
        RateDecision::Remaining((tokens - 1.0) as u32)
    }

    /// Returns a token, for a request that does not count.
    pub fn give_back(&self, key: &K) {
        if let Some(bucket) = self.buckets.lock().get_mut(key) {
            bucket.tokens = (bucket.tokens + 1.0).min(f64::from(self.burst));
        }
    }

    fn refilled_tokens(&self, bucket: Bucket, now: Instant) -> f64 {
        let elapsed_seconds = now.saturating_duration_since(bucket.updated_at).as_secs_f64();
        (bucket.tokens + elapsed_seconds * f64::from(self.per_second)).min(f64::from(self.burst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_refills_with_time_up_to_its_burst() {
        let rates = RateLimiter::new(10, 2);
        let org = OrgId::new("o");
        let start = Instant::now();
        assert_eq!(rates.take(&org, start), RateDecision::Remaining(1));
        assert_eq!(rates.take(&org, start), RateDecision::Remaining(0));
        assert_eq!(rates.take(&org, start), RateDecision::Exceeded(Duration::from_millis(100)));
        assert_eq!(rates.take(&org, start + Duration::from_millis(100)), RateDecision::Remaining(0));
        assert_eq!(rates.take(&org, start + Duration::from_secs(60)), RateDecision::Remaining(1));
    }

    #[test]
    fn organisations_have_separate_rates() {
        let rates = RateLimiter::new(1, 1);
        let now = Instant::now();
        assert_eq!(rates.take(&OrgId::new("a"), now), RateDecision::Remaining(0));
        assert_eq!(rates.take(&OrgId::new("b"), now), RateDecision::Remaining(0));
        assert!(matches!(rates.take(&OrgId::new("a"), now), RateDecision::Exceeded(_)));
    }

    #[test]
    fn returned_request_does_not_count() {
        let (rates, now) = (RateLimiter::new(1, 1), Instant::now());
        for _ in 0..3 {
            assert_eq!(rates.take(&"a", now), RateDecision::Remaining(0));
            rates.give_back(&"a");
        }
        rates.give_back(&"a");
        assert_eq!(rates.take(&"a", now), RateDecision::Remaining(0), "never beyond its burst");
    }

    #[test]
    fn zero_rate_is_unlimited() {
        let rates = RateLimiter::new(0, 0);
        assert_eq!(rates.take(&OrgId::new("a"), Instant::now()), RateDecision::Unlimited);
    }
}
