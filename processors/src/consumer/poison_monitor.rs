//! How much of each org's content is poison, and when that is no accident of one item any more.
//!
//! It diverts and stops nothing: it says when to. Time is passed in.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tidegate_schemas::ids::OrgId;

/// The section `processors.poison`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// How long poison is counted before the count begins anew, in milliseconds. Default 60,000.
    pub window_ms: u64,
    /// How many parts of an org must be poison in the window before its ratio counts. Default 50.
    pub least: u32,
    /// The percentage of poison at which an org is diverted whole to the dead letters. Default 50.
    pub percent: u32,
    /// How long an org stays diverted before it is tried again, in milliseconds. Default 300,000.
    pub divert_ms: u64,
    /// So many orgs above the ratio in one window stop the consumer: then the fault is ours. Default 3.
    pub orgs: u32,
    /// So many records in one window that no version of Tidegate can read stop the consumer. Default 10.
    pub unreadable: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self { window_ms: 60_000, least: 50, percent: 50, divert_ms: 300_000, orgs: 3, unreadable: 10 }
    }
}

/// What a counted part leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    GoOn,
    /// From here on the org's content goes to the dead letters, unseen.
    Divert,
    Stop {
        why: String,
    },
}

#[derive(Debug)]
pub(crate) struct Watch {
    settings: Settings,
    began: Duration,
    counts: HashMap<OrgId, Count>,
    unreadable: u32,
    /// Until when.
    diverted: BTreeMap<OrgId, Duration>,
}

#[derive(Debug, Default)]
struct Count {
    good: u32,
    poison: u32,
}

impl Watch {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings,
            began: Duration::ZERO,
            counts: HashMap::new(),
            unreadable: 0,
            diverted: BTreeMap::new(),
        }
    }

    pub(crate) fn is_diverted(&mut self, org: &OrgId, now: Duration) -> bool {
        match self.diverted.get(org) {
            Some(until) if now < *until => true,
            Some(_) => {
                self.diverted.remove(org);
                false
            }
            None => false,
        }
    }

    pub(crate) fn diverted(&self) -> usize {
        self.diverted.len()
    }

    pub(crate) fn good(&mut self, org: &OrgId, now: Duration) {
        self.turn(now);
        if let Some(count) = self.counts.get_mut(org) {
            count.good += 1;
        } else {
            self.counts.insert(org.clone(), Count { good: 1, poison: 0 });
        }
    }

    pub(crate) fn poison(&mut self, org: &OrgId, now: Duration) -> Verdict {
        self.turn(now);
        let count = self.counts.entry(org.clone()).or_default();
        count.poison += 1;
        if !count.is_over(&self.settings) {
            return Verdict::GoOn;
        }
        let over = self.counts.values().filter(|count| count.is_over(&self.settings)).count();
        if over >= self.settings.orgs as usize {
            return Verdict::Stop { why: format!("the content of {over} orgs cannot be processed") };
        }
        self.diverted.insert(org.clone(), now + Duration::from_millis(self.settings.divert_ms));
        Verdict::Divert
    }

    /// A record that does not even say whose it is.
    pub(crate) fn unreadable(&mut self, now: Duration) -> Verdict {
        self.turn(now);
        self.unreadable += 1;
        if self.unreadable < self.settings.unreadable {
            return Verdict::GoOn;
        }
        Verdict::Stop { why: format!("{} records cannot be read", self.unreadable) }
    }

    fn turn(&mut self, now: Duration) {
        if now.saturating_sub(self.began) >= Duration::from_millis(self.settings.window_ms) {
            self.began = now;
            self.counts.clear();
            self.unreadable = 0;
        }
    }
}

impl Count {
    fn is_over(&self, settings: &Settings) -> bool {
        let all = u64::from(self.good) + u64::from(self.poison);
        self.poison >= settings.least && u64::from(self.poison) * 100 >= all * u64::from(settings.percent)
    }
}

impl Settings {
    pub(crate) fn validate(&self) -> Result<(), String> {
        for (name, value) in [
            ("window_ms", self.window_ms),
            ("least", self.least.into()),
            ("orgs", self.orgs.into()),
            ("unreadable", self.unreadable.into()),
        ] {
            if value == 0 {
                return Err(format!("processors.poison.{name} must be above 0"));
            }
        }
        if !(1..=100).contains(&self.percent) {
            return Err(format!(
                "processors.poison.percent must be between 1 and 100, but is {}",
                self.percent
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1);

    fn watch() -> Watch {
        Watch::new(Settings { least: 3, ..Settings::default() })
    }

    fn times(watch: &mut Watch, org: &str, times: u32) -> Verdict {
        (0..times).map(|_| watch.poison(&OrgId::new(org), NOW)).last().unwrap_or(Verdict::GoOn)
    }

    #[test]
    fn a_few_bad_items_divert_nobody() {
        let mut watch = watch();
        assert_eq!(times(&mut watch, "a", 2), Verdict::GoOn);
        for _ in 0..10 {
            watch.good(&OrgId::new("a"), NOW);
        }
        assert_eq!(times(&mut watch, "a", 7), Verdict::GoOn, "below half");
        assert!(!watch.is_diverted(&OrgId::new("a"), NOW));
    }

    #[test]
    fn an_org_over_the_ratio_is_diverted_and_tried_again_later() {
        let mut watch = watch();
        let org = OrgId::new("a");
        assert_eq!(times(&mut watch, "a", 3), Verdict::Divert);
        assert!(watch.is_diverted(&org, NOW));
        assert!(!watch.is_diverted(&OrgId::new("b"), NOW));
        let later = NOW + Duration::from_secs(301);
        assert!(!watch.is_diverted(&org, later));
        assert_eq!(watch.poison(&org, later), Verdict::GoOn, "the count began anew");
    }

    #[test]
    fn poison_from_several_orgs_at_once_stops_the_consumer() {
        let mut watch = watch();
        assert_eq!(times(&mut watch, "a", 3), Verdict::Divert);
        assert_eq!(times(&mut watch, "b", 3), Verdict::Divert);
        assert!(matches!(times(&mut watch, "c", 3), Verdict::Stop { .. }));
    }

    #[test]
    fn records_that_cannot_be_read_stop_the_consumer_unless_they_are_rare() {
        let mut watch = watch();
        for nth in 0..100_u32 {
            let now = Duration::from_secs(10) * nth;
            assert_eq!(watch.unreadable(now), Verdict::GoOn);
        }
        let last = (0..10).map(|_| watch.unreadable(Duration::from_secs(5_000))).last();
        assert!(matches!(last, Some(Verdict::Stop { .. })));
    }
}
