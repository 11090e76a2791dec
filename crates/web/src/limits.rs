//! Admission: how many bytes of bodies are under way, and how many requests an organisation makes.
//!
//! Too many bytes is our state and means 503; too many requests is the caller's and means 429. Both are pure of
//! clocks: instants are passed in.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use metrics::Gauge;
use parking_lot::Mutex;
use tidegate_schemas::ids::OrgId;

/// The budget of bytes of bodies under way.
#[derive(Clone, Debug)]
pub struct InFlight {
    used: Arc<AtomicUsize>,
    most: usize,
    shown: Gauge,
}

/// Bytes taken from the budget; given back when dropped.
#[derive(Debug)]
pub struct Spent {
    used: Arc<AtomicUsize>,
    bytes: usize,
    shown: Gauge,
}

impl InFlight {
    pub fn new(most: usize) -> Self {
        Self::shown_by(most, Gauge::noop())
    }

    /// The gauge goes up with what is taken and down with what is given back. It is never set: of two values that
    /// were read one after the other, the older one could be set last, and stay.
    pub fn shown_by(most: usize, gauge: Gauge) -> Self {
        Self { used: Arc::new(AtomicUsize::new(0)), most, shown: gauge }
    }

    /// `None`: the budget is spent.
    pub fn take(&self, bytes: usize) -> Option<Spent> {
        let took = self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, |used| {
            used.checked_add(bytes).filter(|sum| *sum <= self.most)
        });
        took.ok()?;
        self.shown.increment(float(bytes));
        Some(Spent { used: Arc::clone(&self.used), bytes, shown: self.shown.clone() })
    }

    pub fn bytes(&self) -> usize {
        self.used.load(Ordering::Acquire)
    }
}

impl Drop for Spent {
    fn drop(&mut self) {
        self.used.fetch_sub(self.bytes, Ordering::AcqRel);
        self.shown.decrement(float(self.bytes));
    }
}

#[expect(clippy::cast_precision_loss, reason = "no body has so many bytes that a float rounds them")]
fn float(bytes: usize) -> f64 {
    bytes as f64
}

/// Token buckets, one an organisation.
#[derive(Debug)]
pub struct Rates {
    per_second: u32,
    burst: u32,
    buckets: Mutex<HashMap<OrgId, Bucket>>,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    tokens: f64,
    at: Instant,
}

/// Remaining rate of an organisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    Unlimited,
    /// Taken; so many more may follow at once.
    Remaining(u32),
    /// Refused; one more may follow after this time.
    Exceeded(Duration),
}

/// Full buckets are forgotten once there are so many: an organisation at rest costs nothing.
const SWEEP_AT: usize = 10_000;

impl Rates {
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

    pub fn take(&self, org: &OrgId, now: Instant) -> Rate {
        if self.per_second == 0 {
            return Rate::Unlimited;
        }
        let mut buckets = self.buckets.lock();
        if buckets.len() >= SWEEP_AT {
            buckets.retain(|_, bucket| self.filled(*bucket, now) < f64::from(self.burst));
        }
        let full = Bucket { tokens: f64::from(self.burst), at: now };
        let bucket = buckets.entry(org.clone()).or_insert(full);
        let tokens = self.filled(*bucket, now);
        if tokens < 1.0 {
            return Rate::Exceeded(Duration::from_secs_f64((1.0 - tokens) / f64::from(self.per_second)));
        }
        *bucket = Bucket { tokens: tokens - 1.0, at: now };
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and burst")]
        Rate::Remaining((tokens - 1.0) as u32)
    }

    fn filled(&self, bucket: Bucket, now: Instant) -> f64 {
        let since = now.saturating_duration_since(bucket.at).as_secs_f64();
        (bucket.tokens + since * f64::from(self.per_second)).min(f64::from(self.burst))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_byte_budget_is_given_back() {
        let budget = InFlight::new(10);
        let first = budget.take(6).unwrap();
        assert!(budget.take(5).is_none());
        let second = budget.take(4).unwrap();
        assert_eq!(budget.bytes(), 10);
        drop(first);
        assert_eq!(budget.bytes(), 4);
        drop(second);
        assert!(budget.take(10).is_some());
        assert!(budget.take(usize::MAX).is_none());
    }

    #[derive(Default)]
    struct Shown(Mutex<f64>);

    impl metrics::GaugeFn for Shown {
        fn increment(&self, value: f64) {
            *self.0.lock() += value;
        }

        fn decrement(&self, value: f64) {
            *self.0.lock() -= value;
        }

        fn set(&self, value: f64) {
            *self.0.lock() = value;
        }
    }

    #[test]
    #[allow(clippy::float_cmp, reason = "whole numbers")]
    fn the_gauge_of_a_budget_shows_what_is_held_and_nothing_when_all_is_given_back() {
        let shown = Arc::new(Shown::default());
        let budget = InFlight::shown_by(10, Gauge::from_arc(Arc::clone(&shown)));
        let first = budget.take(6).unwrap();
        assert!(budget.take(5).is_none());
        let second = budget.take(4).unwrap();
        assert_eq!(*shown.0.lock(), 10.0);
        drop(first);
        assert_eq!(*shown.0.lock(), 4.0);
        drop(second);
        assert_eq!(*shown.0.lock(), 0.0);
    }

    #[test]
    fn a_bucket_refills_with_time_and_never_beyond_its_burst() {
        let rates = Rates::new(10, 2);
        let org = OrgId::new("o");
        let start = Instant::now();
        assert_eq!(rates.take(&org, start), Rate::Remaining(1));
        assert_eq!(rates.take(&org, start), Rate::Remaining(0));
        assert_eq!(rates.take(&org, start), Rate::Exceeded(Duration::from_millis(100)));
        assert_eq!(rates.take(&org, start + Duration::from_millis(100)), Rate::Remaining(0));
        assert_eq!(rates.take(&org, start + Duration::from_secs(60)), Rate::Remaining(1));
    }

    #[test]
    fn one_organisation_does_not_spend_the_rate_of_another() {
        let rates = Rates::new(1, 1);
        let now = Instant::now();
        assert_eq!(rates.take(&OrgId::new("a"), now), Rate::Remaining(0));
        assert_eq!(rates.take(&OrgId::new("b"), now), Rate::Remaining(0));
        assert!(matches!(rates.take(&OrgId::new("a"), now), Rate::Exceeded(_)));
    }

    #[test]
    fn without_a_rate_nothing_is_counted() {
        let rates = Rates::new(0, 0);
        assert_eq!(rates.take(&OrgId::new("a"), Instant::now()), Rate::Unlimited);
    }
}
