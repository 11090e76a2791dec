//! Pure core of the scheduler: which entry may run next.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    mem::take,
    sync::Arc,
};

use tidegate_schemas::ids::OrgId;

use crate::limits::{Limits, Usage};

pub type Key = Arc<str>;

/// Entry to be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub org: OrgId,
    /// Keys that it occupies while it runs, sorted, each once. May be empty.
    pub keys: Arc<[Key]>,
    pub weight: usize,
    /// True if all of the keys have proven themselves. It then holds for the whole flow.
    pub is_proven: bool,
}

/// Right to run. It goes back to [`FairQueue::finish`].
#[derive(Debug, PartialEq, Eq)]
pub struct Grant {
    org: OrgId,
    keys: Arc<[Key]>,
    weight: usize,
    is_proven: bool,
}

/// Identifies a waiting entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryId {
    org: OrgId,
    keys: Arc<[Key]>,
    number: u64,
}

/// Limit that keeps an entry out of its org's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueueFull {
    #[error("too many entries of this org wait")]
    Entries,
    #[error("the waiting entries of this org weigh too much")]
    Weight,
}

/// Sums over all orgs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub running: usize,
    pub waiting: usize,
    /// Weight of what runs and what waits.
    pub weight: usize,
}

/// Queues of all orgs, with what they have running.
#[derive(Debug)]
pub struct FairQueue<T> {
    limits: Limits,
    totals: Totals,
    orgs: HashMap<OrgId, Org<T>>,
    keys: HashMap<Key, KeyUsage>,
    /// Orgs that may have an entry to start, by turn. Every org that has one is here.
    ready: BTreeMap<u64, OrgId>,
    /// Orgs that run as many entries as are free in all.
    blocked: BTreeSet<OrgId>,
    last_number: u64,
    /// Flows that `start_next` has looked at.
    #[cfg(test)]
    examined: usize,
}

/// Usage of a key by all orgs.
#[derive(Debug, Default)]
struct KeyUsage {
    running: usize,
    /// Orgs that found the key at its limit.
    blocked: BTreeSet<OrgId>,
}

#[derive(Debug)]
struct Org<T> {
    /// Grows with each entry that is started; the org with the lowest turn comes first.
    turn: u64,
    running: Usage,
    weight: Usage,
    by_key: HashMap<Key, OwnUsage>,
    flows: BTreeMap<Arc<[Key]>, Flow<T>>,
    /// Flows by turn: those with unproven keys, and those with proven ones.
    turns: [BTreeMap<u64, Arc<[Key]>>; 2],
    waiting: usize,
    waiting_weight: usize,
}

/// Usage of a key by one org.
#[derive(Clone, Copy, Debug, Default)]
struct OwnUsage {
    running: usize,
    weight: usize,
}

/// Waiting entries of one org with the same keys.
#[derive(Debug)]
struct Flow<T> {
    turn: u64,
    is_proven: bool,
    entries: BTreeMap<u64, Entry<T>>,
}

#[derive(Debug)]
struct Entry<T> {
    weight: usize,
    value: T,
}

/// Limit that keeps an entry from running.
enum BlockedBy {
    All,
    Org,
    Key(Key),
}

