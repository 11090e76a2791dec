//! Histogram of durations in constant memory.
//!
//! It measures nothing.

use std::time::Duration;

/// Classes that a doubling is divided into.
const FINE: u32 = 6;

/// Counts of times, in classes that are a 64th wide. Whoever kept each time would measure the memory of that.
pub(super) struct Times {
    classes: Vec<u64>,
    count: u64,
    longest: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self { classes: vec![0; class(u64::MAX) + 1], count: 0, longest: Duration::ZERO }
    }
}

impl Times {
    pub(super) fn add(&mut self, time: Duration) {
        self.classes[class(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))] += 1;
        self.count += 1;
        self.longest = self.longest.max(time);
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn longest(&self) -> Duration {
        self.longest
    }

    /// A time that so many of a hundred did not exceed; at most a 64th above the least such one.
    pub(super) fn within(&self, percent: u64) -> Duration {
        let wanted = (u128::from(self.count) * u128::from(percent)).div_ceil(100);
        let mut seen = 0;
        let class = self.classes.iter().position(|count| {
            seen += u128::from(*count);
            seen >= wanted
        });
        class.map_or(self.longest, |class| Duration::from_nanos(end(class)).min(self.longest))
    }
}

/// Below 64 each number is a class of its own.
fn class(nanos: u64) -> usize {
    let shift = (u64::BITS - FINE - 1).saturating_sub(nanos.leading_zeros());
    (shift as usize) * (1 << FINE) + usize::try_from(nanos >> shift).unwrap_or_default()
}

/// The largest number of a class.
fn end(class: usize) -> u64 {
    let shift = (class >> FINE).saturating_sub(1);
    let first = (class - (shift << FINE)) as u64;
    ((first + 1) << shift).wrapping_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_in_a_class_that_ends_at_most_a_64th_above_it() {
        let mut last = 0;
        let numbers = (0..20_000).chain((0..64).flat_map(|bit| [(1 << bit) - 1, 1 << bit, (1 << bit) + 1]));
        let mut numbers: Vec<u64> = numbers.chain([u64::MAX]).collect();
        numbers.sort_unstable();
        for nanos in numbers {
            let (class, end) = (class(nanos), end(class(nanos)));
            assert!(class >= last && nanos <= end && end - nanos <= nanos / 64, "{nanos}: {class}, {end}");
            last = class;
        }
    }

    #[test]
    fn so_many_of_a_hundred_are_no_longer_and_the_longest_is_told_exactly() {
        let mut times = Times::default();
        (1..=1_000).rev().for_each(|micros| times.add(Duration::from_micros(micros)));
        assert_eq!((times.count(), times.longest()), (1_000, Duration::from_millis(1)));
        for (percent, least) in [(1, 10), (50, 500), (99, 990), (100, 1_000)] {
            let (least, told) = (Duration::from_micros(least), times.within(percent));
            assert!(told >= least && told <= least + least / 64, "{percent}: {told:?}");
        }
        let mut one = Times::default();
        one.add(Duration::from_nanos(1_000_003));
        assert_eq!(one.within(50), Duration::from_nanos(1_000_003));
    }
}
