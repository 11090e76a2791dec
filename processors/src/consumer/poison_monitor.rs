//! Counts content that cannot be processed, and decides when that is no accident of single items any more.
//!
//! Pure: the consumer loop acts on the decisions and passes the time in.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use tidegate_schemas::ids::OrgId;

use crate::settings::PoisonSettings;

/// Consequence of a part or record that could not be processed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PoisonAction {
    Continue,
    /// Sends the org's content to the dead letters without a try.
    Divert,
    Stop {
        why: String,
    },
}

#[derive(Debug)]
pub(crate) struct PoisonMonitor {
    settings: PoisonSettings,
    window_start: Duration,
    counts: HashMap<OrgId, Count>,
    unreadable: u32,
    /// Diverted orgs, each with the end of its diversion.
    diverted_until: BTreeMap<OrgId, Duration>,
}

/// Parts of one org in the current window.
#[derive(Debug, Default)]
struct Count {
    good: u32,
    poison: u32,
}

impl PoisonMonitor {
    pub(crate) fn new(settings: PoisonSettings) -> Self {
        Self {
            settings,
            window_start: Duration::ZERO,
            counts: HashMap::new(),
            unreadable: 0,
            diverted_until: BTreeMap::new(),
        }
    }

    pub(crate) fn is_diverted(&mut self, org: &OrgId, now: Duration) -> bool {
        match self.diverted_until.get(org) {
            Some(until) if now < *until => true,
            Some(_) => {
                self.diverted_until.remove(org);
                false
            }
            None => false,
        }
    }

    /// Returns the number of diverted orgs.
    pub(crate) fn diverted(&self) -> usize {
        self.diverted_until.len()
    }

    pub(crate) fn record_success(&mut self, org: &OrgId, parts: usize, now: Duration) {
        self.roll_window(now);
        let parts = u32::try_from(parts).unwrap_or(u32::MAX);
        // Not `entry`, which would clone the org for every part.
        if let Some(count) = self.counts.get_mut(org) {
            count.good = count.good.saturating_add(parts);
        } else {
            self.counts.insert(org.clone(), Count { good: parts, poison: 0 });
        }
    }

    pub(crate) fn record_poison(&mut self, org: &OrgId, now: Duration) -> PoisonAction {
        self.roll_window(now);
        let count = self.counts.entry(org.clone()).or_default();
        count.poison += 1;
        if !count.is_over(&self.settings) {
            return PoisonAction::Continue;
        }
        let over = self.counts.values().filter(|count| count.is_over(&self.settings)).count();
        if over >= self.settings.orgs as usize {
            return PoisonAction::Stop { why: format!("the content of {over} orgs cannot be processed") };
        }
        self.diverted_until.insert(org.clone(), now + Duration::from_millis(self.settings.divert_ms));
        PoisonAction::Divert
    }

    /// Counts a record that cannot be decoded, so that not even its org is known.
    pub(crate) fn record_unreadable(&mut self, now: Duration) -> PoisonAction {
        self.roll_window(now);
        self.unreadable += 1;
        if self.unreadable < self.settings.unreadable {
            return PoisonAction::Continue;
        }
        PoisonAction::Stop { why: format!("{} records cannot be read", self.unreadable) }
    }

    fn roll_window(&mut self, now: Duration) {
        if now.saturating_sub(self.window_start) >= Duration::from_millis(self.settings.window_ms) {
            self.window_start = now;
            self.counts.clear();
            self.unreadable = 0;
        }
    }
}

impl Count {
    fn is_over(&self, settings: &PoisonSettings) -> bool {
        let all = u64::from(self.good) + u64::from(self.poison);
        self.poison >= settings.least && u64::from(self.poison) * 100 >= all * u64::from(settings.percent)
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
    fn unreadable_records_stop_the_consumer_unless_they_are_rare() {
        let mut monitor = monitor();
        for nth in 0..100_u32 {
            let now = Duration::from_secs(10) * nth;
            assert_eq!(monitor.record_unreadable(now), PoisonAction::Continue);
        }
        let last = (0..10).map(|_| monitor.record_unreadable(Duration::from_secs(5_000))).last();
        assert!(matches!(last, Some(PoisonAction::Stop { .. })));
    }
}