impl<T> FairQueue<T> {
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            totals: Totals::default(),
            orgs: HashMap::new(),
            keys: HashMap::new(),
            ready: BTreeMap::new(),
            blocked: BTreeSet::new(),
            last_number: 0,
            #[cfg(test)]
            examined: 0,
        }
    }

    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Adds an entry. One that may run at once is accepted although the queue is full: `start_next` is to be called next.
    pub fn push(&mut self, request: Request, value: T) -> Result<EntryId, QueueFull> {
        let Request { org: id, keys, weight, is_proven } = request;
        let (number, turn) = (self.next_number(), self.next_number());
        let blocked_by = self.blocked_by(&id, &keys, weight, is_proven);
        let org = self.orgs.entry(id.clone()).or_insert_with(|| Org::new(number));
        if blocked_by.is_some()
            && let Err(full) = org.check_room(&self.limits, weight)
        {
            self.forget_if_idle(&id);
            return Err(full);
        }
        let flow = org.flows.entry(Arc::clone(&keys)).or_insert_with(|| {
            org.turns[usize::from(is_proven)].insert(turn, Arc::clone(&keys));
            Flow { turn, is_proven, entries: BTreeMap::new() }
        });
        flow.entries.insert(number, Entry { weight, value });
        org.waiting += 1;
        org.waiting_weight += weight;
        self.totals.waiting += 1;
        self.totals.weight += weight;
        self.set_proven(&id, &keys, is_proven);
        match blocked_by {
            None => self.wake(&id),
            Some(limit) => self.note(&id, limit),
        }
        Ok(EntryId { org: id, keys, number })
    }

    /// Takes the next entry that may run, which counts as running from here on.
    pub fn start_next(&mut self) -> Option<(Grant, T)> {
        while self.free() > 0 {
            let (_, id) = self.ready.pop_first()?;
            // An org without an entry that may run comes back when a limit that blocks it changes.
            let Some((keys, number)) = self.find(&id) else { continue };
            let turn = self.next_number();
            let org = self.orgs.get_mut(&id)?;
            org.turn = turn;
            let is_proven = org.flows.get(&keys)?.is_proven;
            let entry = self.remove(&id, &keys, number, Some(turn))?;
            let grant = self.start(id, keys, entry.weight, is_proven);
            self.wake(&grant.org);
            return Some((grant, entry.value));
        }
        None
    }

    /// Starts an entry without queueing it, if it may run now.
    pub fn try_start(&mut self, request: Request) -> Option<Grant> {
        let Request { org, keys, weight, is_proven } = request;
        if self.blocked_by(&org, &keys, weight, is_proven).is_some() {
            return None;
        }
        let number = self.next_number();
        self.orgs.entry(org.clone()).or_insert_with(|| Org::new(number));
        Some(self.start(org, keys, weight, is_proven))
    }

    /// Frees what a running entry occupied.
    pub fn finish(&mut self, grant: Grant) {
        let Grant { org: id, keys, weight, is_proven } = grant;
        self.totals.running -= 1;
        self.totals.weight -= weight;
        let mut unblocked = take(&mut self.blocked);
        if let Some(org) = self.orgs.get_mut(&id) {
            org.running.subtract(1, is_proven);
            org.weight.subtract(weight, is_proven);
            for key in &*keys {
                if let Some(own) = org.by_key.get_mut(key) {
                    own.running -= 1;
                    own.weight -= weight;
                    if own.running == 0 {
                        org.by_key.remove(key);
                    }
                }
            }
        }
        for key in &*keys {
            if let Some(usage) = self.keys.get_mut(key) {
                usage.running -= 1;
                unblocked.append(&mut usage.blocked);
                if usage.running == 0 {
                    self.keys.remove(key);
                }
            }
        }
        self.wake(&id);
        unblocked.iter().for_each(|org| self.wake(org));
        self.forget_if_idle(&id);
    }

    /// Removes an entry if it still waits.
    pub fn cancel(&mut self, id: &EntryId) -> Option<T> {
        let entry = self.remove(&id.org, &id.keys, id.number, None)?;
        self.forget_if_idle(&id.org);
        Some(entry.value)
    }

    /// Says whether the keys of a flow have proven themselves, if it has waiting entries.
    pub fn set_proven(&mut self, id: &OrgId, keys: &[Key], is_proven: bool) {
        let Some(org) = self.orgs.get_mut(id) else { return };
        if let Some(flow) = org.flows.get_mut(keys)
            && flow.is_proven != is_proven
        {
            flow.is_proven = is_proven;
            if let Some(keys) = org.turns[usize::from(!is_proven)].remove(&flow.turn) {
                org.turns[usize::from(is_proven)].insert(flow.turn, keys);
            }
            self.wake(id);
        }
    }

    /// Says the same for each flow of the org.
    pub fn update_proven(&mut self, id: &OrgId, is_proven: impl Fn(&[Key]) -> bool) {
        let Some(org) = self.orgs.get(id) else { return };
        let is_stale = |(keys, flow): &(&Arc<[Key]>, &Flow<T>)| is_proven(keys) != flow.is_proven;
        let stale: Vec<_> = org.flows.iter().filter(is_stale).map(|(keys, _)| Arc::clone(keys)).collect();
        for keys in stale {
            self.set_proven(id, &keys, is_proven(&keys));
        }
    }

    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    fn wake(&mut self, id: &OrgId) {
        if let Some(org) = self.orgs.get(id).filter(|org| org.waiting > 0) {
            self.ready.insert(org.turn, id.clone());
        }
    }

    /// Has the org woken when the limit may no longer block it. For its own limits, `finish` does so anyway.
    fn note(&mut self, id: &OrgId, limit: BlockedBy) {
        match limit {
            BlockedBy::All => _ = self.blocked.insert(id.clone()),
            BlockedBy::Key(key) => {
                if let Some(usage) = self.keys.get_mut(&key) {
                    usage.blocked.insert(id.clone());
                }
            }
            BlockedBy::Org => {}
        }
    }

    fn blocked_by(&self, id: &OrgId, keys: &[Key], weight: usize, is_proven: bool) -> Option<BlockedBy> {
        let idle = Org::new(0);
        let org = self.orgs.get(id).unwrap_or(&idle);
        if org.running.all >= self.free() {
            return Some(BlockedBy::All);
        }
        org.blocked_by(&self.limits, &self.keys, keys, is_proven)
            .or_else(|| (!org.bears(&self.limits, keys, weight, is_proven)).then_some(BlockedBy::Org))
    }

    fn free(&self) -> usize {
        self.limits.running.saturating_sub(self.totals.running)
    }

    /// The first entry of the org that may run.
    fn find(&mut self, id: &OrgId) -> Option<(Arc<[Key]>, u64)> {
        let org = self.orgs.get(id)?;
        if org.running.all >= self.free() {
            self.blocked.insert(id.clone());
            return None;
        }
        let mut full_keys = BTreeSet::new();
        let mut found = None;
        // Unproven keys first: they never have more than their half, while proven ones could have all.
        for is_proven in [false, true] {
            if found.is_some() || org.running.left(self.limits.running_per_org, is_proven) == 0 {
                continue;
            }
            found = org.turns[usize::from(is_proven)].values().find_map(|keys| {
                #[cfg(test)]
                {
                    self.examined += 1;
                }
                match org.blocked_by(&self.limits, &self.keys, keys, is_proven) {
                    None => {}
                    Some(BlockedBy::Key(key)) => {
                        full_keys.insert(key);
                        return None;
                    }
                    Some(_) => return None,
                }
                let mut entries = org.flows.get(keys)?.entries.iter();
                let (number, _) =
                    entries.find(|(_, entry)| org.bears(&self.limits, keys, entry.weight, is_proven))?;
                Some((Arc::clone(keys), *number))
            });
        }
        // An org that starts something is looked at again anyway.
        if found.is_none() {
            full_keys.into_iter().for_each(|key| self.note(id, BlockedBy::Key(key)));
        }
        found
    }

    fn start(&mut self, id: OrgId, keys: Arc<[Key]>, weight: usize, is_proven: bool) -> Grant {
        self.totals.running += 1;
        self.totals.weight += weight;
        if let Some(org) = self.orgs.get_mut(&id) {
            org.running.add(1, is_proven);
            org.weight.add(weight, is_proven);
            for key in &*keys {
                let own = org.by_key.entry(Arc::clone(key)).or_default();
                own.running += 1;
                own.weight += weight;
                self.keys.entry(Arc::clone(key)).or_default().running += 1;
            }
        }
        Grant { org: id, keys, weight, is_proven }
    }

    /// Takes an entry out of its flow, which gets the given turn.
    fn remove(&mut self, id: &OrgId, keys: &[Key], number: u64, turn: Option<u64>) -> Option<Entry<T>> {
        let org = self.orgs.get_mut(id)?;
        let flow = org.flows.get_mut(keys)?;
        let entry = flow.entries.remove(&number)?;
        let turns = &mut org.turns[usize::from(flow.is_proven)];
        if flow.entries.is_empty() {
            turns.remove(&flow.turn);
            org.flows.remove(keys);
        } else if let Some(turn) = turn
            && let Some(keys) = turns.remove(&flow.turn)
        {
            flow.turn = turn;
            turns.insert(turn, keys);
        }
        org.waiting -= 1;
        org.waiting_weight -= entry.weight;
        self.totals.waiting -= 1;
        self.totals.weight -= entry.weight;
        Some(entry)
    }

    fn forget_if_idle(&mut self, id: &OrgId) {
        if let Some(org) = self.orgs.get(id).filter(|org| org.waiting == 0) {
            self.ready.remove(&org.turn);
            if org.running.all == 0 {
                self.orgs.remove(id);
            }
        }
    }
}

