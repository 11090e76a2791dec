#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

fn request(org: &str, keys: &[&str]) -> Request {
    let keys = keys.iter().map(|key| Key::from(*key)).collect();
    Request { org: OrgId::new(org), keys, weight: 0, is_proven: false }
}

fn proven(org: &str, key: &str) -> Request {
    Request { is_proven: true, ..request(org, &[key]) }
}

fn start_all<T>(queue: &mut FairQueue<T>) -> Vec<Grant> {
    std::iter::from_fn(|| queue.start_next()).map(|(grant, _)| grant).collect()
}

fn is_idle<T>(queue: &FairQueue<T>) -> bool {
    queue.totals == Totals::default()
        && queue.orgs.is_empty()
        && queue.keys.is_empty()
        && queue.ready.is_empty()
        && queue.blocked_by_total.is_empty()
}

/// Returns the limits of media fetches.
fn fetches() -> Limits {
    Limits {
        running: 256,
        running_per_org: 64,
        running_per_key: 16,
        running_per_org_and_key: 8,
        ..Limits::UNLIMITED
    }
}

/// Pushes `each` entries for each of `keys` keys.
fn crowd(queue: &mut FairQueue<usize>, org: &str, keys: usize, each: usize, is_proven: bool) {
    for nth in 0..keys * each {
        let key = format!("{}.example", nth % keys);
        queue.push(Request { is_proven, ..request(org, &[&key]) }, nth).unwrap();
    }
}

#[test]
fn orgs_and_their_keys_take_turns() {
    let mut queue = FairQueue::new(Limits::UNLIMITED);
    for nth in 0..3 {
        queue.push(request("a", &["slow"]), ("a", nth)).unwrap();
    }
    queue.push(request("a", &["fast"]), ("a", 9)).unwrap();
    queue.push(request("b", &["slow"]), ("b", 0)).unwrap();
    let order: Vec<_> = std::iter::from_fn(|| queue.start_next().map(|(_, value)| value)).collect();
    assert_eq!(order, [("a", 0), ("b", 0), ("a", 9), ("a", 1), ("a", 2)]);
}

#[test]
fn key_at_its_limit_blocks_no_other_key() {
    let mut queue = FairQueue::new(Limits { running_per_key: 1, ..Limits::UNLIMITED });
    for nth in 0..5 {
        queue.push(request("a", &["hanging"]), nth).unwrap();
    }
    queue.push(request("a", &["good", "hanging"]), 8).unwrap();
    queue.push(request("a", &["good"]), 9).unwrap();
    let (first, _) = queue.start_next().unwrap();
    assert_eq!(queue.start_next().unwrap().1, 9);
    assert_eq!(queue.start_next(), None);
    queue.finish(first);
    assert_eq!(queue.start_next().unwrap().1, 1);
}

#[test]
fn hanging_keys_leave_a_permit_to_the_next_key() {
    for (keys, is_proven, entries_per_key) in [
        (1, false, 8),
        (12, false, 3),
        (31, false, 1),
        (1, true, 8),
        (4, true, 8),
        (12, true, 5),
        (63, true, 1),
    ] {
        let mut queue = FairQueue::new(fetches());
        crowd(&mut queue, "a", keys, 20, is_proven);
        let mut running = BTreeMap::<_, usize>::new();
        start_all(&mut queue).iter().for_each(|grant| *running.entry(grant.keys.clone()).or_default() += 1);
        assert!(
            running.values().all(|count| *count == entries_per_key || *count + 1 == entries_per_key),
            "{keys}: {running:?}"
        );
        assert_eq!(running.len(), keys);
        queue.push(Request { is_proven, ..request("a", &["good"]) }, 9_999).unwrap();
        assert_eq!(queue.start_next().unwrap().1, 9_999, "{keys}");
    }
}

