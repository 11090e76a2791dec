//! Histogram of durations in constant memory.

use std::time::Duration;

/// Logarithm to base 2 of the number of buckets in each doubling.
const SUB_BUCKET_BITS: u32 = 6;

/// Counts of durations in buckets that are a 64th wide. Storing every duration would distort the measured memory.
pub(super) struct DurationHistogram {
    buckets: Vec<u64>,
    count: u64,
    longest: Duration,
}

impl Default for DurationHistogram {
    fn default() -> Self {
        Self { buckets: vec![0; bucket(u64::MAX) + 1], count: 0, longest: Duration::ZERO }
    }
}

impl DurationHistogram {
    pub(super) fn add(&mut self, time: Duration) {
        self.buckets[bucket(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))] += 1;
        self.count += 1;
        self.longest = self.longest.max(time);
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn longest(&self) -> Duration {
        self.longest
    }

    /// Returns the given percentile; at most a 64th above the exact value.
    pub(super) fn percentile(&self, percent: u64) -> Duration {
        let target_rank = (u128::from(self.count) * u128::from(percent)).div_ceil(100);
        let mut rank = 0;
        let bucket = self.buckets.iter().position(|count| {
            rank += u128::from(*count);
            rank >= target_rank
        });
        // The end of the last bucket may lie above the longest duration.
        bucket.map_or(self.longest, |bucket| Duration::from_nanos(upper_bound(bucket)).min(self.longest))
    }
}

/// Returns the bucket of a duration. Below 64 ns each value has its own.
fn bucket(nanos: u64) -> usize {
    let shift = (u64::BITS - SUB_BUCKET_BITS - 1).saturating_sub(nanos.leading_zeros());
    (shift as usize) * (1 << SUB_BUCKET_BITS) + usize::try_from(nanos >> shift).unwrap_or_default()
}

/// Returns the largest value of a bucket.
fn upper_bound(bucket: usize) -> u64 {
    let shift = (bucket >> SUB_BUCKET_BITS).saturating_sub(1);
    let first = (bucket - (shift << SUB_BUCKET_BITS)) as u64;
    ((first + 1) << shift).wrapping_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_bounds_are_at_most_a_64th_apart() {
        let mut last = 0;
        let numbers = (0..20_000).chain((0..64).flat_map(|bit| [(1 << bit) - 1, 1 << bit, (1 << bit) + 1]));
        let mut numbers: Vec<u64> = numbers.chain([u64::MAX]).collect();
        numbers.sort_unstable();
        for nanos in numbers {
            let (bucket, end) = (bucket(nanos), upper_bound(bucket(nanos)));
            assert!(bucket >= last && nanos <= end && end - nanos <= nanos / 64, "{nanos}: {bucket}, {end}");
            last = bucket;
        }
    }

    #[test]
    fn percentiles_are_close_and_the_maximum_is_exact() {
        let mut times = DurationHistogram::default();
        (1..=1_000).rev().for_each(|micros| times.add(Duration::from_micros(micros)));
        assert_eq!((times.count(), times.longest()), (1_000, Duration::from_millis(1)));
        for (percent, least) in [(1, 10), (50, 500), (99, 990), (100, 1_000)] {
            let (least, told) = (Duration::from_micros(least), times.percentile(percent));
            assert!(told >= least && told <= least + least / 64, "{percent}: {told:?}");
        }
        let mut one = DurationHistogram::default();
        one.add(Duration::from_nanos(1_000_003));
        assert_eq!(one.percentile(50), Duration::from_nanos(1_000_003));
    }
}
