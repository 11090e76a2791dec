//! An amount that orgs and connections share: whoever takes of it leaves at least as much for all others.
//!
//! The share of one holder follows from what is left (a dynamic threshold, as switches share their buffers): alone it may
//! hold half of all, beside another busy one a third, and a newcomer always finds room.

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

/// The budget. A clone is the same.
#[derive(Clone, Debug)]
pub struct FairBudget(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    total: usize,
    state: Mutex<State>,
    /// Goes up with what is taken and down with what is given back. It is never set: of two values that were read one
    /// after the other, the older one could be set last, and stay.
    gauge: Gauge,
}

#[derive(Debug, Default)]
struct State {
    used: usize,
    by_org: HashMap<Option<OrgId>, usize>,
}

/// Why an amount is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The org or the connection holds its share already.
    Share,
    /// The budget is used up by all together.
    Total,
}

/// Party that an amount is counted for. Those without a key are one party.
#[derive(Clone, Debug, Default)]
pub struct Holder {
    pub org: Option<OrgId>,
    /// Amount that a connection holds, also of several orgs; changed under the budget's lock only.
    pub connection: Option<Arc<AtomicUsize>>,
}

/// An amount taken from the budget; given back when dropped.
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

    pub fn take(&self, holder: Holder, amount: usize) -> Result<Lease, Refusal> {
        let mut lease = Lease { budget: Arc::clone(&self.0), holder, amount: 0 };
        lease.grow(amount)?;
        Ok(lease)
    }

    pub fn used(&self) -> usize {
        self.0.state.lock().used
    }
}

impl Lease {
    pub fn amount(&self) -> usize {
        self.amount
    }

    /// Takes more of the budget for the same holder.
    pub fn grow(&mut self, amount: usize) -> Result<(), Refusal> {
        if amount == 0 {
            return Ok(());
        }
        let Inner { total, state, gauge } = &*self.budget;
        let mut state = state.lock();
        let left = (total - state.used).checked_sub(amount).ok_or(Refusal::Total)?;
        let connection = self.holder.connection.as_deref();
        let by_connection = connection.map_or(0, |connection| connection.load(Ordering::Relaxed));
        let by_org = state.by_org.get(&self.holder.org).copied().unwrap_or(0);
        if by_org.max(by_connection).saturating_add(amount) > left {
            return Err(Refusal::Share);
        }
        *state.by_org.entry(self.holder.org.clone()).or_default() += amount;
        if let Some(connection) = connection {
            connection.fetch_add(amount, Ordering::Relaxed);
        }
        state.used += amount;
        self.amount += amount;
        gauge.increment(float(amount));
        Ok(())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.amount == 0 {
            return;
        }
        let mut state = self.budget.state.lock();
        state.used -= self.amount;
        if let Some(connection) = &self.holder.connection {
            connection.fetch_sub(self.amount, Ordering::Relaxed);
        }
        if let Some(held) = state.by_org.get_mut(&self.holder.org) {
            *held -= self.amount;
            // An org at rest costs nothing.
            if *held == 0 {
                state.by_org.remove(&self.holder.org);
            }
        }
        self.budget.gauge.decrement(float(self.amount));
    }
}

#[expect(clippy::cast_precision_loss, reason = "no amount is so large that a float rounds it")]
fn float(amount: usize) -> f64 {
    amount as f64
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    fn budget(total: usize) -> FairBudget {
        FairBudget::new(total, Gauge::noop())
    }

    fn org(name: &str) -> Holder {
        Holder { org: Some(OrgId::new(name)), connection: None }
    }

    #[test]
    fn an_org_alone_holds_half_and_all_of_it_is_given_back() {
        let budget = budget(100);
        let first = budget.take(org("a"), 30).unwrap();
        let mut second = budget.take(org("a"), 10).unwrap();
        second.grow(10).unwrap();
        assert_eq!(budget.take(org("a"), 1).unwrap_err(), Refusal::Share);
        assert_eq!(budget.used(), 50);
        drop(first);
        assert_eq!(budget.used(), 20);
        drop(second);
        assert!(budget.0.state.lock().by_org.is_empty());
        assert_eq!(budget.take(org("a"), 101).unwrap_err(), Refusal::Total);
        assert_eq!(budget.take(org("a"), usize::MAX).unwrap_err(), Refusal::Total);
    }

    #[test]
    fn a_newcomer_finds_room_however_many_are_busy() {
        let budget = budget(100_000);
        let mut held = Vec::new();
        for name in 0..20 {
            let first = budget.take(org(&name.to_string()), 1).expect("there is room for a newcomer");
            held.push(first);
            while let Ok(more) = budget.take(org(&name.to_string()), 100) {
                held.push(more);
            }
        }
    }

    #[test]
    fn a_connection_has_a_share_over_all_its_orgs() {
        let budget = budget(100);
        let connection = Arc::new(AtomicUsize::new(0));
        let on = |name| Holder { connection: Some(Arc::clone(&connection)), ..org(name) };
        let first = budget.take(on("a"), 30).unwrap();
        let second = budget.take(on("b"), 20).unwrap();
        assert_eq!(budget.take(on("c"), 1).unwrap_err(), Refusal::Share);
        assert!(budget.take(org("c"), 1).is_ok());
        drop((first, second));
        assert_eq!(connection.load(Ordering::Relaxed), 0);
    }

    #[derive(Default)]
    struct Shown(Mutex<f64>);

    impl metrics::GaugeFn for Shown {
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
        fn no_holder_has_more_than_it_left_and_the_gauge_shows_the_sum(
            steps in prop::collection::vec((0..5_usize, 1..40_usize, any::<bool>()), 1..200),
        ) {
            let shown = Arc::new(Shown::default());
            let budget = FairBudget::new(100, Gauge::from_arc(Arc::clone(&shown)));
            let mut held: Vec<(usize, Lease)> = Vec::new();
            for (party, amount, gives_back) in steps {
                if gives_back && !held.is_empty() {
                    held.swap_remove(amount % held.len());
                } else if let Ok(lease) = budget.take(org(&party.to_string()), amount) {
                    held.push((party, lease));
                    let own: usize = held.iter().filter(|(of, _)| *of == party).map(|(_, lease)| lease.amount).sum();
                    prop_assert!(own <= 100 - budget.used());
                }
                let sum: usize = held.iter().map(|(_, lease)| lease.amount).sum();
                prop_assert_eq!((sum, *shown.0.lock()), (budget.used(), float(sum)));
            }
        }
    }
}
