//! Processing time and delay of each organisation's items, measured during evaluation. Ingest refuses items
//! by it while processing lags. The roles of a process share the measurements; other processes read them from
//! the table of members.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tidegate_schemas::ids::OrgId;

/// Half-life of measured processing time.
const HALF_LIFE: Duration = Duration::from_secs(30);

/// Time without items after which an organisation is dropped.
const FORGET_AFTER: Duration = Duration::from_secs(300);

/// Greatest number of organisations in a row, those with the most processing time first.
const MAX_LISTED_ORGS: usize = 64;

/// Measurements of this process.
#[derive(Debug, Default)]
pub struct ProcessingLoad(Mutex<HashMap<OrgId, Measurement>>);

#[derive(Clone, Copy, Debug)]
struct Measurement {
    seconds: f64,
    delay: Duration,
    measured_at: Instant,
}

/// Measurements of one process or several.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LoadReport {
    /// Milliseconds since the last evaluation of an item; `None` before the first one.
    pub idle_ms: Option<u64>,
    pub orgs: Vec<OrgLoad>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OrgLoad {
    pub org: OrgId,
    /// Recent processing time of the organisation's items in seconds, decayed by the half-life.
    pub seconds: f64,
    /// Milliseconds from the acceptance of its last evaluated item to the end of the evaluation.
    pub delay_ms: u64,
}

impl Measurement {
    fn seconds_at(&self, now: Instant) -> f64 {
        let elapsed = now.saturating_duration_since(self.measured_at);
        self.seconds * (-elapsed.as_secs_f64() / HALF_LIFE.as_secs_f64()).exp2()
    }
}

impl ProcessingLoad {
    /// Adds computing time of a thread for the organisation.
    pub fn add_time(&self, org: &OrgId, took: Duration, now: Instant) {
        self.update(org, now, |measurement| measurement.seconds += took.as_secs_f64());
    }

    /// Sets the time from the acceptance of an item of the organisation to its evaluation.
    pub fn set_delay(&self, org: &OrgId, delay: Duration, now: Instant) {
        self.update(org, now, |measurement| measurement.delay = delay);
    }

    fn update(&self, org: &OrgId, now: Instant, change: impl FnOnce(&mut Measurement)) {
        let mut orgs = self.0.lock();
        if let Some(measurement) = orgs.get_mut(org) {
            *measurement =
                Measurement { seconds: measurement.seconds_at(now), measured_at: now, ..*measurement };
            return change(measurement);
        }
        // Dropped only when a new organisation appears: the map does not grow otherwise.
        orgs.retain(|_, measurement| now.saturating_duration_since(measurement.measured_at) < FORGET_AFTER);
        let mut measurement = Measurement { seconds: 0.0, delay: Duration::ZERO, measured_at: now };
        change(&mut measurement);
        orgs.insert(org.clone(), measurement);
    }

    pub fn report(&self, now: Instant) -> LoadReport {
        let orgs = self.0.lock();
        let last_measured_at = orgs.values().map(|measurement| measurement.measured_at).max();
        let load = |(org, measurement): (&OrgId, &Measurement)| OrgLoad {
            org: org.clone(),
            seconds: measurement.seconds_at(now),
            delay_ms: to_millis(measurement.delay),
        };
        LoadReport {
            idle_ms: last_measured_at.map(|last| to_millis(now.saturating_duration_since(last))),
            orgs: orgs.iter().map(load).collect(),
        }
    }
}

fn to_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl LoadReport {
    /// Merges the report of another process into this one.
    #[must_use]
    pub fn merge(mut self, other: Self) -> Self {
        self.idle_ms = self.idle_ms.into_iter().chain(other.idle_ms).min();
        // Delays do not add up over processes: the longest one counts.
        for load in other.orgs {
            if let Some(own) = self.orgs.iter_mut().find(|own| own.org == load.org) {
                own.seconds += load.seconds;
                own.delay_ms = own.delay_ms.max(load.delay_ms);
            } else {
                self.orgs.push(load);
            }
        }
        self
    }

    /// Returns the JSON of the `load` column; `None` before the first evaluation.
    pub(crate) fn into_json(mut self) -> Option<String> {
        self.idle_ms?;
        // A row must stay small with any number of organisations; those with little load matter least.
        self.orgs.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        self.orgs.truncate(MAX_LISTED_ORGS);
        serde_json::to_string(&self).ok()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn processing_time_decays_and_idle_orgs_are_dropped() {
        let (load, now) = (ProcessingLoad::default(), Instant::now());
        let [one, other] = ["one", "other"].map(OrgId::new);
        load.add_time(&one, Duration::from_secs(8), now);
        let later = now + HALF_LIFE * 2;
        load.add_time(&one, Duration::from_secs(1), later);
        load.set_delay(&one, Duration::from_secs(7), later);
        let report = load.report(later + Duration::from_secs(3));
        assert_eq!((report.idle_ms, report.orgs[0].delay_ms), (Some(3_000), 7_000));
        assert!((2.5..3.0).contains(&report.orgs[0].seconds), "{report:?}");
        load.add_time(&other, Duration::ZERO, later + FORGET_AFTER);
        let orgs: Vec<_> = load.report(later + FORGET_AFTER).orgs.into_iter().map(|load| load.org).collect();
        assert_eq!(orgs, [other]);
    }

    #[test]
    fn reports_are_merged_and_rows_list_the_largest_orgs() {
        let of = |org: &str, seconds, delay_ms| OrgLoad { org: org.into(), seconds, delay_ms };
        let one = LoadReport { idle_ms: Some(900), orgs: vec![of("a", 1.0, 10), of("b", 2.0, 20)] };
        let other = LoadReport { idle_ms: Some(50), orgs: vec![of("b", 3.0, 5)] };
        let none = LoadReport::default();
        let joined = one.merge(none.clone()).merge(other);
        assert_eq!(joined, LoadReport { idle_ms: Some(50), orgs: vec![of("a", 1.0, 10), of("b", 5.0, 20)] });
        assert_eq!(none.into_json(), None);
        let many = (0..1_000).map(|nth| of(&format!("org-{nth}"), f64::from(nth), 0)).collect();
        let row = LoadReport { idle_ms: Some(1), orgs: many }.into_json().unwrap();
        let read: LoadReport = serde_json::from_str(&row).unwrap();
        assert_eq!((read.orgs.len(), read.orgs[0].org.as_str()), (MAX_LISTED_ORGS, "org-999"));
    }
}
