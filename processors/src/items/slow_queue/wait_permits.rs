//! Limits on the items of one org, and of all, that wait for their media for a short time.
//!
//! It does not know what they wait for, and nobody waits for it: who has no seat goes elsewhere.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use tidegate_schemas::ids::OrgId;

/// Cheap to clone; clones share all bounds.
#[derive(Clone)]
pub(crate) struct WaitPermits(Arc<Shared>);

struct Shared {
    per_org: usize,
    all: usize,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    all: usize,
    by_org: HashMap<OrgId, usize>,
}

/// Given back when dropped.
pub(crate) struct WaitPermit {
    of: WaitPermits,
    org: OrgId,
}

impl WaitPermits {
    pub(crate) fn new(per_org: usize, all: usize) -> Self {
        Self(Arc::new(Shared { per_org, all, taken: Mutex::default() }))
    }

    /// A seat, if one is free for the org.
    pub(crate) fn try_take(&self, org: &OrgId) -> Option<WaitPermit> {
        let mut taken = self.0.taken.lock();
        let own = taken.by_org.get(org).copied().unwrap_or_default();
        if taken.all >= self.0.all || own >= self.0.per_org {
            return None;
        }
        taken.all += 1;
        taken.by_org.insert(org.clone(), own + 1);
        Some(WaitPermit { of: self.clone(), org: org.clone() })
    }
}

impl Drop for WaitPermit {
    fn drop(&mut self) {
        let mut taken = self.of.0.taken.lock();
        taken.all -= 1;
        if let Some(own) = taken.by_org.get_mut(&self.org) {
            *own -= 1;
            if *own == 0 {
                taken.by_org.remove(&self.org);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn one_org_leaves_seats_to_the_others() {
        let (a, b, c) = (OrgId::new("a"), OrgId::new("b"), OrgId::new("c"));
        let seats = WaitPermits::new(2, 3);
        let held: Vec<_> = (0..2).map(|_| seats.try_take(&a).unwrap()).collect();
        assert!(seats.try_take(&a).is_none());
        let other = seats.try_take(&b).unwrap();
        assert!(seats.try_take(&c).is_none(), "all are taken");
        drop(held);
        assert!(seats.try_take(&c).is_some() && seats.try_take(&a).is_some());
        drop(other);
        assert!(seats.0.taken.lock().by_org.is_empty());
    }
}
