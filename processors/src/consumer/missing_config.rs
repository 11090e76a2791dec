//! Whose configuration is not here, and what becomes of the content that waits for it: it waits as long as that harms
//! nobody, makes room when it stands in the way of others, and stops everything when the catalog itself is at fault.
//!
//! It looks nothing up and diverts nothing: it says what to do. Time is passed in.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};
use tidegate_schemas::ids::OrgId;

/// The section `processors.missing`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// A consumer that is full and finishes nothing for so long, while content of an org waits for its configuration,
    /// sends that content to the dead letters, reason `config_missing`, in milliseconds. Default 5,000.
    pub grace_ms: u64,
    /// So many orgs without their configuration at once, if they are also so many percent of all, are the catalog's
    /// fault and not theirs: nothing is diverted, and the consumer waits until they are there. Default 3.
    pub orgs: u32,
    /// See `orgs`. Default 10.
    pub percent: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self { grace_ms: 5_000, orgs: 3, percent: 10 }
    }
}

impl Settings {
    pub(crate) fn validate(&self) -> Result<(), String> {
        if self.orgs == 0 {
            return Err("processors.missing.orgs must be above 0".to_owned());
        }
        if !(1..=100).contains(&self.percent) {
            return Err(format!(
                "processors.missing.percent must be between 1 and 100, but is {}",
                self.percent
            ));
        }
        Ok(())
    }
}

/// What becomes of a part whose configuration is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is tried again, and others go on.
    Wait,
    /// It makes room: to the dead letters.
    Divert,
    /// The catalog is at fault, or there is nobody to make room for: nothing new is begun until it is there.
    Stop,
}

/// How things stand when a part finds its configuration missing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scene {
    pub(crate) now: Duration,
    /// The catalog is known to be current, and neither store nor log is away.
    pub(crate) is_calm: bool,
    /// Orgs whose configuration runs here.
    pub(crate) running: usize,
    /// For how long the consumer has had no room and has finished nothing.
    pub(crate) stuck_for: Duration,
}

/// The orgs whose configuration was missing lately.
#[derive(Debug)]
pub(crate) struct Missing {
    settings: Settings,
    /// An org of which nothing was heard for so long is forgotten. Longer than a part waits between two tries.
    forget_after: Duration,
    orgs: BTreeMap<OrgId, Absence>,
}

#[derive(Debug)]
struct Absence {
    seen: Duration,
    /// An older version of its configuration runs here.
    runs: bool,
    makes_room: bool,
}

impl Missing {
    pub(crate) fn new(settings: Settings, forget_after: Duration) -> Self {
        Self { settings, forget_after, orgs: BTreeMap::new() }
    }

    pub(crate) fn count(&self) -> usize {
        self.orgs.len()
    }

    /// The orgs that make room.
    pub(crate) fn diverted(&self) -> usize {
        self.orgs.values().filter(|absence| absence.makes_room).count()
    }

    /// The configuration of the org is missing for a part of its content. `runs`: an older version is here.
    pub(crate) fn judge(&mut self, org: &OrgId, runs: bool, scene: Scene) -> Verdict {
        let (now, forget_after) = (scene.now, self.forget_after);
        self.orgs.retain(|_, absence| now.saturating_sub(absence.seen) < forget_after);
        let absence = self.orgs.entry(org.clone()).or_insert(Absence { seen: now, runs, makes_room: false });
        (absence.seen, absence.runs) = (now, runs);

        let missing = self.orgs.len();
        let well = scene.running.saturating_sub(self.orgs.values().filter(|absence| absence.runs).count());
        let many = missing >= self.settings.orgs as usize
            && missing * 100 >= (missing + well) * self.settings.percent as usize;
        if !scene.is_calm || well == 0 || many {
            return Verdict::Stop;
        }
        let is_stuck = scene.stuck_for >= Duration::from_millis(self.settings.grace_ms);
        let Some(absence) = self.orgs.get_mut(org) else { return Verdict::Wait };
        absence.makes_room |= is_stuck;
        if absence.makes_room { Verdict::Divert } else { Verdict::Wait }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORGET: Duration = Duration::from_secs(60);
    const CALM: Scene =
        Scene { now: Duration::from_secs(100), is_calm: true, running: 50, stuck_for: Duration::ZERO };
    const STUCK: Scene = Scene { stuck_for: Duration::from_secs(5), ..CALM };

    fn missing() -> Missing {
        Missing::new(Settings::default(), FORGET)
    }

    fn org(name: &str) -> OrgId {
        OrgId::new(name)
    }

    #[test]
    fn content_waits_as_long_as_others_go_on_and_makes_room_once_they_do_not() {
        let mut missing = missing();
        assert_eq!(missing.judge(&org("a"), false, CALM), Verdict::Wait);
        assert_eq!(missing.judge(&org("a"), false, STUCK), Verdict::Divert);
        assert_eq!(missing.judge(&org("a"), false, CALM), Verdict::Divert, "not one pause after the other");
        assert_eq!(missing.diverted(), 1);
        assert_eq!(missing.judge(&org("b"), true, CALM), Verdict::Wait, "another org has its own time");
    }

    #[test]
    fn an_org_that_was_not_heard_of_for_a_while_begins_anew() {
        let mut missing = missing();
        assert_eq!(missing.judge(&org("a"), false, STUCK), Verdict::Divert);
        let later = Scene { now: CALM.now + FORGET, ..CALM };
        assert_eq!(missing.judge(&org("a"), false, later), Verdict::Wait);
    }

    #[test]
    fn nothing_is_diverted_while_the_catalog_cannot_be_asked() {
        let scene = Scene { is_calm: false, ..STUCK };
        assert_eq!(missing().judge(&org("a"), false, scene), Verdict::Stop);
    }

    #[test]
    fn nothing_is_diverted_where_there_is_nobody_to_make_room_for() {
        let alone = Scene { running: 0, ..STUCK };
        assert_eq!(missing().judge(&org("a"), false, alone), Verdict::Stop);
        let runs_an_older_one = Scene { running: 1, ..STUCK };
        assert_eq!(missing().judge(&org("a"), true, runs_an_older_one), Verdict::Stop);
    }

    #[test]
    fn many_orgs_at_once_are_the_catalogs_fault() {
        let mut missing = missing();
        for name in ["a", "b"] {
            assert_eq!(missing.judge(&org(name), true, CALM), Verdict::Wait);
        }
        let few = Scene { running: 20, ..STUCK };
        assert_eq!(missing.judge(&org("c"), true, few), Verdict::Stop);
        let of_thousands = Scene { running: 5_000, ..STUCK };
        assert_eq!(missing.judge(&org("c"), true, of_thousands), Verdict::Divert, "three of 5,000 are not");
    }
}
