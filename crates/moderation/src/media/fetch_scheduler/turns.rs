//! Whose fetch may start now: bounded in all, per org, and at each host for all orgs and for one; orgs take turns and,
//! within one, its hosts.
//!
//! It starts nothing and knows no clock; `gate` hands its turns out.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
};

use tidegate_schemas::ids::OrgId;

use super::{
    super::{host_breaker::OrgHost, lru::LruCache},
    shares::{Shares, Taken},
};

/// How many fetches run at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) all: usize,
    /// From one host, for all orgs.
    pub(crate) at_host: usize,
    /// From one host, for one org.
    pub(crate) per_host: usize,
    pub(crate) per_org: usize,
    /// Hosts that gave a medium lately, as far as they are remembered.
    pub(crate) known: usize,
}

/// The right to fetch from a host for an org. It is given back through `Turns::end`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) site: OrgHost,
    is_known: bool,
}

/// Who waits, and how many of each run.
#[derive(Debug)]
pub(crate) struct Turns<T> {
    bounds: Bounds,
    under_way: usize,
    by_host: HashMap<Arc<str>, usize>,
    by_org: HashMap<OrgId, Running>,
    known: LruCache<OrgHost, ()>,
    waiting: BTreeMap<OrgId, Line<T>>,
    order: VecDeque<OrgId>,
}

/// What one org has under way.
#[derive(Debug, Default)]
struct Running {
    taken: Taken,
    by_host: HashMap<Arc<str>, usize>,
}

/// What one org waits for.
#[derive(Debug)]
struct Line<T> {
    by_host: HashMap<Arc<str>, VecDeque<T>>,
    known: VecDeque<Arc<str>>,
    strangers: VecDeque<Arc<str>>,
    waiting: usize,
    /// So many are there when those who left are looked for.
    sweep_at: usize,
}

/// Below it, nobody is looked for in a line.
const FEW: usize = 1_024;

