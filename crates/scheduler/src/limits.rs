//! Limits of a scheduler, and how much of one a single party may use.

/// Bounds on what runs and waits. `usize::MAX` means no limit, and is the default of each.
///
/// Nobody may use more of a limit than it leaves free, see the crate's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Entries that run at once.
    pub running: usize,
    /// Entries of one org that run at once. Unproven keys have half of it together.
    pub running_per_org: usize,
    /// Entries with one key that run at once, for all orgs.
    pub running_per_key: usize,
    /// Entries with one key that run at once, for one org.
    pub running_per_org_and_key: usize,
    /// Weight of one org's running entries. Unproven keys have half of it together. The first entry with proven keys and
    /// the first one with unproven keys may exceed it, so that an entry above the limit runs as well.
    pub weight_per_org: usize,
    /// Entries of one org that wait.
    pub waiting_per_org: usize,
    /// Weight of one org's waiting entries. An entry that waits alone may exceed it.
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

/// Part of an org's limit that is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) all: usize,
    /// Part of `all` that unproven keys use.
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

    /// Usage by entries of the given kind.
    pub(crate) fn by(self, is_proven: bool) -> usize {
        if is_proven { self.all - self.unproven } else { self.unproven }
    }

    /// Part of the limit that entries of the given kind find free.
    pub(crate) fn left(self, limit: usize, is_proven: bool) -> usize {
        let left = limit.saturating_sub(self.all);
        if is_proven { left } else { left.min(limit.div_ceil(2).saturating_sub(self.unproven)) }
    }
}
