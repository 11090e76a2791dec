//! Says how many matches an hour a version of a rule may have before something must be wrong with it.
//!
//! It counts no matches (`allowances`); what was measured stands in rows (`tidegate-moderation`).

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tidegate_moderation::{
    self as moderation,
    effects::Expected,
    rules::{baselines, limits::RuleVersion},
};
use tidegate_store::Store;
use tokio::time::Instant;

/// Versions that are remembered. What is forgotten is read again.
const REMEMBERED: usize = 10_000;

/// Time for which a backtest that was recorded meanwhile may go unnoticed.
const HOLDS_FOR: Duration = Duration::from_secs(10);

/// Factors of an alarm where the document gives no number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measure {
    /// Multiple of the busiest hour; 0: no alarm.
    pub(crate) times: u32,
    /// But not below so many matches.
    pub(crate) least: u32,
}

impl Measure {
    fn most(self, busiest_hour: i64) -> Option<i64> {
        (self.times > 0).then(|| busiest_hour.saturating_mul(self.times.into()).max(self.least.into()))
    }
}

/// Busiest hour of each rule version, with the instant of the look-up.
type CachedThresholds = HashMap<RuleVersion, (Option<i64>, Instant)>;

#[derive(Clone)]
pub(crate) struct Expectations {
    store: Store,
    measure: Measure,
    known: Arc<Mutex<CachedThresholds>>,
}

impl Expectations {
    pub(crate) fn new(store: Store, measure: Measure) -> Self {
        Self { store, measure, known: Arc::default() }
    }

    /// `None`: nobody said anything.
    pub(crate) async fn most(
        &self,
        rule_version: &RuleVersion,
        expected: Expected,
    ) -> Result<Option<i64>, moderation::Error> {
        match expected {
            Expected::Said(most) => Ok(Some(most)),
            Expected::Measured if self.measure.times == 0 => Ok(None),
            Expected::Measured => {
                Ok(self.busiest_hour(rule_version).await?.and_then(|hour| self.measure.most(hour)))
            }
        }
    }

    async fn busiest_hour(&self, rule_version: &RuleVersion) -> Result<Option<i64>, moderation::Error> {
        if let Some((hour, asked)) = self.known.lock().get(rule_version)
            && asked.elapsed() < HOLDS_FOR
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
        let mut known = self.known.lock();
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(rule_version.clone(), (hour, Instant::now()));
        Ok(hour)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quiet_rule_may_match_a_few_times_and_a_busy_one_several_times_as_often() {
        let measure = Measure { times: 5, least: 50 };
        assert_eq!([0, 10, 1_000].map(|hour| measure.most(hour)), [Some(50), Some(50), Some(5_000)]);
        assert_eq!(measure.most(i64::MAX), Some(i64::MAX));
        assert_eq!(Measure { times: 0, least: 50 }.most(1_000), None);
    }
}