#[test]
fn unproven_keys_leave_half_to_proven_ones() {
    let mut queue = FairQueue::new(fetches());
    let good = request("a", &["good"]);
    crowd(&mut queue, "a", 1_000, 1, false);
    queue.push(good.clone(), 9_999).unwrap();
    assert_eq!(start_all(&mut queue).len(), 32);
    queue.set_proven(&good.org, &good.keys, true);
    let (grant, value) = queue.start_next().unwrap();
    assert_eq!(value, 9_999);
    queue.finish(grant);
    queue.push(good, 10_000).unwrap();
    assert_eq!(queue.start_next(), None, "the key is no longer proven");
    queue.update_proven(&OrgId::new("a"), |keys| *keys[0] == *"good");
    assert_eq!(queue.start_next().unwrap().1, 10_000);
}

#[test]
fn orgs_share_a_key_by_halves() {
    let mut queue = FairQueue::new(fetches());
    let mut started_counts = Vec::new();
    for org in ["a", "b", "c", "d"] {
        crowd(&mut queue, org, 1, 100, false);
        let started = start_all(&mut queue);
        assert!(started.iter().all(|grant| grant.org == OrgId::new(org)), "{org}");
        started_counts.push(started.len());
    }
    assert_eq!(started_counts, [8, 4, 2, 1]);
}

#[test]
fn weight_is_shared_like_permits() {
    let limits = Limits { weight_per_org: 100, ..Limits::UNLIMITED };
    for (key, is_proven, most) in [("a", true, 20), ("b", true, 60), ("c", false, 50), ("a", false, 10)] {
        for (weight, starts) in [(most, true), (most + 1, false)] {
            let mut queue = FairQueue::<()>::new(limits);
            for held in [proven("o", "a"), request("o", &["d"])] {
                let weight = if held.is_proven { 40 } else { 0 };
                queue.try_start(Request { weight, ..held }).unwrap();
            }
            let next = Request { weight, is_proven, ..request("o", &[key]) };
            assert_eq!(queue.try_start(next).is_some(), starts, "{key} {weight}");
        }
    }
}

#[test]
fn entry_above_the_weight_limit_runs_alone() {
    let mut queue = FairQueue::new(Limits { weight_per_org: 100, ..Limits::UNLIMITED });
    let heavy = |key| Request { weight: 5_000, ..request("o", &[key]) };
    let first = queue.try_start(heavy("a")).unwrap();
    queue.push(heavy("b"), ()).unwrap();
    assert!(queue.start_next().is_none());
    let proven_grant = queue.try_start(Request { weight: 70, ..proven("o", "c") }).unwrap();
    queue.finish(proven_grant);
    assert!(queue.start_next().is_none(), "an entry of another kind ended");
    queue.finish(first);
    assert!(queue.start_next().is_some());
}

/// Hosts can have any number of names.
#[test]
fn idle_keys_occupy_no_memory() {
    let mut queue = FairQueue::new(Limits { waiting_per_org: 20_000, ..fetches() });
    let (mut waiting, mut running) = (Vec::new(), Vec::new());
    let mut refused = 0;
    for nth in 0..50_000 {
        match queue.push(request("a", &[&nth.to_string()]), nth) {
            Ok(id) => {
                waiting.push(id);
                running.append(&mut start_all(&mut queue));
            }
            Err(full) => {
                assert_eq!(full, QueueFull::Entries);
                refused += 1;
            }
        }
        // A caller that leaves and returns uses no more memory than one that stays.
        let id = queue.push(request("b", &[&nth.to_string()]), nth).unwrap();
        queue.cancel(&id).unwrap();
    }
    assert_eq!((running.len(), refused), (32, 50_000 - 20_000 - 32));
    let org = &queue.orgs[&OrgId::new("a")];
    assert_eq!((queue.orgs.len(), queue.keys.len()), (1, 32));
    assert_eq!((org.flows.len(), org.turns[0].len(), org.usage_by_key.len()), (20_000, 20_000, 32));
    for id in &waiting {
        queue.cancel(id);
    }
    let org = &queue.orgs[&OrgId::new("a")];
    assert!(org.flows.is_empty() && org.turns[0].is_empty() && queue.ready.is_empty());
    running.into_iter().for_each(|grant| queue.finish(grant));
    assert!(is_idle(&queue));
}

