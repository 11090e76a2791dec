//! Queue of work whose costs differ: the owner that has used the least is served next.
//!
//! [`fair_queue`](crate::fair_queue) counts entries and bounds how many run; this queue measures their cost, such as time
//! or bytes, and bounds nothing.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    hash::Hash,
};

/// Number of owners without work that are remembered beside as many with work.
const IDLE_OWNERS: usize = 64;

/// Queues of the owners, ordered by the cost that each has been charged. Work of one owner keeps its order.
#[derive(Debug)]
pub struct UsageQueue<K, T> {
    owners: HashMap<K, OwnerQueue<T>>,
    /// Owners with work that waits, the one that has used the least first.
    waiting: BTreeSet<(u64, K)>,
    /// Usage of the owner that was served last. An owner that comes back starts here: idle time is not saved up.
    now: u64,
}

#[derive(Debug)]
struct OwnerQueue<T> {
    entries: VecDeque<T>,
    used: u64,
}

impl<K, T> Default for UsageQueue<K, T> {
    fn default() -> Self {
        Self { owners: HashMap::new(), waiting: BTreeSet::new(), now: 0 }
    }
}

impl<K: Clone + Ord + Hash, T> UsageQueue<K, T> {
    pub fn push(&mut self, owner: &K, entry: T) {
        if self.owners.len() > 2 * self.waiting.len() + IDLE_OWNERS {
            let now = self.now;
            self.owners.retain(|_, queue| !queue.entries.is_empty() || queue.used > now);
        }
        let queue = self
            .owners
            .entry(owner.clone())
            .or_insert_with(|| OwnerQueue { entries: VecDeque::new(), used: 0 });
        if queue.entries.is_empty() {
            queue.used = queue.used.max(self.now);
            self.waiting.insert((queue.used, owner.clone()));
        }
        queue.entries.push_back(entry);
    }

    /// Takes the first entry of the owner that has used the least. Its cost is charged by `charge`, before or after other
    /// entries are taken.
    pub fn pop(&mut self) -> Option<(K, T)> {
        let owner = self.next_owner(|_| true)?.clone();
        let entry = self.pop_of(&owner)?;
        Some((owner, entry))
    }

    /// Returns the owner that is served next, among those whose work may start.
    pub fn next_owner(&self, may_start: impl Fn(&K) -> bool) -> Option<&K> {
        self.waiting.iter().map(|(_, owner)| owner).find(|owner| may_start(owner))
    }

    /// Takes the first entry of one owner.
    pub fn pop_of(&mut self, owner: &K) -> Option<T> {
        let queue = self.owners.get_mut(owner)?;
        let entry = queue.entries.pop_front()?;
        self.now = self.now.max(queue.used);
        if queue.entries.is_empty() {
            self.waiting.remove(&(queue.used, owner.clone()));
        }
        Some(entry)
    }

    /// Adds to the usage of the owner.
    pub fn charge(&mut self, owner: &K, cost: u64) {
        let Some(queue) = self.owners.get_mut(owner) else { return };
        let waits = self.waiting.remove(&(queue.used, owner.clone()));
        queue.used = queue.used.saturating_add(cost);
        if waits {
            self.waiting.insert((queue.used, owner.clone()));
        } else if self.waiting.is_empty() {
            // No other owner waited for its turn meanwhile, so the usage is not held against this one.
            self.now = self.now.max(queue.used);
        }
    }

    /// True if no entry waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Number of owners with entries that wait.
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
    fn expensive_work_of_one_owner_leaves_the_others_their_share() {
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
            "a cost of 100 of quick entries stands beside one of 100 of slow ones"
        );
        assert!(queue.pop().is_none() && queue.is_empty());
    }

    #[test]
    fn owner_that_comes_back_has_saved_nothing_up() {
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
        assert_eq!(order, ["new", "new", "busy", "new"], "it is ahead by the entry that was served last");
    }

    #[test]
    fn owners_without_work_are_forgotten() {
        let mut queue = UsageQueue::default();
        for nth in 0..10_000_u64 {
            queue.push(&nth, ());
            let (owner, ()) = queue.pop().unwrap();
            queue.charge(&owner, nth % 3);
        }
        assert!(queue.owners.len() <= 2 * IDLE_OWNERS, "{} are remembered", queue.owners.len());
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
