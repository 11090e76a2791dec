//! Queues of due attempts, one for each endpoint of an org: limits for each and for all, round robin.
//!
//! It is pure: it sends nothing and keeps nothing beyond its bounds; what finds no room waits in the store.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use tidegate_schemas::ids::{EndpointId, EventId, Millis, OrgId};

/// Unit of isolation: one endpoint of one org.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct EndpointKey {
    pub(crate) org: OrgId,
    pub(crate) endpoint: EndpointId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Attempts under way in one queue.
    pub(crate) queue: usize,
    /// Attempts under way in all.
    pub(crate) all: usize,
    /// Deliveries that wait in one queue.
    pub(crate) backlog: usize,
    /// Deliveries that wait in all; a queue with few waiting takes more in spite of it.
    pub(crate) backlog_of_all: usize,
    pub(crate) longest_deferral: Duration,
}

/// A delivery that is owed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DueAttempt {
    pub(crate) queue: EndpointKey,
    pub(crate) event_id: EventId,
    pub(crate) shard: u32,
    /// Since when.
    pub(crate) due_at: Millis,
    /// This process has accepted it just now, so nobody has attempted it before.
    pub(crate) is_fresh: bool,
}

impl DueAttempt {
    fn id(&self) -> (OrgId, EventId) {
        (self.queue.org.clone(), self.event_id)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Waiting,
    UnderWay,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offered {
    Taken,
    /// It waits here already.
    Waits,
    IsUnderWay,
    /// The queue is full. It has a place in the queue's queue in the store, which comes up at this time.
    Full(Millis),
    /// No attempt is started any more.
    Closed,
}

#[derive(Debug)]
struct EndpointQueue {
    waiting: VecDeque<DueAttempt>,
    under_way: usize,
    /// It stands among the turns.
    has_turn: bool,
    /// Duration of attempts, the last ones counting most.
    mean: Duration,
    /// Time at which the last delivery that found no room is due again.
    deferred_to: Option<Millis>,
    /// Since when the oldest that found no room is owed; until the queue was empty.
    oldest_deferred: Option<Millis>,
}

#[derive(Debug)]
pub(crate) struct EndpointQueues {
    bounds: Bounds,
    queues: HashMap<EndpointKey, EndpointQueue>,
    /// EndpointQueues that have something waiting and room to start it, each once.
    turns: VecDeque<EndpointKey>,
    known: HashMap<(OrgId, EventId), At>,
    under_way: usize,
    is_closed: bool,
}

/// A queue is never believed to be faster: a burst of failures in no time must not call its whole queue back at once.
const SHORTEST: Duration = Duration::from_millis(5);
const SHORTEST_DEFERRAL: Duration = Duration::from_secs(1);
/// Assumed duration of an attempt before the first one has ended.
const UNKNOWN: Duration = Duration::from_millis(200);
/// Number of deliveries that may wait in any queue, so that stuck queues leave room for the others.
const FEW: usize = 64;

impl EndpointQueues {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            queues: HashMap::new(),
            turns: VecDeque::new(),
            known: HashMap::new(),
            under_way: 0,
            is_closed: false,
        }
    }

    pub(crate) const fn under_way(&self) -> usize {
        self.under_way
    }

    pub(crate) fn waiting(&self) -> usize {
        self.known.len() - self.under_way
    }

    /// Since when the oldest that is owed and not under way is due, as far as it is known here.
    pub(crate) fn oldest_due(&self) -> Option<Millis> {
        let of = |queue: &EndpointQueue| {
            queue.waiting.front().map(|work| work.due_at).into_iter().chain(queue.oldest_deferred).min()
        };
        self.queues.values().filter_map(of).min()
    }

    pub(crate) fn offer(&mut self, work: DueAttempt, now: Millis) -> Offered {
        match self.known.get(&work.id()) {
            Some(At::Waiting) => return Offered::Waits,
            Some(At::UnderWay) => return Offered::IsUnderWay,
            None if self.is_closed => return Offered::Closed,
            None => {}
        }
        let is_crowded = self.waiting() >= self.bounds.backlog_of_all;
        let queue = self.queues.entry(work.queue.clone()).or_insert_with(EndpointQueue::new);
        if queue.waiting.len() >= self.bounds.backlog || (is_crowded && queue.waiting.len() >= FEW) {
            return Offered::Full(queue.defer(&self.bounds, work.due_at, now));
        }
        self.known.insert(work.id(), At::Waiting);
        let key = work.queue.clone();
        queue.waiting.push_back(work);
        self.next_queue(&key);
        Offered::Taken
    }