#[test]
fn start_time_does_not_depend_on_queue_length() {
    let mut queue = FairQueue::new(fetches());
    for org in 0..100 {
        crowd(&mut queue, &org.to_string(), 200, 1, org % 2 == 0);
    }
    // All of these orgs wait for one key only, which is at its limit.
    for org in 100..1_100 {
        crowd(&mut queue, &org.to_string(), 1, 20, true);
    }
    let mut running: std::collections::VecDeque<_> = start_all(&mut queue).into();
    assert!(running.len() > 200);
    queue.examined = 0;
    for _ in 0..1_000 {
        queue.finish(running.pop_front().unwrap());
        running.extend(start_all(&mut queue));
    }
    let flows_per_start = queue.examined / 1_000;
    assert!(flows_per_start < 256, "{flows_per_start} flows for each start");
}

#[derive(Clone, Debug)]
enum Step {
    Push(Request),
    TryStart(Request),
    StartAll,
    StartNext,
    Finish(usize),
    Cancel(usize),
    SetProven { draw: usize, is_proven: bool },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let keys = proptest::collection::btree_set(0_u8..4, 0..3);
    let entry = (0_u8..4, keys, 0_usize..12, any::<bool>()).prop_map(|(org, keys, weight, is_proven)| {
        let keys = keys.into_iter().map(|key| Key::from(key.to_string())).collect();
        Request { org: OrgId::new(org.to_string()), keys, weight, is_proven }
    });
    let step = prop_oneof![
        6 => entry.clone().prop_map(Step::Push),
        1 => entry.prop_map(Step::TryStart),
        3 => Just(Step::StartAll),
        2 => Just(Step::StartNext),
        4 => any::<usize>().prop_map(Step::Finish),
        1 => any::<usize>().prop_map(Step::Cancel),
        1 => (any::<usize>(), any::<bool>()).prop_map(|(draw, is_proven)| Step::SetProven { draw, is_proven }),
    ];
    proptest::collection::vec(step, 0..150)
}

fn limits() -> impl Strategy<Value = Limits> {
    let limit_below = |most: usize| prop_oneof![3 => 1..most, 1 => Just(usize::MAX)];
    (
        limit_below(12),
        limit_below(8),
        limit_below(6),
        limit_below(5),
        limit_below(40),
        limit_below(8),
        limit_below(40),
    )
        .prop_map(|it| Limits {
            running: it.0,
            running_per_org: it.1,
            running_per_key: it.2,
            running_per_org_and_key: it.3,
            weight_per_org: it.4,
            waiting_per_org: it.5,
            waiting_weight_per_org: it.6,
        })
}

/// Waiting and running entries as lists, from which every count is computed independently.
struct Model {
    limits: Limits,
    queue: FairQueue<u64>,
    waiting: Vec<(EntryId, Request, u64)>,
    running: Vec<Grant>,
    last: u64,
    /// Starts of the second one since the first one had its turn, while the first one had an entry that might
    /// run.
    passed: BTreeMap<(Party, Party), usize>,
}

/// An org, or a flow of it.
type Party = (OrgId, Option<(Arc<[Key]>, bool)>);

fn parties(it: &Request) -> [Party; 2] {
    [(it.org.clone(), None), (it.org.clone(), Some((Arc::clone(&it.keys), it.is_proven)))]
}

/// True if both take turns with each other: orgs do, and flows of one org and kind.
fn are_rivals(a: &Party, b: &Party) -> bool {
    match (&a.1, &b.1) {
        (None, None) => a.0 != b.0,
        (Some(one), Some(other)) => a.0 == b.0 && one.0 != other.0 && one.1 == other.1,
        _ => false,
    }
}

impl Model {
    fn new(limits: Limits) -> Self {
        Self {
            limits,
            queue: FairQueue::new(limits),
            waiting: Vec::new(),
            running: Vec::new(),
            last: 0,
            passed: BTreeMap::new(),
        }
    }

    fn count(&self, is_meant: impl Fn(&Grant) -> bool) -> usize {
        self.running.iter().filter(|grant| is_meant(grant)).count()
    }

