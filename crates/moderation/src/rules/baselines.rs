//! Expected match rates of rule versions, measured by backtests and used for alarms.

use async_recursion::async_recursion as boxed;
use serde::Deserialize;
use tidegate_schemas::ids::{Millis, OrgId, RuleId};
use tidegate_store::{Batch, Store, WriteTime, tables::items::rules::RuleBaseline};

use crate::Error;

/// Backtest result of one rule version, for the sample of items.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RuleMeasurement {
    pub rule: RuleId,
    pub version: String,
    pub hits: u64,
    pub busiest_hour: u64,
}

/// Backtest behind the measurements.
#[derive(Clone, Debug)]
pub struct Measurement {
    pub since: Millis,
    pub until: Millis,
    pub items: u64,
    /// Sample size in percent of all items, above 0 and at most 100.
    pub percent: f64,
    pub by: String,
}

/// Stores the baselines. Earlier baselines of the same versions are replaced.
#[boxed]
pub async fn store_baselines(
    store: &Store,
    org: &OrgId,
    measurement: &Measurement,
    measurements: &[RuleMeasurement],
    now: Millis,
) -> Result<(), Error> {
    const ROWS_PER_BATCH: usize = 500;
    for chunk in measurements.chunks(ROWS_PER_BATCH) {
        let mut batch = Batch::new();
        for measured in chunk {
            let row = RuleBaseline {
                org: org.clone(),
                rule: measured.rule.clone(),
                rule_version: measured.version.clone(),
                busiest_hour: extrapolate(measured.busiest_hour, measurement.percent),
                hits: saturating_i64(measured.hits),
                items: saturating_i64(measurement.items),
                since: measurement.since,
                until: measurement.until,
                recorded_at: now,
                recorded_by: measurement.by.clone(),
            };
            batch.put_owned(WriteTime::from_append(now, 0), row);
        }
        // Durable before the answer, because alarms depend on these rows.
        batch.require_sync();
        store.write(batch).await?;
    }
    Ok(())
}

/// Returns the matches of a rule version in its busiest hour, if measured.
#[boxed]
pub async fn busiest_hour(
    store: &Store,
    org: &OrgId,
    rule: &RuleId,
    version: &str,
) -> Result<Option<i64>, Error> {
    let key = (org.clone(), rule.clone(), version.to_owned());
    Ok(store.get::<RuleBaseline>(&key).await?.map(|row| row.busiest_hour))
}

/// Estimates the number for all items from a sample: three deviations above it, so that chance raises no alarm.
#[expect(clippy::cast_possible_truncation, reason = "an estimate, which saturates")]
fn extrapolate(count: u64, percent: f64) -> i64 {
    if percent >= 100.0 {
        return saturating_i64(count);
    }
    let count = count as f64;
    ((count + 3.0 * count.max(1.0).sqrt()) * 100.0 / percent).ceil() as i64
}

fn saturating_i64(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample_is_scaled_up_with_three_deviations() {
        assert_eq!(extrapolate(9, 100.0), 9);
        assert_eq!(extrapolate(9, 10.0), 180, "nine and three deviations of three each, ten times");
        assert_eq!(extrapolate(0, 1.0), 300, "none in a sample may be a few hundred of all");
        assert_eq!(extrapolate(u64::MAX, 0.001), i64::MAX);
    }
}
