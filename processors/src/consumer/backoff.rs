//! Computes pauses between retries: doubling up to a bound, with jitter that spreads the retries of many waiters.

use std::{
    hash::{BuildHasher as _, Hasher as _, RandomState},
    time::Duration,
};

use crate::settings::Settings;

#[derive(Debug)]
pub(crate) struct Backoff {
    next_step: Duration,
    max_step: Duration,
}

impl Backoff {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            next_step: Duration::from_millis(settings.retry_min_ms),
            max_step: Duration::from_millis(settings.retry_max_ms),
        }
    }

    /// Returns a pause between half the current step and the full step, and doubles the step.
    pub(crate) fn next(&mut self) -> Duration {
        let step = self.next_step;
        self.next_step = (step * 2).min(self.max_step);
        let half = step / 2;
        half + half.mul_f64(random_fraction())
    }
}

/// Returns a random number between 0 and 1. Every `RandomState` has random keys, so no generator is needed.
pub(crate) fn random_fraction() -> f64 {
    let bits = RandomState::new().build_hasher().finish() >> 32;
    f64::from(u32::try_from(bits).unwrap_or_default()) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound_with_jitter() {
        let settings = Settings { retry_min_ms: 100, retry_max_ms: 400, ..Settings::default() };
        let mut backoff = Backoff::new(&settings);
        for step in [100, 200, 400, 400] {
            let pause = backoff.next();
            assert!(pause >= Duration::from_millis(step / 2) && pause <= Duration::from_millis(step));
        }
        let firsts: Vec<_> = (0..8).map(|_| Backoff::new(&settings).next()).collect();
        assert!(firsts.iter().any(|pause| *pause != firsts[0]));
    }
}