    /// The next to attempt. It comes back through `finish`.
    pub(crate) fn start(&mut self) -> Option<DueAttempt> {
        if self.under_way >= self.bounds.all {
            return None;
        }
        loop {
            let key = self.turns.pop_front()?;
            let Some(queue) = self.queues.get_mut(&key) else { continue };
            queue.has_turn = false;
            // The bound may have been lowered since it got its turn.
            if queue.under_way >= self.bounds.queue {
                continue;
            }
            let Some(work) = queue.waiting.pop_front() else { continue };
            self.known.insert(work.id(), At::UnderWay);
            queue.under_way += 1;
            self.under_way += 1;
            self.next_queue(&key);
            return Some(work);
        }
    }

    /// Sets the number of attempts that each queue may have under way from now on. Attempts above it run to their end.
    pub(crate) fn limit_queues(&mut self, attempts: usize) {
        if self.bounds.queue == attempts {
            return;
        }
        self.bounds.queue = attempts;
        let keys: Vec<_> = self.queues.keys().cloned().collect();
        for key in keys {
            self.next_queue(&key);
        }
    }

    /// Puts a queue among the turns, once, if something of it may start.
    fn next_queue(&mut self, key: &EndpointKey) {
        let Some(queue) = self.queues.get_mut(key) else { return };
        if !queue.has_turn && !queue.waiting.is_empty() && queue.under_way < self.bounds.queue {
            queue.has_turn = true;
            self.turns.push_back(key.clone());
        }
    }

    pub(crate) fn finish(&mut self, key: &EndpointKey, event_id: EventId, took: Duration) {
        if self.known.remove(&(key.org.clone(), event_id)).is_none() {
            return;
        }
        let Some(queue) = self.queues.get_mut(key) else { return };
        queue.under_way -= 1;
        self.under_way -= 1;
        queue.mean = (queue.mean * 7 + took) / 8;
        self.next_queue(key);
        self.forget_if_idle(key);
    }

    /// Begins nothing any more, and gives out what was not begun.
    pub(crate) fn close(&mut self) -> Vec<DueAttempt> {
        self.is_closed = true;
        self.retain(|_| false)
    }

    /// Gives out what waits and is not wanted: its shard has another owner.
    pub(crate) fn retain(&mut self, is_wanted: impl Fn(&DueAttempt) -> bool) -> Vec<DueAttempt> {
        let mut unwanted = Vec::new();
        let keys: Vec<_> = self.queues.keys().cloned().collect();
        for key in keys {
            if let Some(queue) = self.queues.get_mut(&key) {
                for work in std::mem::take(&mut queue.waiting) {
                    if is_wanted(&work) {
                        queue.waiting.push_back(work);
                    } else {
                        self.known.remove(&work.id());
                        unwanted.push(work);
                    }
                }
            }
            self.forget_if_idle(&key);
        }
        let queues = &mut self.queues;
        self.turns.retain(|key| {
            let Some(queue) = queues.get_mut(key) else { return false };
            queue.has_turn = !queue.waiting.is_empty();
            queue.has_turn
        });
        unwanted
    }

    fn forget_if_idle(&mut self, key: &EndpointKey) {
        let Some(queue) = self.queues.get_mut(key) else { return };
        if queue.waiting.is_empty() {
            queue.deferred_to = None;
            queue.oldest_deferred = None;
            if queue.under_way == 0 {
                self.queues.remove(key);
            }
        }
    }
}

impl EndpointQueue {
    fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
            under_way: 0,
            has_turn: false,
            mean: UNKNOWN,
            deferred_to: None,
            oldest_deferred: None,
        }
    }

    /// Those that find no room come up one after the other, as fast as the queue takes them: a long backlog is read and
    /// written about once, not again and again.
    fn defer(&mut self, bounds: &Bounds, due_at: Millis, now: Millis) -> Millis {
        let slots = u32::try_from(bounds.queue).unwrap_or(u32::MAX).max(1);
        let earliest = now.plus(SHORTEST_DEFERRAL);
        let next = self
            .deferred_to
            .map_or(earliest, |last| last.plus(self.mean.max(SHORTEST) / slots))
            .max(earliest);
        let at = next.min(now.plus(bounds.longest_deferral.max(SHORTEST_DEFERRAL)));
        self.deferred_to = Some(at);
        self.oldest_deferred = Some(self.oldest_deferred.map_or(due_at, |oldest| oldest.min(due_at)));
        at
    }
}

#[cfg(test)]
#[path = "tests/endpoint_queues.rs"]
mod tests;
