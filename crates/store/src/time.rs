//! Write times, which decide between two puts of one row, and the clock that engines use for expiry.

use std::sync::Arc;

use tidegate_schemas::ids::Millis;

/// Write time of a row, in microseconds since 1970. It derives from the log, not from a host's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriteTime(pub i64);

impl WriteTime {
    /// Returns the write time for a stage in the processing of a record with this append time. Later stages win.
    pub fn from_append(append: Millis, stage: u16) -> Self {
        // Append times are whole milliseconds, so stages up to 999 stay before the next record.
        Self(append.0.saturating_mul(1_000).saturating_add(i64::from(stage.min(999))))
    }

    /// Returns the write time for a row with a single writer: `now`, but always after `last`.
    pub fn after(last: Option<Self>, now: Millis) -> Self {
        let now_micros = now.0.saturating_mul(1_000);
        Self(last.map_or(now_micros, |last| now_micros.max(last.0.saturating_add(1))))
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
