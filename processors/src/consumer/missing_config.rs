//! Decides about content of orgs without a loaded configuration: it waits while other orgs progress, is sent to the dead
//! letters when it blocks them, and halts the consumer when the catalog is at fault.
//!
//! Pure: the retry loop acts on the decisions and passes the time in.

use std::{collections::BTreeMap, time::Duration};

use tidegate_schemas::ids::OrgId;

use crate::settings::MissingConfigSettings;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MissingConfigAction {
    /// The part is retried, and other parts continue.
    Wait,
    /// The part is sent to the dead letters, because it blocks other orgs.
    Divert,
    /// The catalog is at fault, or no other org needs the room: no new part is started until the configuration is loaded.
    HaltAll,
}

/// State of the consumer at the time of a missing configuration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConsumerState {
    pub(crate) now: Duration,
    /// True if the catalog is known to be current and neither the store nor the log is unavailable.
    pub(crate) is_catalog_current: bool,
    /// Number of orgs with a loaded configuration.
    pub(crate) running_orgs: usize,
    /// Time for which the consumer has been full and has finished no part.
    pub(crate) stalled_for: Duration,
}

/// Orgs with a recently missing configuration.
#[derive(Debug)]
pub(crate) struct MissingConfigs {
    settings: MissingConfigSettings,
    /// Time between an org's last part and the removal of the org. Longer than the pause between two retries of a part.
    forget_after: Duration,
    orgs: BTreeMap<OrgId, MissingOrg>,
}

#[derive(Debug)]
struct MissingOrg {
    last_part_at: Duration,
    /// True if an older version of the org's configuration is loaded.
    has_older_version: bool,
    is_diverted: bool,
}

impl MissingConfigs {
    pub(crate) fn new(settings: MissingConfigSettings, forget_after: Duration) -> Self {
        Self { settings, forget_after, orgs: BTreeMap::new() }
    }

    /// Counts the orgs with a missing configuration.
    pub(crate) fn count_orgs(&self) -> usize {
        self.orgs.len()
    }

    /// Counts the diverted orgs.
    pub(crate) fn count_diverted(&self) -> usize {
        self.orgs.values().filter(|org| org.is_diverted).count()
    }

    /// Decides about a part. `has_older_version`: an older version of the org's configuration is loaded.
    pub(crate) fn decide(
        &mut self,
        org: &OrgId,
        has_older_version: bool,
        state: ConsumerState,
    ) -> MissingConfigAction {
        let (now, forget_after) = (state.now, self.forget_after);
        self.orgs.retain(|_, org| now.saturating_sub(org.last_part_at) < forget_after);
        let entry = self.orgs.entry(org.clone()).or_insert(MissingOrg {
            last_part_at: now,
            has_older_version,
            is_diverted: false,
        });
        (entry.last_part_at, entry.has_older_version) = (now, has_older_version);

        let missing_orgs = self.orgs.len();
        let healthy_orgs =
            state.running_orgs.saturating_sub(self.orgs.values().filter(|org| org.has_older_version).count());
        // Both a number and a share: three orgs can be all of a small installation but few among thousands.
        let is_widespread = missing_orgs >= self.settings.orgs as usize
            && missing_orgs * 100 >= (missing_orgs + healthy_orgs) * self.settings.percent as usize;
        // Diverting loses the order of the content. It is right only if other orgs need the room and the catalog is not
        // at fault.
        if !state.is_catalog_current || healthy_orgs == 0 || is_widespread {
            return MissingConfigAction::HaltAll;
        }
        let is_stalled = state.stalled_for >= Duration::from_millis(self.settings.grace_ms);
        let Some(entry) = self.orgs.get_mut(org) else { return MissingConfigAction::Wait };
        // Stays set: a second grace period would let the org's content fill the consumer again.
        entry.is_diverted |= is_stalled;
        if entry.is_diverted { MissingConfigAction::Divert } else { MissingConfigAction::Wait }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORGET: Duration = Duration::from_secs(60);
    const PROGRESSING: ConsumerState = ConsumerState {
        now: Duration::from_secs(100),
        is_catalog_current: true,
        running_orgs: 50,
        stalled_for: Duration::ZERO,
    };
    const STALLED: ConsumerState = ConsumerState { stalled_for: Duration::from_secs(5), ..PROGRESSING };

    fn missing_configs() -> MissingConfigs {
        MissingConfigs::new(MissingConfigSettings::default(), FORGET)
    }

    fn org(name: &str) -> OrgId {
        OrgId::new(name)
    }

    #[test]
    fn content_is_diverted_once_it_stalls_other_orgs() {
        let mut configs = missing_configs();
        assert_eq!(configs.decide(&org("a"), false, PROGRESSING), MissingConfigAction::Wait);
        assert_eq!(configs.decide(&org("a"), false, STALLED), MissingConfigAction::Divert);
        let second_decision = configs.decide(&org("a"), false, PROGRESSING);
        assert_eq!(second_decision, MissingConfigAction::Divert, "no second grace period");
        assert_eq!(configs.count_diverted(), 1);
        let other_decision = configs.decide(&org("b"), true, PROGRESSING);
        assert_eq!(other_decision, MissingConfigAction::Wait, "another org has a grace period of its own");
    }

    #[test]
    fn org_without_recent_parts_gets_a_new_grace_period() {
        let mut configs = missing_configs();
        assert_eq!(configs.decide(&org("a"), false, STALLED), MissingConfigAction::Divert);
        let later_state = ConsumerState { now: PROGRESSING.now + FORGET, ..PROGRESSING };
        assert_eq!(configs.decide(&org("a"), false, later_state), MissingConfigAction::Wait);
    }

    #[test]
    fn unreadable_catalog_halts_instead_of_diverting() {
        let state = ConsumerState { is_catalog_current: false, ..STALLED };
        assert_eq!(missing_configs().decide(&org("a"), false, state), MissingConfigAction::HaltAll);
    }

    #[test]
    fn missing_config_halts_when_no_other_org_is_blocked() {
        let without_other_orgs = ConsumerState { running_orgs: 0, ..STALLED };
        assert_eq!(
            missing_configs().decide(&org("a"), false, without_other_orgs),
            MissingConfigAction::HaltAll
        );
        let with_older = ConsumerState { running_orgs: 1, ..STALLED };
        assert_eq!(missing_configs().decide(&org("a"), true, with_older), MissingConfigAction::HaltAll);
    }

    #[test]
    fn many_orgs_at_once_halt_the_consumer() {
        let mut configs = missing_configs();
        for name in ["a", "b"] {
            assert_eq!(configs.decide(&org(name), true, PROGRESSING), MissingConfigAction::Wait);
        }
        let few_orgs = ConsumerState { running_orgs: 20, ..STALLED };
        assert_eq!(configs.decide(&org("c"), true, few_orgs), MissingConfigAction::HaltAll);
        let thousands_of_orgs = ConsumerState { running_orgs: 5_000, ..STALLED };
        let action = configs.decide(&org("c"), true, thousands_of_orgs);
        assert_eq!(action, MissingConfigAction::Divert, "three of 5,000 are few");
    }
}