impl<T> Org<T> {
    fn new(turn: u64) -> Self {
        Self {
            turn,
            running: Usage::default(),
            weight: Usage::default(),
            by_key: HashMap::new(),
            flows: BTreeMap::new(),
            turns: [BTreeMap::new(), BTreeMap::new()],
            waiting: 0,
            waiting_weight: 0,
        }
    }

    fn check_room(&self, limits: &Limits, weight: usize) -> Result<(), QueueFull> {
        if self.waiting >= limits.waiting_per_org {
            return Err(QueueFull::Entries);
        }
        let weight = self.waiting_weight.saturating_add(weight);
        if self.waiting > 0 && weight > limits.waiting_weight_per_org {
            return Err(QueueFull::Weight);
        }
        Ok(())
    }

    /// Limit on the number of running entries that blocks a flow, apart from the limit on all.
    fn blocked_by(
        &self,
        limits: &Limits,
        all: &HashMap<Key, KeyUsage>,
        keys: &[Key],
        is_proven: bool,
    ) -> Option<BlockedBy> {
        let left = self.running.left(limits.running_per_org, is_proven);
        let most = self.most(keys, |own| own.running);
        if most >= left.min(limits.running_per_org_and_key) {
            return Some(BlockedBy::Org);
        }
        let is_full = |key: &&Key| {
            let running = all.get(*key).map_or(0, |usage| usage.running);
            let own = self.by_key.get(*key).map_or(0, |own| own.running);
            own >= limits.running_per_key.saturating_sub(running)
        };
        keys.iter().find(is_full).map(|key| BlockedBy::Key(Arc::clone(key)))
    }

    /// True if there is room for the weight beside what runs. The first entry with proven keys and the first one with
    /// unproven keys always find room; so whatever waits for room waits for another one's end.
    fn bears(&self, limits: &Limits, keys: &[Key], weight: usize, is_proven: bool) -> bool {
        let own = self.most(keys, |own| own.weight);
        self.running.by(is_proven) == 0
            || own.saturating_add(weight) <= self.weight.left(limits.weight_per_org, is_proven)
    }

    /// Usage of the key that the org uses most.
    fn most(&self, keys: &[Key], of: impl Fn(&OwnUsage) -> usize) -> usize {
        keys.iter().filter_map(|key| self.by_key.get(key)).map(of).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
