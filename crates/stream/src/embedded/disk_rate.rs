//! Rate at which the free disk space falls, over the last seconds.
//!
//! Pure: the caller passes the time and the measurement.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// Period over which the rate is measured.
const WINDOW: Duration = Duration::from_secs(5);
/// Shortest period for a rate. Over a shorter one, a single flush would look like a high rate.
const MIN_PERIOD: Duration = Duration::from_millis(200);

#[derive(Debug, Default)]
pub(super) struct DiskRate {
    samples: VecDeque<(Instant, u64)>,
}

impl DiskRate {
    pub(super) fn add(&mut self, now: Instant, free: u64) {
        while self.samples.front().is_some_and(|(at, _)| now.duration_since(*at) > WINDOW) {
            self.samples.pop_front();
        }
        self.samples.push_back((now, free));
    }

    /// Returns the fastest fall from any of the samples to the last one, in bytes per second.
    pub(super) fn bytes_per_second(&self) -> u64 {
        let Some((now, free)) = self.samples.back() else { return 0 };
        let rates = self.samples.iter().filter_map(|(at, earlier_free)| {
            let duration = now.duration_since(*at);
            let millis = u64::try_from(duration.as_millis()).ok().filter(|_| duration >= MIN_PERIOD)?;
            // Freed space counts as a rate of zero.
            Some(earlier_free.saturating_sub(*free).saturating_mul(1_000) / millis)
        });
        rates.max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_is_the_fastest_fall_of_the_last_seconds() {
        let (began, mut rate) = (Instant::now(), DiskRate::default());
        assert_eq!(rate.bytes_per_second(), 0);
        for (millis, free) in [(0, 1_000), (2_000, 1_000), (2_500, 900), (3_000, 400)] {
            rate.add(began + Duration::from_millis(millis), free);
        }
        assert_eq!(rate.bytes_per_second(), 1_000, "500 in half a second");
        rate.add(began + Duration::from_millis(3_100), 400);
        assert_eq!(rate.bytes_per_second(), 833, "500 in 0.6 s");
        rate.add(began + Duration::from_millis(9_000), 500);
        assert_eq!(rate.bytes_per_second(), 0, "it is over, and something was freed");
    }
}
