//! Write times: what decides between two puts of one row.
//!
//! It does not read a clock; the engines take one, so that expiry can be tested without waiting.

use std::sync::Arc;

use tidegate_schemas::ids::Millis;

/// The order of the writes of one row, in microseconds since 1970. It comes from the log, not from a host's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriteTime(pub i64);

impl WriteTime {
    /// The append time of the causing record, and which of the stages of its processing writes.
    pub fn of(append: Millis, stage: u16) -> Self {
        Self(append.0.saturating_mul(1_000).saturating_add(i64::from(stage.min(999))))
    }

    /// Returns the write time of a single owner that writes on its own behalf: now, but always after `last`.
    pub fn after(last: Option<Self>, now: Millis) -> Self {
        let now = now.0.saturating_mul(1_000);
        Self(last.map_or(now, |last| now.max(last.0.saturating_add(1))))
    }

    pub fn millis(self) -> Millis {
        Millis(self.0.div_euclid(1_000))
    }
}

/// Source of the present time.
pub type Clock = Arc<dyn Fn() -> Millis + Send + Sync>;

pub fn system_clock() -> Clock {
    Arc::new(Millis::now)
}