impl<T> Turns<T> {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            under_way: 0,
            by_host: HashMap::new(),
            by_org: HashMap::new(),
            known: LruCache::new(bounds.known),
            waiting: BTreeMap::new(),
            order: VecDeque::new(),
        }
    }

    pub(crate) fn under_way(&self) -> usize {
        self.under_way
    }

    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.values().map(|line| line.waiting).sum()
    }

    pub(crate) fn is_known(&mut self, site: &OrgHost) -> bool {
        self.known.get(site).is_some()
    }

    /// A host is known from a medium that it gives until it fails.
    pub(crate) fn learn(&mut self, site: &OrgHost, gave: bool) {
        let was_known = self.is_known(site);
        if gave {
            self.known.insert(site.clone(), ());
        } else {
            self.known.remove(site);
        }
        if was_known != gave
            && let Some(line) = self.waiting.get_mut(&site.org)
        {
            line.move_to(&site.host, gave);
        }
    }

    pub(crate) fn wait(&mut self, site: OrgHost, who: T) {
        let is_known = self.is_known(&site);
        let line = self.waiting.entry(site.org.clone()).or_insert_with(|| {
            self.order.push_back(site.org);
            Line::new()
        });
        if !line.by_host.contains_key(&site.host) {
            line.order(is_known).push_back(Arc::clone(&site.host));
        }
        line.by_host.entry(site.host).or_default().push_back(who);
        line.waiting += 1;
    }

    /// Looks for those of the org that have left, once there are twice as many as last time. A line may move slowly, and
    /// those in it come back again and again.
    pub(crate) fn sweep(&mut self, org: &OrgId, has_left: impl Fn(&T) -> bool) {
        let Some(line) = self.waiting.get_mut(org).filter(|line| line.waiting >= line.sweep_at) else {
            return;
        };
        line.sweep(has_left);
        if line.by_host.is_empty() {
            self.waiting.remove(org);
            self.order.retain(|it| it != org);
        }
    }

    /// The next that may start, which counts as started.
    ///
    /// Where nothing is left nothing is searched. Otherwise what is passed over has some, and of hosts and orgs there
    /// are only so many that can have. So nobody's queue makes this slow.
    pub(crate) fn next(&mut self) -> Option<(Turn, T)> {
        let free = self.bounds.all.saturating_sub(self.under_way);
        if free == 0 {
            return None;
        }
        let (at_host, none) = (self.bounds.at_host, Running::default());
        let shares = Shares { all: self.bounds.per_org, per_host: self.bounds.per_host };
        for at in 0..self.order.len() {
            let org = &self.order[at];
            let running = self.by_org.get(org).unwrap_or(&none);
            // As hosts do, an org leaves to the others as much as it has.
            if running.taken.all >= free {
                continue;
            }
            let Some(line) = self.waiting.get_mut(org) else { continue };
            let by_host = &self.by_host;
            let is_free = |host: &Arc<str>, is_known| {
                let count = |by_host: &HashMap<_, _>| by_host.get(host).copied().unwrap_or_default();
                let own = count(&running.by_host);
                // The same at each host.
                own < at_host.saturating_sub(count(by_host)) && shares.admits(running.taken, own, is_known)
            };
            // Strangers first: they never have more than their half, while known ones could have all.
            let next = match shares.left_to_strangers(running.taken) {
                0 => None,
                _ => line.next(false, is_free),
            };
            let next = match shares.left(running.taken) {
                0 => None,
                _ => next.or_else(|| line.next(true, is_free)),
            };
            let Some((host, is_known, who)) = next else { continue };
            let org = self.order.remove(at)?;
            if line.by_host.is_empty() {
                self.waiting.remove(&org);
            } else {
                self.order.push_back(org.clone());
            }
            let turn = Turn { site: OrgHost { org, host }, is_known };
            self.begin(&turn);
            return Some((turn, who));
        }
        None
    }

    fn begin(&mut self, turn: &Turn) {
        self.under_way += 1;
        *self.by_host.entry(Arc::clone(&turn.site.host)).or_default() += 1;
        let running = self.by_org.entry(turn.site.org.clone()).or_default();
        running.taken.all += 1;
        running.taken.by_strangers += usize::from(!turn.is_known);
        *running.by_host.entry(Arc::clone(&turn.site.host)).or_default() += 1;
    }

    pub(crate) fn end(&mut self, turn: &Turn) {
        self.under_way -= 1;
        one_less(&mut self.by_host, &turn.site.host);
        if let Some(running) = self.by_org.get_mut(&turn.site.org) {
            running.taken.all -= 1;
            running.taken.by_strangers -= usize::from(!turn.is_known);
            one_less(&mut running.by_host, &turn.site.host);
            if running.taken.all == 0 {
                self.by_org.remove(&turn.site.org);
            }
        }
    }
}

impl<T> Line<T> {
    fn new() -> Self {
        Self {
            by_host: HashMap::new(),
            known: VecDeque::new(),
            strangers: VecDeque::new(),
            waiting: 0,
            sweep_at: FEW,
        }
    }

    fn sweep(&mut self, has_left: impl Fn(&T) -> bool) {
        self.waiting = 0;
        self.by_host.retain(|_, waiting| {
            waiting.retain(|who| !has_left(who));
            waiting.shrink_to_fit();
            self.waiting += waiting.len();
            !waiting.is_empty()
        });
        for order in [&mut self.known, &mut self.strangers] {
            order.retain(|host| self.by_host.contains_key(host));
            order.shrink_to_fit();
        }
        self.by_host.shrink_to_fit();
        self.sweep_at = FEW.max(2 * self.waiting);
    }

    fn order(&mut self, is_known: bool) -> &mut VecDeque<Arc<str>> {
        if is_known { &mut self.known } else { &mut self.strangers }
    }

    fn move_to(&mut self, host: &Arc<str>, is_known: bool) {
        let from = self.order(!is_known);
        if let Some(host) = from.iter().position(|it| it == host).and_then(|at| from.remove(at)) {
            self.order(is_known).push_back(host);
        }
    }

