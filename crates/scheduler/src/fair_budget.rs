//! Budget shared by orgs and connections: a holder may take an amount only if at least as much remains for all others.
//!
//! The share of a holder follows from the remaining amount (a dynamic threshold, as in the shared buffers of switches). A single
//! holder can have half of the total, each of two busy ones a third, and a new one always finds room.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use metrics::Gauge;
use parking_lot::Mutex;
use tidegate_schemas::ids::OrgId;

use crate::share::fits_share;

/// Shared budget. Clones refer to the same budget.
#[derive(Clone, Debug)]
pub struct FairBudget(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    total: usize,
    state: Mutex<State>,
    /// Raised and lowered by each amount instead of being set: of two concurrent updates, the older value could be set last and
    /// remain.
    gauge: Gauge,
}

#[derive(Debug, Default)]
struct State {
    used_amount: usize,
    by_org: HashMap<Option<OrgId>, usize>,
}

/// Reason for refusing an amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetRefusal {
    /// The org or the connection holds its full share.
    Share,
    /// All holders together use the whole budget.
    Total,
}

/// Party that an amount is counted for. All requests without a key form one party.
#[derive(Clone, Debug, Default)]
pub struct Holder {
    pub org: Option<OrgId>,
    /// Amount held by a connection over all its orgs. Changed only under the budget's lock.
    pub connection: Option<Arc<AtomicUsize>>,
}

/// Amount taken from the budget. Given back on drop.
#[derive(Debug)]
pub struct Lease {
    budget: Arc<Inner>,
    holder: Holder,
    amount: usize,
}

impl FairBudget {
    pub fn new(total: usize, gauge: Gauge) -> Self {
        Self(Arc::new(Inner { total, state: Mutex::default(), gauge }))
    }

    pub fn take(&self, holder: Holder, amount: usize) -> Result<Lease, BudgetRefusal> {
        let mut lease = Lease { budget: Arc::clone(&self.0), holder, amount: 0 };
        lease.grow(amount)?;
        Ok(lease)
    }

    pub fn used_amount(&self) -> usize {
        self.0.state.lock().used_amount
    }
}

impl Lease {
    pub fn amount(&self) -> usize {
        self.amount
    }

    /// Takes an additional amount for the same holder.
    pub fn grow(&mut self, amount: usize) -> Result<(), BudgetRefusal> {
        if amount == 0 {
            return Ok(());
        }
        let Inner { total, state, gauge } = &*self.budget;
        // One lock for org, connection and total: the check and the update must not interleave.
        let mut state = state.lock();
        // Cannot underflow: each amount was taken from the remainder.
        let remaining = (total - state.used_amount).checked_sub(amount).ok_or(BudgetRefusal::Total)?;
        let connection = self.holder.connection.as_deref();
        let held_by_connection = connection.map_or(0, |connection| connection.load(Ordering::Relaxed));
        let held_by_org = state.by_org.get(&self.holder.org).copied().unwrap_or(0);
        // The holder must leave at least as much as it would hold, so a newcomer finds room at any time.
        if !fits_share(held_by_org.max(held_by_connection), amount, remaining) {
            return Err(BudgetRefusal::Share);
        }
        *state.by_org.entry(self.holder.org.clone()).or_default() += amount;
        if let Some(connection) = connection {
            connection.fetch_add(amount, Ordering::Relaxed);
        }
        state.used_amount += amount;
        self.amount += amount;
        gauge.increment(to_gauge_value(amount));
        Ok(())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.amount == 0 {
            return;
        }
        let mut state = self.budget.state.lock();
        state.used_amount -= self.amount;
        if let Some(connection) = &self.holder.connection {
            connection.fetch_sub(self.amount, Ordering::Relaxed);
        }
        if let Some(org_amount) = state.by_org.get_mut(&self.holder.org) {
            *org_amount -= self.amount;
            // Entries of idle orgs are removed, so the map does not grow with the number of orgs seen.
            if *org_amount == 0 {
                state.by_org.remove(&self.holder.org);
            }
        }
        self.budget.gauge.decrement(to_gauge_value(self.amount));
    }
}

