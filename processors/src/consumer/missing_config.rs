//! Decides what becomes of content whose org's configuration is not here: it waits as long as that blocks nobody, goes to
//! the dead letters when it blocks other orgs, and halts the consumer when the catalog itself is at fault.
//!
//! Pure: the retry loop acts on the decisions and passes the time in.

use std::{collections::BTreeMap, time::Duration};

use tidegate_schemas::ids::OrgId;

use crate::settings::MissingSettings;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MissingConfigAction {
    /// The part is retried, and others go on.
    Wait,
    /// The part goes to the dead letters, since it blocks others.
    Divert,
    /// The catalog is at fault, or there is no other org to make room for: nothing new is started until the configuration
    /// is there.
    HaltAll,
}

/// State of the consumer when a part finds its configuration missing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConsumerState {
    pub(crate) now: Duration,
    /// True if the catalog is known to be current and neither the store nor the log is unavailable.
    pub(crate) can_judge: bool,
    /// Number of orgs whose configuration runs here.
    pub(crate) running_orgs: usize,
    /// Time for which the consumer has been full and has finished nothing.
    pub(crate) stuck_for: Duration,
}

/// Orgs whose configuration was missing lately.
#[derive(Debug)]
pub(crate) struct MissingConfigs {
    settings: MissingSettings,
    /// Time after its last part until an org is forgotten. Longer than the pause between two tries of a part.
    forget_after: Duration,
    orgs: BTreeMap<OrgId, MissingOrg>,
}

#[derive(Debug)]
struct MissingOrg {
    last_seen: Duration,
    /// True if an older version of its configuration runs here.
    runs_older: bool,
    is_diverted: bool,
}

impl MissingConfigs {
    pub(crate) fn new(settings: MissingSettings, forget_after: Duration) -> Self {
        Self { settings, forget_after, orgs: BTreeMap::new() }
    }

    /// Returns the number of orgs.
    pub(crate) fn count(&self) -> usize {
        self.orgs.len()
    }

    /// Returns the number of orgs whose content is diverted.
    pub(crate) fn diverted(&self) -> usize {
        self.orgs.values().filter(|org| org.is_diverted).count()
    }

    /// Decides about a part. `runs_older`: an older version of the org's configuration runs here.
    pub(crate) fn decide(
        &mut self,
        org: &OrgId,
        runs_older: bool,
        state: ConsumerState,
    ) -> MissingConfigAction {
        let (now, forget_after) = (state.now, self.forget_after);
        self.orgs.retain(|_, org| now.saturating_sub(org.last_seen) < forget_after);
        let entry = self.orgs.entry(org.clone()).or_insert(MissingOrg {
            last_seen: now,
            runs_older,
            is_diverted: false,
        });
        (entry.last_seen, entry.runs_older) = (now, runs_older);

        let missing = self.orgs.len();
        let healthy =
            state.running_orgs.saturating_sub(self.orgs.values().filter(|org| org.runs_older).count());
        // A share as well as a number: in a small installation three orgs may be all, among thousands they are not.
        let are_many = missing >= self.settings.orgs as usize
            && missing * 100 >= (missing + healthy) * self.settings.percent as usize;
        if !state.can_judge || healthy == 0 || are_many {
            return MissingConfigAction::HaltAll;
        }
        let is_stuck = state.stuck_for >= Duration::from_millis(self.settings.grace_ms);
        let Some(entry) = self.orgs.get_mut(org) else { return MissingConfigAction::Wait };
        // Stays set, so that the org's content does not fill the consumer again and wait for another grace period.
        entry.is_diverted |= is_stuck;
        if entry.is_diverted { MissingConfigAction::Divert } else { MissingConfigAction::Wait }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORGET: Duration = Duration::from_secs(60);
    const MOVING: ConsumerState = ConsumerState {
        now: Duration::from_secs(100),
        can_judge: true,
        running_orgs: 50,
        stuck_for: Duration::ZERO,
    };
    const STUCK: ConsumerState = ConsumerState { stuck_for: Duration::from_secs(5), ..MOVING };

    fn missing_configs() -> MissingConfigs {
        MissingConfigs::new(MissingSettings::default(), FORGET)
    }

    fn org(name: &str) -> OrgId {
        OrgId::new(name)
    }

    #[test]
    fn content_waits_while_others_go_on_and_is_diverted_once_they_are_stuck() {
        let mut missing = missing_configs();
        assert_eq!(missing.decide(&org("a"), false, MOVING), MissingConfigAction::Wait);
        assert_eq!(missing.decide(&org("a"), false, STUCK), MissingConfigAction::Divert);
        let again = missing.decide(&org("a"), false, MOVING);
        assert_eq!(again, MissingConfigAction::Divert, "no second grace period");
        assert_eq!(missing.diverted(), 1);
        let other = missing.decide(&org("b"), true, MOVING);
        assert_eq!(other, MissingConfigAction::Wait, "another org has a grace period of its own");
    }

    #[test]
    fn org_that_was_not_seen_for_a_while_starts_anew() {
        let mut missing = missing_configs();
        assert_eq!(missing.decide(&org("a"), false, STUCK), MissingConfigAction::Divert);
        let later = ConsumerState { now: MOVING.now + FORGET, ..MOVING };
        assert_eq!(missing.decide(&org("a"), false, later), MissingConfigAction::Wait);
    }

    #[test]
    fn nothing_is_diverted_while_the_catalog_cannot_be_read() {
        let state = ConsumerState { can_judge: false, ..STUCK };
        assert_eq!(missing_configs().decide(&org("a"), false, state), MissingConfigAction::HaltAll);
    }

    #[test]
    fn nothing_is_diverted_when_no_other_org_is_blocked() {
        let alone = ConsumerState { running_orgs: 0, ..STUCK };
        assert_eq!(missing_configs().decide(&org("a"), false, alone), MissingConfigAction::HaltAll);
        let with_older = ConsumerState { running_orgs: 1, ..STUCK };
        assert_eq!(missing_configs().decide(&org("a"), true, with_older), MissingConfigAction::HaltAll);
    }

    #[test]
    fn many_orgs_at_once_halt_the_consumer() {
        let mut missing = missing_configs();
        for name in ["a", "b"] {
            assert_eq!(missing.decide(&org(name), true, MOVING), MissingConfigAction::Wait);
        }
        let of_twenty = ConsumerState { running_orgs: 20, ..STUCK };
        assert_eq!(missing.decide(&org("c"), true, of_twenty), MissingConfigAction::HaltAll);
        let of_thousands = ConsumerState { running_orgs: 5_000, ..STUCK };
        let action = missing.decide(&org("c"), true, of_thousands);
        assert_eq!(action, MissingConfigAction::Divert, "three of 5,000 are few");
    }
}
