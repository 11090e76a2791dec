//! Backoff between attempts: full jitter over a doubling step, or the `retry-after` of the host.

use std::{
    hash::{BuildHasher as _, Hasher as _, RandomState},
    time::Duration,
};

/// Number of attempts and the pauses between them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retries {
    pub(crate) attempts: u32,
    pub(crate) step: Duration,
    pub(crate) longest: Duration,
}

impl Retries {
    /// Returns the pause after failed attempt `nth`, counted from 1. `draw` is a random number from 0 to 1. `None` if
    /// it was the last attempt, or if the host asks for a pause beyond `longest`.
    pub(crate) fn pause(&self, nth: u32, retry_after: Option<Duration>, draw: f64) -> Option<Duration> {
        if nth >= self.attempts {
            return None;
        }
        // The shift is bounded, because a larger one would overflow.
        let step = self.step.saturating_mul(1 << (nth - 1).min(16)).min(self.longest);
        let jitter = step.mul_f64(draw.clamp(0.0, 1.0));
        match retry_after {
            // Jitter, because all fetches that the host turned away would otherwise return at the same moment.
            Some(pause) => (pause <= self.longest).then(|| pause + jitter),
            None => Some(jitter),
        }
    }
}

/// Returns a random number from 0 to 1, because every `RandomState` has its own random keys.
pub(crate) fn random_fraction() -> f64 {
    let random_bits = RandomState::new().build_hasher().finish() >> 32;
    f64::from(u32::try_from(random_bits).unwrap_or_default()) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETRIES: Retries =
        Retries { attempts: 3, step: Duration::from_millis(500), longest: Duration::from_secs(30) };

    #[test]
    fn pause_is_drawn_from_a_doubling_step() {
        let millis = |nth, draw| RETRIES.pause(nth, None, draw).map(|pause| pause.as_millis());
        assert_eq!((millis(1, 0.0), millis(1, 0.5), millis(1, 1.0)), (Some(0), Some(250), Some(500)));
        assert_eq!((millis(2, 1.0), millis(3, 1.0)), (Some(1_000), None));
    }

    #[test]
    fn retry_after_is_honoured_or_ends_the_attempts() {
        let pause = |seconds| RETRIES.pause(1, Some(Duration::from_secs(seconds)), 0.0);
        assert_eq!(pause(7), Some(Duration::from_secs(7)));
        assert_eq!(pause(31), None);
    }
}
