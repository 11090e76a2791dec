//! Processing time and delay of each organisation's items, measured where items are evaluated. Ingest refuses items by it
//! while processing is behind; the roles of one process share it, and other processes read it from the rows of `members`.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tidegate_schemas::ids::OrgId;

/// Time after which half of a measured processing time counts.
const HALF_LIFE: Duration = Duration::from_secs(30);

/// Time after which an organisation without items is forgotten.
const FORGET_AFTER: Duration = Duration::from_secs(300);

/// Organisations that a row lists, those with the most processing time first.
const LISTED_ORGS: usize = 64;

/// Measurements of this process.
#[derive(Debug, Default)]
pub struct ProcessingLoad(Mutex<HashMap<OrgId, Measurement>>);

#[derive(Clone, Copy, Debug)]
struct Measurement {
    seconds: f64,
    delay: Duration,
    at: Instant,
}

/// Measurements of one process or several.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LoadReport {
    /// Milliseconds since an item was evaluated; none: no item was.
    pub idle_ms: Option<u64>,
    pub orgs: Vec<OrgLoad>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OrgLoad {
    pub org: OrgId,
    /// Processing time of the organisation's items of late, in seconds.
    pub seconds: f64,
    /// Milliseconds from the acceptance of its last evaluated item to the end of the evaluation.
    pub delay_ms: u64,
}

impl Measurement {
    fn seconds_at(&self, now: Instant) -> f64 {
        let passed = now.saturating_duration_since(self.at);
        self.seconds * (-passed.as_secs_f64() / HALF_LIFE.as_secs_f64()).exp2()
    }
}

impl ProcessingLoad {
    /// Adds time that a thread computed for the organisation.
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
            *measurement = Measurement { seconds: measurement.seconds_at(now), at: now, ..*measurement };
            return change(measurement);
        }
        orgs.retain(|_, measurement| now.saturating_duration_since(measurement.at) < FORGET_AFTER);
        let mut measurement = Measurement { seconds: 0.0, delay: Duration::ZERO, at: now };
        change(&mut measurement);
        orgs.insert(org.clone(), measurement);
    }

    pub fn report(&self, now: Instant) -> LoadReport {
        let orgs = self.0.lock();
        let last = orgs.values().map(|measurement| measurement.at).max();
        let load = |(org, measurement): (&OrgId, &Measurement)| OrgLoad {
            org: org.clone(),
            seconds: measurement.seconds_at(now),
            delay_ms: millis(measurement.delay),
        };
        LoadReport {
            idle_ms: last.map(|last| millis(now.saturating_duration_since(last))),
            orgs: orgs.iter().map(load).collect(),
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl LoadReport {
    /// Adds the measurements of another process.
    #[must_use]
    pub fn joined(mut self, other: Self) -> Self {
        self.idle_ms = self.idle_ms.into_iter().chain(other.idle_ms).min();
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
        self.orgs.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        self.orgs.truncate(LISTED_ORGS);
        serde_json::to_string(&self).ok()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn processing_time_halves_and_orgs_without_items_are_forgotten() {
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
    fn reports_of_processes_are_joined_and_a_row_lists_the_largest() {
        let of = |org: &str, seconds, delay_ms| OrgLoad { org: org.into(), seconds, delay_ms };
        let one = LoadReport { idle_ms: Some(900), orgs: vec![of("a", 1.0, 10), of("b", 2.0, 20)] };
        let other = LoadReport { idle_ms: Some(50), orgs: vec![of("b", 3.0, 5)] };
        let none = LoadReport::default();
        let joined = one.joined(none.clone()).joined(other);
        assert_eq!(joined, LoadReport { idle_ms: Some(50), orgs: vec![of("a", 1.0, 10), of("b", 5.0, 20)] });
        assert_eq!(none.into_json(), None);
        let many = (0..1_000).map(|nth| of(&format!("org-{nth}"), f64::from(nth), 0)).collect();
        let row = LoadReport { idle_ms: Some(1), orgs: many }.into_json().unwrap();
        let read: LoadReport = serde_json::from_str(&row).unwrap();
        assert_eq!((read.orgs.len(), read.orgs[0].org.as_str()), (LISTED_ORGS, "org-999"));
    }
}
