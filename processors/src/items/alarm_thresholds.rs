//! Computes the number of matches per hour at which a rule version raises an alarm.
//!
//! `rule_limits` counts the matches; `tidegate-moderation` stores the results of backtests.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tidegate_moderation::{
    self as moderation,
    effects::AlarmThreshold,
    rules::{baselines, limits::RuleVersion},
};
use tidegate_store::Store;
use tokio::time::Instant;

/// Number of cached rule versions. Removed entries are read again.
const CACHE_CAPACITY: usize = 10_000;

/// Time for which a look-up is cached. A newly recorded backtest is noticed after this time.
const CACHE_TTL: Duration = Duration::from_secs(10);

/// Parameters of the alarm threshold of rules without `alarm_per_hour`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThresholdFactors {
    /// Multiple of the busiest hour of the backtest; 0: no alarm.
    pub(crate) factor: u32,
    /// Smallest threshold.
    pub(crate) min_matches: u32,
}

impl ThresholdFactors {
    fn max_matches(self, busiest_hour: i64) -> Option<i64> {
        (self.factor > 0)
            .then(|| busiest_hour.saturating_mul(self.factor.into()).max(self.min_matches.into()))
    }
}

/// Busiest hour of each rule version, with the instant of the look-up.
type CachedThresholds = HashMap<RuleVersion, (Option<i64>, Instant)>;

#[derive(Clone)]
pub(crate) struct AlarmThresholds {
    store: Store,
    factors: ThresholdFactors,
    busiest_hours: Arc<Mutex<CachedThresholds>>,
}

impl AlarmThresholds {
    pub(crate) fn new(store: Store, factors: ThresholdFactors) -> Self {
        Self { store, factors, busiest_hours: Arc::default() }
    }

    /// Returns the threshold of the rule version. `None`: no number is configured, and no backtest is recorded or used.
    pub(crate) async fn max_matches(
        &self,
        rule_version: &RuleVersion,
        expected: AlarmThreshold,
    ) -> Result<Option<i64>, moderation::Error> {
        match expected {
            AlarmThreshold::Configured(max_matches) => Ok(Some(max_matches)),
            AlarmThreshold::Measured if self.factors.factor == 0 => Ok(None),
            AlarmThreshold::Measured => {
                Ok(self.busiest_hour(rule_version).await?.and_then(|hour| self.factors.max_matches(hour)))
            }
        }
    }

    async fn busiest_hour(&self, rule_version: &RuleVersion) -> Result<Option<i64>, moderation::Error> {
        if let Some((hour, read_at)) = self.busiest_hours.lock().get(rule_version)
            && read_at.elapsed() < CACHE_TTL
        {
            return Ok(*hour);
        }
        let hour = baselines::busiest_hour(
            &self.store,
            &rule_version.org,
            &rule_version.rule,
            &rule_version.version,
        )
        .await?;
        let mut cache = self.busiest_hours.lock();
        if cache.len() >= CACHE_CAPACITY {
            cache.clear();
        }
        cache.insert(rule_version.clone(), (hour, Instant::now()));
        Ok(hour)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threshold_has_a_floor_and_scales_with_the_busiest_hour() {
        let factors = ThresholdFactors { factor: 5, min_matches: 50 };
        assert_eq!([0, 10, 1_000].map(|hour| factors.max_matches(hour)), [Some(50), Some(50), Some(5_000)]);
        assert_eq!(factors.max_matches(i64::MAX), Some(i64::MAX));
        assert_eq!(ThresholdFactors { factor: 0, min_matches: 50 }.max_matches(1_000), None);
    }
}
