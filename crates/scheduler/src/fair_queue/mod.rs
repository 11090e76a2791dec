//! Pure core of the scheduler: chooses the next entry to run.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    mem::take,
    sync::Arc,
};

use tidegate_schemas::ids::OrgId;

use crate::{
    limits::{Limits, Usage},
    share::fits_share,
};

pub type Key = Arc<str>;

/// Entry to enqueue or start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub org: OrgId,
    /// Keys that it occupies while it runs, sorted and distinct. May be empty.
    pub keys: Arc<[Key]>,
    pub weight: usize,
    /// True if all of the keys are proven. The value of the latest request applies to the whole flow.
    pub is_proven: bool,
}

/// Accounting of one running entry, to be returned to [`FairQueue::finish`].
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

/// Limit that prevents an entry from being enqueued.
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
    /// Weight of running and waiting entries.
    pub weight: usize,
}

/// Queues of all orgs, with the accounting of their running entries.
#[derive(Debug)]
pub struct FairQueue<T> {
    limits: Limits,
    totals: Totals,
    orgs: HashMap<OrgId, Org<T>>,
    keys: HashMap<Key, KeyUsage>,
    /// Orgs that may have a runnable entry, by turn. Contains at least every org that has one.
    ready: BTreeMap<u64, OrgId>,
    /// Orgs that run as many entries as are free in total.
    blocked_by_total: BTreeSet<OrgId>,
    last_number: u64,
    /// Number of flows that `start_next` examined.
    #[cfg(test)]
    examined: usize,
}

/// Usage of a key by all orgs.
#[derive(Debug, Default)]
struct KeyUsage {
    running: usize,
    /// Orgs that found the key at its limit. They are examined again when an entry with the key ends.
    blocked_orgs: BTreeSet<OrgId>,
}

#[derive(Debug)]
struct Org<T> {
    /// Number of the last started entry. The org with the lowest turn is served next.
    turn: u64,
    running: Usage,
    weight: Usage,
    usage_by_key: HashMap<Key, OrgKeyUsage>,
    flows: BTreeMap<Arc<[Key]>, Flow<T>>,
    /// Flows by turn: first those with unproven keys, then those with proven keys.
    turns: [BTreeMap<u64, Arc<[Key]>>; 2],
    waiting: usize,
    waiting_weight: usize,
}

