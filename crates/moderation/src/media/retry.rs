//! How long to wait before the next attempt: full jitter over a doubling step, or what the host asked for.
//!
//! It does not wait, and draws nothing: the draw is handed in.

use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub(super) struct Retries {
    pub(super) attempts: u32,
    pub(super) step: Duration,
    pub(super) longest: Duration,
}

impl Retries {
    /// The pause after the failed attempt `nth`, from 1; `draw` is from 0 to 1. `None`: that was the last one, or the
    /// host wants to be left alone for longer than anybody waits here.
    pub(super) fn pause(&self, nth: u32, wish: Option<Duration>, draw: f64) -> Option<Duration> {
        if nth >= self.attempts {
            return None;
        }
        let step = self.step.saturating_mul(1 << (nth - 1).min(16)).min(self.longest);
        let jitter = step.mul_f64(draw.clamp(0.0, 1.0));
        match wish {
            // All who were sent away would come back at the same moment.
            Some(wish) => (wish <= self.longest).then(|| wish + jitter),
            None => Some(jitter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETRIES: Retries =
        Retries { attempts: 3, step: Duration::from_millis(500), longest: Duration::from_secs(30) };

    #[test]
    fn the_pause_is_anything_up_to_a_doubling_step() {
        let millis = |nth, draw| RETRIES.pause(nth, None, draw).map(|pause| pause.as_millis());
        assert_eq!((millis(1, 0.0), millis(1, 0.5), millis(1, 1.0)), (Some(0), Some(250), Some(500)));
        assert_eq!((millis(2, 1.0), millis(3, 1.0)), (Some(1_000), None));
    }

    #[test]
    fn a_wish_is_granted_or_the_attempts_end() {
        let wish = |seconds| RETRIES.pause(1, Some(Duration::from_secs(seconds)), 0.0);
        assert_eq!(wish(7), Some(Duration::from_secs(7)));
        assert_eq!(wish(31), None);
    }
}