    fn next(
        &mut self,
        is_known: bool,
        is_free: impl Fn(&Arc<str>, bool) -> bool,
    ) -> Option<(Arc<str>, bool, T)> {
        let order = self.order(is_known);
        let at = order.iter().position(|host| is_free(host, is_known))?;
        let host = order.remove(at)?;
        let waiting = self.by_host.get_mut(&host)?;
        let who = waiting.pop_front()?;
        self.waiting -= 1;
        if waiting.is_empty() {
            self.by_host.remove(&host);
        } else {
            self.order(is_known).push_back(Arc::clone(&host));
        }
        Some((host, is_known, who))
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

    fn site(org: &str, host: &str) -> OrgHost {
        OrgHost { org: OrgId::new(org), host: host.into() }
    }

    #[test]
    fn orgs_take_turns_and_so_do_the_hosts_of_one() {
        let mut turns = Turns::new(Bounds { all: 100, at_host: 100, per_host: 100, per_org: 100, known: 9 });
        for nth in 0..3 {
            turns.wait(site("a", "slow"), ("a", nth));
        }
        turns.wait(site("a", "fast"), ("a", 9));
        turns.wait(site("b", "slow"), ("b", 0));
        let order: Vec<_> = std::iter::from_fn(|| turns.next().map(|(_, who)| who)).collect();
        assert_eq!(order, [("a", 0), ("b", 0), ("a", 9), ("a", 1), ("a", 2)]);
    }

    #[test]
    fn a_host_at_its_bound_holds_nobody_who_wants_another() {
        let mut turns = Turns::new(Bounds { all: 100, at_host: 1, per_host: 1, per_org: 100, known: 9 });
        for nth in 0..5 {
            turns.wait(site("a", "hanging"), nth);
        }
        turns.wait(site("a", "good"), 9);
        let (first, _) = turns.next().unwrap();
        assert_eq!(turns.next().unwrap().1, 9);
        assert_eq!(turns.next(), None);
        turns.end(&first);
        assert_eq!(turns.next().unwrap().1, 1);
    }

    #[test]
    fn many_names_of_one_org_hold_no_other_org() {
        let mut turns = Turns::new(Bounds { all: 20, at_host: 16, per_host: 8, per_org: 8, known: 9 });
        for nth in 0..100 {
            turns.wait(site("wild", &format!("{nth}.example")), nth);
        }
        for _ in 0..4 {
            turns.next().unwrap();
        }
        assert_eq!(turns.next(), None);
        turns.wait(site("other", "good"), 1_000);
        assert_eq!(turns.next().unwrap().1, 1_000);
    }

    /// Each host waits for so many.
    fn crowd(turns: &mut Turns<usize>, org: &str, hosts: usize, each: usize) {
        for nth in 0..hosts * each {
            turns.wait(site(org, &format!("{}.example", nth % hosts)), nth);
        }
    }

    fn start_all<T>(turns: &mut Turns<T>) -> Vec<Turn> {
        std::iter::from_fn(|| turns.next().map(|(turn, _)| turn)).collect()
    }

    #[test]
    fn many_hosts_that_hang_leave_turns_to_the_next_host_of_their_org() {
        for (hosts, is_known) in [(12, false), (12, true), (31, false), (60, true)] {
            let mut turns = Turns::new(Bounds { all: 256, at_host: 16, per_host: 8, per_org: 64, known: 99 });
            for nth in 0..hosts {
                turns.learn(&site("a", &format!("{nth}.example")), is_known);
            }
            crowd(&mut turns, "a", hosts, 20);
            let stuck = start_all(&mut turns);
            assert!(stuck.len() >= hosts, "each of {hosts} has some");
            turns.wait(site("a", "good"), 9_999);
            assert_eq!(turns.next().unwrap().1, 9_999, "{hosts}");
        }
    }

    #[test]
    fn strangers_without_number_leave_half_to_a_host_that_gave_a_medium() {
        let mut turns = Turns::new(Bounds { all: 256, at_host: 16, per_host: 8, per_org: 64, known: 9 });
        let good = site("a", "good");
        crowd(&mut turns, "a", 1_000, 1);
        turns.wait(good.clone(), 9_999);
        assert_eq!(start_all(&mut turns).len(), 32);
        assert_eq!(turns.next(), None, "nobody has heard of it");
        turns.learn(&good, true);
        let (turn, who) = turns.next().unwrap();
        assert_eq!(who, 9_999);
        turns.end(&turn);
        turns.learn(&good, false);
        turns.wait(good, 10_000);
        assert_eq!(turns.next(), None, "it failed");
    }

    #[test]
    fn many_orgs_leave_turns_to_the_next_one() {
        let mut turns = Turns::new(Bounds { all: 256, at_host: 16, per_host: 8, per_org: 64, known: 99 });
        for org in 0..20 {
            for host in 0..40 {
                let site = site(&org.to_string(), &format!("{host}.{org}.example"));
                turns.learn(&site, true);
                (0..8).for_each(|nth| turns.wait(site.clone(), nth));
            }
        }
        start_all(&mut turns);
        turns.wait(site("other", "good"), 9_999);
        assert_eq!(turns.next().unwrap().1, 9_999);
    }

    #[test]
    fn many_fetches_of_one_org_from_a_host_leave_turns_there_to_other_orgs() {
        let mut turns = Turns::new(Bounds { all: 256, at_host: 16, per_host: 8, per_org: 64, known: 9 });
        crowd(&mut turns, "a", 1, 100);
        let mut had: Vec<_> = vec![start_all(&mut turns).len()];
        for org in ["b", "c", "d"] {
            crowd(&mut turns, org, 1, 100);
            let started = start_all(&mut turns);
            assert!(started.iter().all(|turn| turn.site.org == OrgId::new(org)), "{org}");
            had.push(started.len());
        }
        assert_eq!(had, [8, 4, 2, 1]);
    }

    #[test]
    fn who_left_takes_no_place_in_a_line_that_does_not_move() {
        let mut turns = Turns::new(Bounds { all: 1, at_host: 1, per_host: 1, per_org: 1, known: 9 });
        let org = OrgId::new("a");
        let come = |turns: &mut Turns<_>, host: &str, nth: usize, stays: bool| {
            turns.wait(site("a", host), (nth, stays));
            turns.sweep(&org, |(_, stays)| !stays);
        };
        come(&mut turns, "hangs", 0, true);
        let (stuck, _) = turns.next().unwrap();
        for nth in 1..=20_000 {
            let host = if nth % 2 == 0 { "hangs" } else { &format!("{nth}.example") };
            come(&mut turns, host, nth, nth % 2_000 == 1);
            let line = &turns.waiting[&org];
            assert_eq!(line.waiting, line.by_host.values().map(VecDeque::len).sum::<usize>());
            assert!(line.waiting <= FEW && line.by_host.len() == line.known.len() + line.strangers.len());
        }
        turns.end(&stuck);
        let mut seen = Vec::new();
        while let Some((turn, (nth, stays))) = turns.next() {
            turns.end(&turn);
            seen.extend(stays.then_some(nth));
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..10).map(|nth| nth * 2_000 + 1).collect::<Vec<_>>());
        (0..2 * FEW).for_each(|nth| turns.wait(site("a", "hangs"), (nth, false)));
        turns.sweep(&org, |(_, stays)| !stays);
        assert!(turns.waiting.is_empty() && turns.order.is_empty());
    }