    fn weigh(&self, is_meant: impl Fn(&Grant) -> bool) -> usize {
        self.running.iter().filter(|grant| is_meant(grant)).map(|grant| grant.weight).sum()
    }

    /// States the rules of the crate's documentation again, with independently computed counts.
    fn may_run(&self, it: &Request) -> bool {
        let Limits { running, running_per_org, running_per_key, running_per_org_and_key, .. } = self.limits;
        let is_of_org = |grant: &Grant| grant.org == it.org;
        let is_alike = |grant: &Grant| is_of_org(grant) && grant.is_proven == it.is_proven;
        if self.count(is_of_org) >= running - self.running.len() {
            return false;
        }
        let share = |limit: usize, all: usize, alike: usize| {
            let half = if it.is_proven { limit } else { (limit.div_ceil(2)).saturating_sub(alike) };
            limit.saturating_sub(all).min(half)
        };
        let free_permits = share(running_per_org, self.count(is_of_org), self.count(is_alike));
        let running_of_key = |key: &Key| self.count(|grant| is_of_org(grant) && grant.keys.contains(key));
        let most = it.keys.iter().map(running_of_key).max().unwrap_or(0);
        if most + 1 > free_permits.min(running_per_org_and_key) {
            return false;
        }
        let running_at_key = |key: &Key| self.count(|grant| grant.keys.contains(key));
        if it.keys.iter().any(|key| running_of_key(key) + running_at_key(key) >= running_per_key) {
            return false;
        }
        let weight_left = share(self.limits.weight_per_org, self.weigh(is_of_org), self.weigh(is_alike));
        let weight_of = |key: &Key| self.weigh(|grant| is_of_org(grant) && grant.keys.contains(key));
        let most = it.keys.iter().map(weight_of).max().unwrap_or(0);
        self.count(is_alike) == 0 || most + it.weight <= weight_left
    }

    fn waiting_of<'m>(&'m self, org: &'m OrgId) -> impl Iterator<Item = &'m Request> {
        self.waiting.iter().map(|(_, request, _)| request).filter(move |request| request.org == *org)
    }

    fn push(&mut self, request: Request) {
        self.last += 1;
        let may_run = self.may_run(&request);
        let count = self.waiting_of(&request.org).count();
        let weight: usize = self.waiting_of(&request.org).map(|it| it.weight).sum();
        match self.queue.push(request.clone(), self.last) {
            Ok(id) => {
                assert!(may_run || count < self.limits.waiting_per_org);
                assert!(
                    may_run || count == 0 || weight + request.weight <= self.limits.waiting_weight_per_org
                );
                self.set_proven(&request.org, &request.keys, request.is_proven);
                self.waiting.push((id, request, self.last));
            }
            Err(QueueFull::Entries) => assert!(!may_run && count >= self.limits.waiting_per_org),
            Err(QueueFull::Weight) => {
                assert!(!may_run && weight + request.weight > self.limits.waiting_weight_per_org);
            }
        }
    }

    fn set_proven(&mut self, org: &OrgId, keys: &[Key], is_proven: bool) {
        for (_, request, _) in &mut self.waiting {
            if request.org == *org && *request.keys == *keys {
                request.is_proven = is_proven;
            }
        }
    }

    fn start_next(&mut self) -> bool {
        let Some((grant, value)) = self.queue.start_next() else {
            let runnable = self.waiting.iter().find(|(_, request, _)| self.may_run(request));
            assert_eq!(runnable, None, "a waiting entry could run");
            return false;
        };
        let at = self
            .waiting
            .iter()
            .position(|(.., waiting)| *waiting == value)
            .expect("the started entry was waiting");
        let (_, request, _) = &self.waiting[at];
        assert!(self.may_run(request), "above a limit: {request:?}");
        assert_eq!((&grant.org, &grant.keys), (&request.org, &request.keys));
        assert_eq!((grant.weight, grant.is_proven), (request.weight, request.is_proven));
        for (_, earlier, _) in &self.waiting[..at] {
            let is_of_flow = earlier.org == request.org && earlier.keys == request.keys;
            assert!(!is_of_flow || !self.may_run(earlier), "an earlier entry of the flow could run");
        }
        self.check_turns(&request.clone());
        self.waiting.remove(at);
        self.running.push(grant);
        true
    }