/// Usage of a key by one org.
#[derive(Clone, Copy, Debug, Default)]
struct OrgKeyUsage {
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

/// Limit that prevents an entry from running.
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
            blocked_by_total: BTreeSet::new(),
            last_number: 0,
            #[cfg(test)]
            examined: 0,
        }
    }

    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Adds an entry. A runnable entry is accepted even if the queue is full, because the caller starts it
    /// with `start_next`.
    pub fn push(&mut self, request: Request, value: T) -> Result<EntryId, QueueFull> {
        let Request { org: id, keys, weight, is_proven } = request;
        let (number, turn) = (self.next_number(), self.next_number());
        let limit = self.find_limit(&id, &keys, weight, is_proven);
        let org = self.orgs.entry(id.clone()).or_insert_with(|| Org::new(number));
        if limit.is_some()
            && let Err(full) = org.check_room(&self.limits, weight)
        {
            // The org may have been created for this entry.
            self.remove_if_idle(&id);
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
        // An existing flow takes over the value of the new entry.
        self.set_proven(&id, &keys, is_proven);
        match limit {
            None => self.mark_ready(&id),
            Some(limit) => self.record_blocked(&id, limit),
        }
        Ok(EntryId { org: id, keys, number })
    }

    /// Removes the next runnable entry from the queue and counts it as running.
    pub fn start_next(&mut self) -> Option<(Grant, T)> {
        while self.free_count() > 0 {
            let (_, id) = self.ready.pop_first()?;
            // An org without a runnable entry is marked ready again when the limit that blocks it changes.
            let Some((keys, number)) = self.find_runnable(&id) else { continue };
            let next_turn = self.next_number();
            let org = self.orgs.get_mut(&id)?;
            // The org is served again only after all others that have runnable entries.
            org.turn = next_turn;
            let is_proven = org.flows.get(&keys)?.is_proven;
            let entry = self.remove_entry(&id, &keys, number, Some(next_turn))?;
            let grant = self.start(id, keys, entry.weight, is_proven);
            self.mark_ready(&grant.org);
            return Some((grant, entry.value));
        }
        None
    }

    /// Starts an entry without enqueueing it, if it is runnable now.
    pub fn try_start(&mut self, request: Request) -> Option<Grant> {
        let Request { org, keys, weight, is_proven } = request;
        if self.find_limit(&org, &keys, weight, is_proven).is_some() {
            return None;
        }
        let number = self.next_number();
        self.orgs.entry(org.clone()).or_insert_with(|| Org::new(number));
        Some(self.start(org, keys, weight, is_proven))
    }

    /// Releases the limits that a running entry occupied.
    pub fn finish(&mut self, grant: Grant) {
        let Grant { org: id, keys, weight, is_proven } = grant;
        self.totals.running -= 1;
        self.totals.weight -= weight;
        // Any finished entry frees a permit, so all orgs blocked by the total have to be examined.
        let mut unblocked = take(&mut self.blocked_by_total);
        if let Some(org) = self.orgs.get_mut(&id) {
            org.running.subtract(1, is_proven);
            org.weight.subtract(weight, is_proven);
            for key in &*keys {
                if let Some(key_usage) = org.usage_by_key.get_mut(key) {
                    key_usage.running -= 1;
                    key_usage.weight -= weight;
                    // An idle key occupies no memory, as orgs may invent any number of names.
                    if key_usage.running == 0 {
                        org.usage_by_key.remove(key);
                    }
                }
            }
        }
        for key in &*keys {
            if let Some(usage) = self.keys.get_mut(key) {
                usage.running -= 1;
                unblocked.append(&mut usage.blocked_orgs);
                if usage.running == 0 {
                    self.keys.remove(key);
                }
            }
        }
        self.mark_ready(&id);
        unblocked.iter().for_each(|org| self.mark_ready(org));
        self.remove_if_idle(&id);
    }

    /// Removes an entry if it still waits.
    pub fn cancel(&mut self, id: &EntryId) -> Option<T> {
        let entry = self.remove_entry(&id.org, &id.keys, id.number, None)?;
        self.remove_if_idle(&id.org);
        Some(entry.value)
    }

    /// Updates whether the keys of a flow are proven. No effect on a flow without waiting entries.
    pub fn set_proven(&mut self, id: &OrgId, keys: &[Key], is_proven: bool) {
        let Some(org) = self.orgs.get_mut(id) else { return };
        if let Some(flow) = org.flows.get_mut(keys)
            && flow.is_proven != is_proven
        {
            flow.is_proven = is_proven;
            if let Some(keys) = org.turns[usize::from(!is_proven)].remove(&flow.turn) {
                org.turns[usize::from(is_proven)].insert(flow.turn, keys);
            }
            self.mark_ready(id);
        }
    }

    /// Updates the same for each flow of the org.
    pub fn update_proven(&mut self, id: &OrgId, is_proven: impl Fn(&[Key]) -> bool) {
        let Some(org) = self.orgs.get(id) else { return };
        let is_stale = |(keys, flow): &(&Arc<[Key]>, &Flow<T>)| is_proven(keys) != flow.is_proven;
        let outdated_keys: Vec<_> =
            org.flows.iter().filter(is_stale).map(|(keys, _)| Arc::clone(keys)).collect();
        for keys in outdated_keys {
            self.set_proven(id, &keys, is_proven(&keys));
        }
    }

    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    fn mark_ready(&mut self, id: &OrgId) {
        if let Some(org) = self.orgs.get(id).filter(|org| org.waiting > 0) {
            self.ready.insert(org.turn, id.clone());
        }
    }

    /// Records the org for the time when the limit may no longer block it. For its own limits, `finish` marks
    /// it ready anyway.
    fn record_blocked(&mut self, id: &OrgId, limit: BlockedBy) {
        match limit {
            BlockedBy::All => _ = self.blocked_by_total.insert(id.clone()),
            BlockedBy::Key(key) => {
                if let Some(usage) = self.keys.get_mut(&key) {
                    usage.blocked_orgs.insert(id.clone());
                }
            }
            BlockedBy::Org => {}
        }
    }

    fn find_limit(&self, id: &OrgId, keys: &[Key], weight: usize, is_proven: bool) -> Option<BlockedBy> {
        let idle = Org::new(0);
        let org = self.orgs.get(id).unwrap_or(&idle);
        if !fits_share(org.running.all, 1, self.free_count()) {
            return Some(BlockedBy::All);
        }
        org.find_limit(&self.limits, &self.keys, keys, is_proven)
            .or_else(|| (!org.has_room(&self.limits, keys, weight, is_proven)).then_some(BlockedBy::Org))
    }

    fn free_count(&self) -> usize {
        self.limits.running.saturating_sub(self.totals.running)
    }

    /// Finds the first runnable entry of the org.
    fn find_runnable(&mut self, id: &OrgId) -> Option<(Arc<[Key]>, u64)> {
        let org = self.orgs.get(id)?;
        if !fits_share(org.running.all, 1, self.free_count()) {
            self.blocked_by_total.insert(id.clone());
            return None;
        }
        let mut full_keys = BTreeSet::new();
        let mut candidate = None;
        // Unproven keys first: they are confined to their half, while proven ones first could use up all of
        // the limit.
        for is_proven in [false, true] {
            if candidate.is_some() || org.running.free_amount(self.limits.running_per_org, is_proven) == 0 {
                continue;
            }
            candidate = org.turns[usize::from(is_proven)].values().find_map(|keys| {
                #[cfg(test)]
                {
                    self.examined += 1;
                }
                match org.find_limit(&self.limits, &self.keys, keys, is_proven) {
                    None => {}
                    Some(BlockedBy::Key(key)) => {
                        full_keys.insert(key);
                        return None;
                    }
                    Some(_) => return None,
                }
                let mut entries = org.flows.get(keys)?.entries.iter();
                let (number, _) =
                    entries.find(|(_, entry)| org.has_room(&self.limits, keys, entry.weight, is_proven))?;
                Some((Arc::clone(keys), *number))
            });
        }
        // An org that starts an entry is marked ready again anyway.
        if candidate.is_none() {
            full_keys.into_iter().for_each(|key| self.record_blocked(id, BlockedBy::Key(key)));
        }
        candidate
    }

    fn start(&mut self, id: OrgId, keys: Arc<[Key]>, weight: usize, is_proven: bool) -> Grant {
        self.totals.running += 1;
        self.totals.weight += weight;
        if let Some(org) = self.orgs.get_mut(&id) {
            org.running.add(1, is_proven);
            org.weight.add(weight, is_proven);
            for key in &*keys {
                let key_usage = org.usage_by_key.entry(Arc::clone(key)).or_default();
                key_usage.running += 1;
                key_usage.weight += weight;
                self.keys.entry(Arc::clone(key)).or_default().running += 1;
            }
        }
        Grant { org: id, keys, weight, is_proven }
    }

    /// Removes an entry from its flow, and gives the flow a new turn if it was started.
    fn remove_entry(&mut self, id: &OrgId, keys: &[Key], number: u64, turn: Option<u64>) -> Option<Entry<T>> {
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

    fn remove_if_idle(&mut self, id: &OrgId) {
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
            usage_by_key: HashMap::new(),
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

    /// Finds the limit on the number of running entries that blocks a flow, apart from the total.
    fn find_limit(
        &self,
        limits: &Limits,
        key_usages: &HashMap<Key, KeyUsage>,
        keys: &[Key],
        is_proven: bool,
    ) -> Option<BlockedBy> {
        let free = self.running.free_amount(limits.running_per_org, is_proven);
        let busiest_count = self.max_key_usage(keys, |usage| usage.running);
        if !fits_share(busiest_count, 1, free.min(limits.running_per_org_and_key)) {
            return Some(BlockedBy::Org);
        }
        let is_at_limit = |key: &&Key| {
            let running = key_usages.get(*key).map_or(0, |usage| usage.running);
            let org_running = self.usage_by_key.get(*key).map_or(0, |usage| usage.running);
            !fits_share(org_running, 1, limits.running_per_key.saturating_sub(running))
        };
        keys.iter().find(is_at_limit).map(|key| BlockedBy::Key(Arc::clone(key)))
    }

    /// True if the weight fits beside the running entries. The first entry with proven keys and the first one
    /// with unproven keys always fit. So an entry waits for room only while another entry runs, and is
    /// examined again when that one ends.
    fn has_room(&self, limits: &Limits, keys: &[Key], weight: usize, is_proven: bool) -> bool {
        let busiest_weight = self.max_key_usage(keys, |usage| usage.weight);
        self.running.amount_by(is_proven) == 0
            || fits_share(busiest_weight, weight, self.weight.free_amount(limits.weight_per_org, is_proven))
    }

    /// Returns the usage of the key that the org uses most.
    fn max_key_usage(&self, keys: &[Key], measure: impl Fn(&OrgKeyUsage) -> usize) -> usize {
        keys.iter().filter_map(|key| self.usage_by_key.get(key)).map(measure).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