    proptest! {
        #[test]
        fn bounds_hold_and_nobody_is_forgotten(
            wanted in proptest::collection::vec((0_u8..4, 0_u8..5), 0..80),
            ends in proptest::collection::vec(any::<u8>(), 0..200),
            all in 1_usize..6, at_host in 1_usize..6, per_host in 1_usize..4, per_org in 1_usize..4,
        ) {
            let mut turns = Turns::new(Bounds { all, at_host, per_host, per_org, known: 2 });
            for (nth, (org, host)) in wanted.iter().enumerate() {
                turns.wait(site(&org.to_string(), &host.to_string()), nth);
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
                        let count = |is_meant: &dyn Fn(&OrgHost) -> bool| {
                            running.iter().filter(|turn| is_meant(&turn.site)).count()
                        };
                        prop_assert!(count(&|site| site.host == one.site.host) <= at_host);
                        prop_assert!(count(&|site| *site == one.site) <= per_host.min(at_host.div_ceil(2)));
                        prop_assert!(count(&|site| site.org == one.site.org) <= per_org);
                    }
                }
                if running.is_empty() { break; }
                let draw = ends.next().unwrap_or(0);
                let ended = running.swap_remove(usize::from(draw) % running.len());
                turns.learn(&ended.site, draw % 3 > 0);
                turns.end(&ended);
            }
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..wanted.len()).collect::<Vec<_>>());
            prop_assert_eq!(turns.under_way(), 0);
            prop_assert!(turns.waiting.is_empty() && turns.order.is_empty());
            prop_assert!(turns.by_host.is_empty() && turns.by_org.is_empty());
        }
    }
}