    /// No party is served twice while another one has a runnable entry.
    fn check_turns(&mut self, served: &Request) {
        let runnable = self.waiting.iter().map(|(_, it, _)| it).filter(|it| self.may_run(it));
        let waiting: BTreeSet<_> = runnable.flat_map(parties).collect();
        for served in parties(served) {
            for it in waiting.iter().filter(|it| are_rivals(it, &served)) {
                let passed = self.passed.entry((it.clone(), served.clone())).or_default();
                *passed += 1;
                assert_eq!(*passed, 1, "{served:?} was served twice before {it:?}");
            }
            self.passed.retain(|(it, _), _| *it != served);
        }
    }

    /// A party without waiting entries loses its turn.
    fn forget_turns(&mut self) {
        let waiting: BTreeSet<_> = self.waiting.iter().flat_map(|(_, it, _)| parties(it)).collect();
        self.passed.retain(|(it, _), _| waiting.contains(it));
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Push(request) => self.push(request),
            Step::TryStart(request) => {
                let may_run = self.may_run(&request);
                let grant = self.queue.try_start(request);
                assert_eq!(grant.is_some(), may_run);
                self.running.extend(grant);
            }
            Step::StartNext => _ = self.start_next(),
            Step::StartAll => while self.start_next() {},
            Step::Finish(draw) if !self.running.is_empty() => {
                let grant = self.running.swap_remove(draw % self.running.len());
                self.queue.finish(grant);
            }
            Step::Cancel(draw) if !self.waiting.is_empty() => {
                let (id, _, value) = self.waiting.remove(draw % self.waiting.len());
                assert_eq!(self.queue.cancel(&id), Some(value));
                assert_eq!(self.queue.cancel(&id), None);
            }
            Step::SetProven { draw, is_proven } if !self.waiting.is_empty() => {
                let (_, Request { org, keys, .. }, _) = self.waiting[draw % self.waiting.len()].clone();
                self.queue.set_proven(&org, &keys, is_proven);
                self.set_proven(&org, &keys, is_proven);
            }
            Step::Finish(_) | Step::Cancel(_) | Step::SetProven { .. } => {}
        }
    }

    /// Limits on weight have exceptions; see `may_run`.
    fn check(&self) {
        let weight = |(_, request, _): &(EntryId, Request, u64)| request.weight;
        let waiting: usize = self.waiting.iter().map(weight).sum();
        let totals = Totals {
            running: self.running.len(),
            waiting: self.waiting.len(),
            weight: waiting + self.weigh(|_| true),
        };
        assert_eq!(self.queue.totals(), totals);
        let limits = &self.limits;
        assert!(self.running.len() <= limits.running);
        for grant in &self.running {
            let is_of_org = |it: &Grant| it.org == grant.org;
            assert!(self.count(is_of_org) <= limits.running_per_org);
            assert!(self.count(|it| is_of_org(it) && !it.is_proven) <= limits.running_per_org.div_ceil(2));
            for key in &*grant.keys {
                let has_key = |it: &Grant| it.keys.contains(key);
                assert!(self.count(has_key) <= limits.running_per_key);
                assert!(self.count(|it| is_of_org(it) && has_key(it)) <= limits.running_per_org_and_key);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn limits_order_and_turns_hold_without_leaks(limits in limits(), steps in steps()) {
        let mut model = Model::new(limits);
        for step in steps {
            model.take(step);
            model.forget_turns();
            model.check();
        }
        while model.start_next() {}
        while !model.running.is_empty() {
            model.take(Step::Finish(model.running.len() / 2));
            while model.start_next() {}
            model.check();
        }
        prop_assert!(model.waiting.is_empty(), "every waiting entry waits for the end of another one");
        prop_assert!(is_idle(&model.queue));
    }
}
