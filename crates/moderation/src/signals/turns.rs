//! Whose fetch may start now: bounded in all, per host and per org, orgs taking turns and, within one, its hosts.
//!
//! It starts nothing and knows no clock; `gate` hands its turns out.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
};

use tidegate_schemas::ids::OrgId;

/// How many fetches run at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) all: usize,
    pub(super) per_host: usize,
    pub(super) per_org: usize,
}

/// The right to fetch from a host for an org. It is given back through `Turns::end`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) org: OrgId,
    pub(super) host: Arc<str>,
}

/// Who waits, and how many of each run.
#[derive(Debug)]
pub(super) struct Turns<T> {
    bounds: Bounds,
    under_way: usize,
    by_host: HashMap<Arc<str>, usize>,
    by_org: HashMap<OrgId, usize>,
    waiting: BTreeMap<OrgId, Line<T>>,
    order: VecDeque<OrgId>,
}

/// What one org waits for.
#[derive(Debug)]
struct Line<T> {
    by_host: HashMap<Arc<str>, VecDeque<T>>,
    order: VecDeque<Arc<str>>,
}

impl<T> Turns<T> {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            under_way: 0,
            by_host: HashMap::new(),
            by_org: HashMap::new(),
            waiting: BTreeMap::new(),
            order: VecDeque::new(),
        }
    }

    pub(super) fn under_way(&self) -> usize {
        self.under_way
    }

    pub(super) fn wait(&mut self, turn: Turn, who: T) {
        let line = self.waiting.entry(turn.org.clone()).or_insert_with(|| {
            self.order.push_back(turn.org);
            Line { by_host: HashMap::new(), order: VecDeque::new() }
        });
        let at_host = line.by_host.entry(Arc::clone(&turn.host)).or_insert_with(|| {
            line.order.push_back(turn.host);
            VecDeque::new()
        });
        at_host.push_back(who);
    }

    /// The next that may start, which counts as started.
    ///
    /// What is passed over on the way is at its bound, and of hosts and orgs there are only so many that can be: the
    /// bound on all divided by theirs. So nobody's queue makes this slow.
    pub(super) fn next(&mut self) -> Option<(Turn, T)> {
        if self.under_way >= self.bounds.all {
            return None;
        }
        for at in 0..self.order.len() {
            let org = &self.order[at];
            if self.by_org.get(org).is_some_and(|running| *running >= self.bounds.per_org) {
                continue;
            }
            let Some(line) = self.waiting.get_mut(org) else { continue };
            let (by_host, most) = (&self.by_host, self.bounds.per_host);
            let is_free = |host: &Arc<str>| by_host.get(host).is_none_or(|running| *running < most);
            let Some((host, who)) = line.next(is_free) else { continue };
            let org = self.order.remove(at)?;
            if line.order.is_empty() {
                self.waiting.remove(&org);
            } else {
                self.order.push_back(org.clone());
            }
            let turn = Turn { org, host };
            self.under_way += 1;
            *self.by_host.entry(Arc::clone(&turn.host)).or_default() += 1;
            *self.by_org.entry(turn.org.clone()).or_default() += 1;
            return Some((turn, who));
        }
        None
    }

    pub(super) fn end(&mut self, turn: &Turn) {
        self.under_way -= 1;
        one_less(&mut self.by_host, &turn.host);
        one_less(&mut self.by_org, &turn.org);
    }
}

impl<T> Line<T> {
    fn next(&mut self, is_free: impl Fn(&Arc<str>) -> bool) -> Option<(Arc<str>, T)> {
        let at = self.order.iter().position(is_free)?;
        let host = self.order.remove(at)?;
        let waiting = self.by_host.get_mut(&host)?;
        let who = waiting.pop_front()?;
        if waiting.is_empty() {
            self.by_host.remove(&host);
        } else {
            self.order.push_back(Arc::clone(&host));
        }
        Some((host, who))
    }
}

fn one_less<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    fn turn(org: &str, host: &str) -> Turn {
        Turn { org: OrgId::new(org), host: host.into() }
    }

    #[test]
    fn orgs_take_turns_and_so_do_the_hosts_of_one() {
        let mut turns = Turns::new(Bounds { all: 100, per_host: 100, per_org: 100 });
        for nth in 0..3 {
            turns.wait(turn("a", "slow"), ("a", nth));
        }
        turns.wait(turn("a", "fast"), ("a", 9));
        turns.wait(turn("b", "slow"), ("b", 0));
        let order: Vec<_> = std::iter::from_fn(|| turns.next().map(|(_, who)| who)).collect();
        assert_eq!(order, [("a", 0), ("b", 0), ("a", 9), ("a", 1), ("a", 2)]);
    }

    #[test]
    fn a_host_at_its_bound_holds_nobody_who_wants_another() {
        let mut turns = Turns::new(Bounds { all: 100, per_host: 1, per_org: 100 });
        for nth in 0..5 {
            turns.wait(turn("a", "hanging"), nth);
        }
        turns.wait(turn("a", "good"), 9);
        let (first, _) = turns.next().unwrap();
        assert_eq!(turns.next().unwrap().1, 9);
        assert_eq!(turns.next(), None);
        turns.end(&first);
        assert_eq!(turns.next().unwrap().1, 1);
    }

    #[test]
    fn many_names_of_one_org_hold_no_other_org() {
        let mut turns = Turns::new(Bounds { all: 10, per_host: 8, per_org: 4 });
        for nth in 0..100 {
            turns.wait(turn("wild", &format!("{nth}.example")), nth);
        }
        for _ in 0..4 {
            turns.next().unwrap();
        }
        assert_eq!(turns.next(), None);
        turns.wait(turn("other", "good"), 1_000);
        assert_eq!(turns.next().unwrap().1, 1_000);
    }

    proptest! {
        #[test]
        fn bounds_hold_and_nobody_is_forgotten(
            wanted in proptest::collection::vec((0_u8..4, 0_u8..5), 0..80),
            ends in proptest::collection::vec(any::<u8>(), 0..200),
            all in 1_usize..6, per_host in 1_usize..4, per_org in 1_usize..4,
        ) {
            let mut turns = Turns::new(Bounds { all, per_host, per_org });
            for (nth, (org, host)) in wanted.iter().enumerate() {
                turns.wait(turn(&org.to_string(), &host.to_string()), nth);
            }
            let mut running: Vec<Turn> = Vec::new();
            let mut seen = Vec::new();
            let mut ends = ends.into_iter();
            loop {
                while let Some((turn, who)) = turns.next() {
                    running.push(turn);
                    seen.push(who);
                    prop_assert!(running.len() <= all);
                    for one in &running {
                        prop_assert!(running.iter().filter(|it| it.host == one.host).count() <= per_host);
                        prop_assert!(running.iter().filter(|it| it.org == one.org).count() <= per_org);
                    }
                }
                if running.is_empty() { break; }
                let at = usize::from(ends.next().unwrap_or(0)) % running.len();
                turns.end(&running.swap_remove(at));
            }
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..wanted.len()).collect::<Vec<_>>());
            prop_assert_eq!(turns.under_way(), 0);
            prop_assert!(turns.waiting.is_empty() && turns.order.is_empty() && turns.by_host.is_empty());
        }
    }
}
