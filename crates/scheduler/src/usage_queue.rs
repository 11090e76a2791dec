//! Queue of work with different costs: the owner with the least usage is served next.
//!
//! [`fair_queue`](crate::fair_queue) counts entries and limits how many run; this queue measures their cost,
//! such as time or bytes, and has no limits.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    hash::Hash,
};

/// Number of idle owners that are remembered, beyond one for each owner with work.
const MAX_IDLE_OWNERS: usize = 64;

/// Queues of owners, ordered by charged cost. Work of one owner keeps its order.
#[derive(Debug)]
pub struct UsageQueue<K, T> {
    owners: HashMap<K, OwnerQueue<T>>,
    /// Owners with waiting work, the one with the least usage first.
    waiting: BTreeSet<(u64, K)>,
    /// Usage of the owner served last. A returning owner starts here, so that idle time earns no credit.
    virtual_time: u64,
}

#[derive(Debug)]
struct OwnerQueue<T> {
    entries: VecDeque<T>,
    usage: u64,
}

impl<K, T> Default for UsageQueue<K, T> {
    fn default() -> Self {
        Self { owners: HashMap::new(), waiting: BTreeSet::new(), virtual_time: 0 }
    }
}

impl<K: Clone + Ord + Hash, T> UsageQueue<K, T> {
    pub fn push(&mut self, owner: &K, entry: T) {
        // Swept only when idle owners outnumber the others, so that the cost is spread over many pushes.
        if self.owners.len() > 2 * self.waiting.len() + MAX_IDLE_OWNERS {
            // An idle owner ahead of the virtual time stays: without its usage it would return with credit.
            let virtual_time = self.virtual_time;
            self.owners.retain(|_, queue| !queue.entries.is_empty() || queue.usage > virtual_time);
        }
        let queue = self
            .owners
            .entry(owner.clone())
            .or_insert_with(|| OwnerQueue { entries: VecDeque::new(), usage: 0 });
        if queue.entries.is_empty() {
            queue.usage = queue.usage.max(self.virtual_time);
            self.waiting.insert((queue.usage, owner.clone()));
        }
        queue.entries.push_back(entry);
    }

    /// Removes the first entry of the owner with the least usage. The caller charges its cost with `charge`,
    /// before or after it removes other entries.
    pub fn pop(&mut self) -> Option<(K, T)> {
        let owner = self.next_owner(|_| true)?.clone();
        let entry = self.pop_of(&owner)?;
        Some((owner, entry))
    }

    /// Returns the next owner to serve among those that `may_start` accepts.
    pub fn next_owner(&self, may_start: impl Fn(&K) -> bool) -> Option<&K> {
        self.waiting.iter().map(|(_, owner)| owner).find(|owner| may_start(owner))
    }

    /// Removes the first entry of one owner.
    pub fn pop_of(&mut self, owner: &K) -> Option<T> {
        let queue = self.owners.get_mut(owner)?;
        let entry = queue.entries.pop_front()?;
        self.virtual_time = self.virtual_time.max(queue.usage);
        if queue.entries.is_empty() {
            self.waiting.remove(&(queue.usage, owner.clone()));
        }
        Some(entry)
    }

    /// Adds a cost to the owner's usage.
    pub fn charge(&mut self, owner: &K, cost: u64) {
        // An idle owner may have been removed while its last entry ran. Its cost is forgotten with it.
        let Some(queue) = self.owners.get_mut(owner) else { return };
        let was_waiting = self.waiting.remove(&(queue.usage, owner.clone()));
        queue.usage = queue.usage.saturating_add(cost);
        if was_waiting {
            self.waiting.insert((queue.usage, owner.clone()));
        } else if self.waiting.is_empty() {
            // No other owner waited in the meantime, so the usage is no disadvantage for this one later.
            self.virtual_time = self.virtual_time.max(queue.usage);
        }
    }

    /// True if no entry waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns the number of owners with waiting entries.
    pub fn waiting_owners(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn expensive_owner_leaves_others_their_share() {
        let mut queue = UsageQueue::default();
        for owner in ["slow", "quick"] {
            (0..100).for_each(|nth| queue.push(&owner, nth));
        }
        let mut slow_before_quick_ended = 0;
        let mut quick_served = 0;
        for _ in 0..200 {
            let (owner, _) = queue.pop().unwrap();
            let is_slow = owner == "slow";
            queue.charge(&owner, if is_slow { 50 } else { 1 });
            quick_served += usize::from(!is_slow);
            slow_before_quick_ended += usize::from(is_slow && quick_served < 100);
        }
        assert_eq!(
            slow_before_quick_ended, 2,
            "slow entries of a cost of 100 run beside quick ones of the same cost"
        );
        assert!(queue.pop().is_none() && queue.is_empty());
    }

    #[test]
    fn returning_owner_has_no_saved_credit() {
        let mut queue = UsageQueue::default();
        for nth in 0..4 {
            queue.push(&"busy", nth);
        }
        for _ in 0..3 {
            let (owner, _) = queue.pop().unwrap();
            queue.charge(&owner, 100);
        }
        (0..9).for_each(|nth| queue.push(&"new", nth));
        let order = std::iter::from_fn(|| {
            let (owner, _) = queue.pop()?;
            queue.charge(&owner, 50);
            Some(owner)
        });
        let order: Vec<_> = order.take(4).collect();
        assert_eq!(order, ["new", "new", "busy", "new"], "the new owner is ahead by the entry served last");
    }

    #[test]
    fn idle_owners_are_removed() {
        let mut queue = UsageQueue::default();
        for nth in 0..10_000_u64 {
            queue.push(&nth, ());
            let (owner, ()) = queue.pop().unwrap();
            queue.charge(&owner, nth % 3);
        }
        assert!(queue.owners.len() <= 2 * MAX_IDLE_OWNERS, "{} are remembered", queue.owners.len());
    }

    proptest! {
        /// Owners that always have work get the same share, but for the entries that run.
        #[test]
        fn busy_owners_get_equal_shares(costs in prop::collection::vec(1..100_u64, 2..6), running_at_once in 1..4_usize) {
            let mut queue = UsageQueue::default();
            let mut used = vec![0; costs.len()];
            for owner in 0..costs.len() {
                (0..2_000).for_each(|_| queue.push(&owner, ()));
            }
            let (mut clock, mut running) = (0, BTreeSet::new());
            for piece in 0..1_000_usize {
                if running.len() == running_at_once {
                    let (ends, _, owner): (u64, usize, usize) = running.pop_first().unwrap();
                    clock = ends;
                    queue.charge(&owner, costs[owner]);
                    used[owner] += costs[owner];
                }
                let (owner, ()) = queue.pop().unwrap();
                running.insert((clock + costs[owner], piece, owner));
            }
            let (least, most) = (used.iter().min().unwrap(), used.iter().max().unwrap());
            let entry = costs.iter().max().unwrap();
            prop_assert!(most - least <= entry * (running_at_once as u64 + 1), "{used:?} of entries of {costs:?}");
        }
    }
}
