//! Counts unprocessable content per org, and decides when an org is diverted or the consumer stops.
//!
//! Pure: the consumer loop acts on the decisions and passes the time in.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use tidegate_schemas::ids::OrgId;

use crate::settings::PoisonSettings;

/// Consequence of an unprocessable part or record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PoisonAction {
    Continue,
    /// Further content of the org is sent to the dead letters without an attempt.
    Divert,
    Stop {
        reason: String,
    },
}

#[derive(Debug)]
pub(crate) struct PoisonMonitor {
    settings: PoisonSettings,
    window_start: Duration,
    counts: HashMap<OrgId, PartCounts>,
    unreadable_records: u32,
    /// End of the diversion of each diverted org.
    diversion_ends: BTreeMap<OrgId, Duration>,
}

/// Parts of one org in the current window.
#[derive(Debug, Default)]
struct PartCounts {
    processed: u32,
    poisoned: u32,
}

impl PoisonMonitor {
    pub(crate) fn new(settings: PoisonSettings) -> Self {
        Self {
            settings,
            window_start: Duration::ZERO,
            counts: HashMap::new(),
            unreadable_records: 0,
            diversion_ends: BTreeMap::new(),
        }
    }

    pub(crate) fn is_diverted(&mut self, org: &OrgId, now: Duration) -> bool {
        match self.diversion_ends.get(org) {
            Some(until) if now < *until => true,
            Some(_) => {
                self.diversion_ends.remove(org);
                false
            }
            None => false,
        }
    }

    /// Returns the number of diverted orgs.
    pub(crate) fn count_diverted(&self) -> usize {
        self.diversion_ends.len()
    }

    pub(crate) fn record_success(&mut self, org: &OrgId, parts: usize, now: Duration) {
        self.roll_window(now);
        let parts = u32::try_from(parts).unwrap_or(u32::MAX);
        // `entry` would clone the org for every part.
        if let Some(count) = self.counts.get_mut(org) {
            count.processed = count.processed.saturating_add(parts);
        } else {
            self.counts.insert(org.clone(), PartCounts { processed: parts, poisoned: 0 });
        }
    }

    pub(crate) fn record_poison(&mut self, org: &OrgId, now: Duration) -> PoisonAction {
        self.roll_window(now);
        let count = self.counts.entry(org.clone()).or_default();
        count.poisoned += 1;
        if !count.exceeds_limit(&self.settings) {
            return PoisonAction::Continue;
        }
        let orgs_over_limit =
            self.counts.values().filter(|count| count.exceeds_limit(&self.settings)).count();
        // Several orgs above the limit at once point to a defect of the service. Diverting would move the content of
        // all orgs to the dead letters, so the consumer stops.
        if orgs_over_limit >= self.settings.orgs as usize {
            return PoisonAction::Stop {
                reason: format!("the content of {orgs_over_limit} orgs cannot be processed"),
            };
        }
        self.diversion_ends.insert(org.clone(), now + Duration::from_millis(self.settings.divert_ms));
        PoisonAction::Divert
    }

    /// Counts an undecodable record. Its org is unknown, so it counts for the consumer.
    pub(crate) fn record_unreadable(&mut self, now: Duration) -> PoisonAction {
        self.roll_window(now);
        self.unreadable_records += 1;
        if self.unreadable_records < self.settings.unreadable {
            return PoisonAction::Continue;
        }
        PoisonAction::Stop { reason: format!("{} records cannot be decoded", self.unreadable_records) }
    }

    fn roll_window(&mut self, now: Duration) {
        if now.saturating_sub(self.window_start) >= Duration::from_millis(self.settings.window_ms) {
            self.window_start = now;
            self.counts.clear();
            self.unreadable_records = 0;
        }
    }
}

impl PartCounts {
    fn exceeds_limit(&self, settings: &PoisonSettings) -> bool {
        // The percentage alone would divert an org after a single failed part in a new window.
        let total = u64::from(self.processed) + u64::from(self.poisoned);
        self.poisoned >= settings.least
            && u64::from(self.poisoned) * 100 >= total * u64::from(settings.percent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1);

    fn monitor() -> PoisonMonitor {
        PoisonMonitor::new(PoisonSettings { least: 3, ..PoisonSettings::default() })
    }

    fn poison(monitor: &mut PoisonMonitor, org: &str, times: u32) -> PoisonAction {
        let last = (0..times).map(|_| monitor.record_poison(&OrgId::new(org), NOW)).last();
        last.unwrap_or(PoisonAction::Continue)
    }

    #[test]
    fn few_bad_items_divert_no_org() {
        let mut monitor = monitor();
        assert_eq!(poison(&mut monitor, "a", 2), PoisonAction::Continue);
        for _ in 0..10 {
            monitor.record_success(&OrgId::new("a"), 1, NOW);
        }
        assert_eq!(poison(&mut monitor, "a", 7), PoisonAction::Continue, "below half");
        assert!(!monitor.is_diverted(&OrgId::new("a"), NOW));
    }

    #[test]
    fn org_over_the_ratio_is_diverted_and_retried_later() {
        let mut monitor = monitor();
        let org = OrgId::new("a");
        assert_eq!(poison(&mut monitor, "a", 3), PoisonAction::Divert);
        assert!(monitor.is_diverted(&org, NOW));
        assert!(!monitor.is_diverted(&OrgId::new("b"), NOW));
        let later = NOW + Duration::from_secs(301);
        assert!(!monitor.is_diverted(&org, later));
        assert_eq!(monitor.record_poison(&org, later), PoisonAction::Continue, "a new window has begun");
    }

    #[test]
    fn poison_from_several_orgs_at_once_stops_the_consumer() {
        let mut monitor = monitor();
        assert_eq!(poison(&mut monitor, "a", 3), PoisonAction::Divert);
        assert_eq!(poison(&mut monitor, "b", 3), PoisonAction::Divert);
        assert!(matches!(poison(&mut monitor, "c", 3), PoisonAction::Stop { .. }));
    }

    #[test]
    fn frequent_unreadable_records_stop_the_consumer() {
        let mut monitor = monitor();
        for nth in 0..100_u32 {
            let now = Duration::from_secs(10) * nth;
            assert_eq!(monitor.record_unreadable(now), PoisonAction::Continue);
        }
        let last = (0..10).map(|_| monitor.record_unreadable(Duration::from_secs(5_000))).last();
        assert!(matches!(last, Some(PoisonAction::Stop { .. })));
    }
}