#[expect(clippy::cast_precision_loss, reason = "no amount is so large that a float rounds it")]
fn to_gauge_value(amount: usize) -> f64 {
    amount as f64
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    fn test_budget(total: usize) -> FairBudget {
        FairBudget::new(total, Gauge::noop())
    }

    fn org(name: &str) -> Holder {
        Holder { org: Some(OrgId::new(name)), connection: None }
    }

    #[test]
    fn single_org_holds_half_and_gives_it_back() {
        let budget = test_budget(100);
        let first = budget.take(org("a"), 30).unwrap();
        let mut second = budget.take(org("a"), 10).unwrap();
        second.grow(10).unwrap();
        assert_eq!(budget.take(org("a"), 1).unwrap_err(), BudgetRefusal::Share);
        assert_eq!(budget.used_amount(), 50);
        drop(first);
        assert_eq!(budget.used_amount(), 20);
        drop(second);
        assert!(budget.0.state.lock().by_org.is_empty());
        assert_eq!(budget.take(org("a"), 101).unwrap_err(), BudgetRefusal::Total);
        assert_eq!(budget.take(org("a"), usize::MAX).unwrap_err(), BudgetRefusal::Total);
    }

    #[test]
    fn newcomer_finds_room_beside_many_busy_orgs() {
        let budget = test_budget(100_000);
        let mut leases = Vec::new();
        for name in 0..20 {
            let first = budget.take(org(&name.to_string()), 1).expect("there is room for a newcomer");
            leases.push(first);
            while let Ok(lease) = budget.take(org(&name.to_string()), 100) {
                leases.push(lease);
            }
        }
    }

    #[test]
    fn connection_has_one_share_for_all_its_orgs() {
        let budget = test_budget(100);
        let connection = Arc::new(AtomicUsize::new(0));
        let on = |name| Holder { connection: Some(Arc::clone(&connection)), ..org(name) };
        let first = budget.take(on("a"), 30).unwrap();
        let second = budget.take(on("b"), 20).unwrap();
        assert_eq!(budget.take(on("c"), 1).unwrap_err(), BudgetRefusal::Share);
        assert!(budget.take(org("c"), 1).is_ok());
        drop((first, second));
        assert_eq!(connection.load(Ordering::Relaxed), 0);
    }

    #[derive(Default)]
    struct RecordedGauge(Mutex<f64>);

    impl metrics::GaugeFn for RecordedGauge {
        fn increment(&self, value: f64) {
            *self.0.lock() += value;
        }

        fn decrement(&self, value: f64) {
            *self.0.lock() -= value;
        }

        fn set(&self, value: f64) {
            *self.0.lock() = value;
        }
    }

    proptest! {
        #[test]
        #[allow(clippy::float_cmp, reason = "whole numbers")]
        fn no_holder_exceeds_its_share_and_gauge_is_the_sum(
            steps in prop::collection::vec((0..5_usize, 1..40_usize, any::<bool>()), 1..200),
        ) {
            let gauge = Arc::new(RecordedGauge::default());
            let budget = FairBudget::new(100, Gauge::from_arc(Arc::clone(&gauge)));
            let mut leases: Vec<(usize, Lease)> = Vec::new();
            for (party, amount, gives_back) in steps {
                if gives_back && !leases.is_empty() {
                    leases.swap_remove(amount % leases.len());
                } else if let Ok(lease) = budget.take(org(&party.to_string()), amount) {
                    leases.push((party, lease));
                    let party_amount: usize = leases.iter().filter(|(of, _)| *of == party).map(|(_, lease)| lease.amount).sum();
                    prop_assert!(party_amount <= 100 - budget.used_amount());
                }
                let sum: usize = leases.iter().map(|(_, lease)| lease.amount).sum();
                prop_assert_eq!((sum, *gauge.0.lock()), (budget.used_amount(), to_gauge_value(sum)));
            }
        }
    }
}
