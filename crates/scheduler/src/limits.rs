//! Limits of a scheduler, and the accounting of how much of a limit is in use.

/// Bounds on running and waiting entries. `usize::MAX` means no limit, and is the default of each.
///
/// No org and no key may use more of a limit than it leaves free; see the crate's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Running entries of all orgs.
    pub running: usize,
    /// Running entries of one org. Entries with unproven keys share half of it.
    pub running_per_org: usize,
    /// Running entries with one key, of all orgs.
    pub running_per_key: usize,
    /// Running entries with one key, of one org.
    pub running_per_org_and_key: usize,
    /// Weight of one org's running entries. Entries with unproven keys share half of it. The first entry with
    /// proven keys and the first one with unproven keys may exceed it, so that an entry above the limit can
    /// run at all.
    pub weight_per_org: usize,
    /// Waiting entries of one org.
    pub waiting_per_org: usize,
    /// Weight of one org's waiting entries. A single waiting entry may exceed it.
    pub waiting_weight_per_org: usize,
}

impl Limits {
    pub const UNLIMITED: Self = Self {
        running: usize::MAX,
        running_per_org: usize::MAX,
        running_per_key: usize::MAX,
        running_per_org_and_key: usize::MAX,
        weight_per_org: usize::MAX,
        waiting_per_org: usize::MAX,
        waiting_weight_per_org: usize::MAX,
    };
}

impl Default for Limits {
    fn default() -> Self {
        Self::UNLIMITED
    }
}

/// Used part of an org's limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) all: usize,
    /// Part of `all` used by entries with unproven keys.
    pub(crate) unproven: usize,
}

impl Usage {
    pub(crate) fn add(&mut self, amount: usize, is_proven: bool) {
        self.all += amount;
        if !is_proven {
            self.unproven += amount;
        }
    }

    pub(crate) fn subtract(&mut self, amount: usize, is_proven: bool) {
        self.all -= amount;
        if !is_proven {
            self.unproven -= amount;
        }
    }

    /// Returns the amount used by entries of the given kind.
    pub(crate) fn amount_by(self, is_proven: bool) -> usize {
        if is_proven { self.all - self.unproven } else { self.unproven }
    }

    /// Returns the amount of the limit that is free for entries of the given kind.
    pub(crate) fn free_amount(self, limit: usize, is_proven: bool) -> usize {
        let free = limit.saturating_sub(self.all);
        if is_proven { free } else { free.min(limit.div_ceil(2).saturating_sub(self.unproven)) }
    }
}
