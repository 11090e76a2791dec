//! Which delivery is attempted now: a lane for each endpoint of an org, a bound for each and for all, lanes in turn.
//!
//! It is pure: it sends nothing and keeps nothing beyond its bounds; what finds no room waits in the store.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use tidegate_schemas::ids::{EndpointId, EventId, Millis, OrgId};

/// What is isolated from the others.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LaneKey {
    pub(crate) org: OrgId,
    pub(crate) endpoint: EndpointId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Attempts under way in one lane.
    pub(crate) lane: usize,
    /// Attempts under way in all.
    pub(crate) all: usize,
    /// Deliveries that wait in one lane.
    pub(crate) backlog: usize,
    /// Deliveries that wait in all; a lane with few waiting takes more in spite of it.
    pub(crate) backlog_of_all: usize,
    pub(crate) longest_deferral: Duration,
}

/// A delivery that is owed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Work {
    pub(crate) lane: LaneKey,
    pub(crate) event_id: EventId,
    pub(crate) shard: u32,
    /// Since when.
    pub(crate) due_at: Millis,
    /// This process has accepted it just now, so nobody has attempted it before.
    pub(crate) is_fresh: bool,
}

impl Work {
    fn id(&self) -> (OrgId, EventId) {
        (self.lane.org.clone(), self.event_id)
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
    /// The lane is full. It has a place in the lane's queue in the store, which comes up at this time.
    Full(Millis),
    /// Nothing is begun any more.
    Closed,
}

#[derive(Debug)]
struct Lane {
    waiting: VecDeque<Work>,
    under_way: usize,
    /// It stands among the turns.
    has_turn: bool,
    /// How long attempts take, the last ones counting most.
    mean: Duration,
    /// When the last delivery that found no room comes up again.
    deferred_to: Option<Millis>,
    /// Since when the oldest that found no room is owed; until the lane was empty.
    oldest_deferred: Option<Millis>,
}

#[derive(Debug)]
pub(crate) struct Lanes {
    bounds: Bounds,
    lanes: HashMap<LaneKey, Lane>,
    /// Lanes that have something waiting and room to start it, each once.
    turns: VecDeque<LaneKey>,
    known: HashMap<(OrgId, EventId), At>,
    under_way: usize,
    is_closed: bool,
}

/// A lane is never believed to be faster: a burst of failures in no time must not call its whole queue back at once.
const SHORTEST: Duration = Duration::from_millis(5);
const SHORTEST_DEFERRAL: Duration = Duration::from_secs(1);
/// What is believed of a lane before an attempt has ended.
const UNKNOWN: Duration = Duration::from_millis(200);
/// So many may wait in any lane, so that lanes which are stuck leave room for the others.
const FEW: usize = 64;

impl Lanes {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            lanes: HashMap::new(),
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
        let of = |lane: &Lane| {
            lane.waiting.front().map(|work| work.due_at).into_iter().chain(lane.oldest_deferred).min()
        };
        self.lanes.values().filter_map(of).min()
    }

    pub(crate) fn offer(&mut self, work: Work, now: Millis) -> Offered {
        match self.known.get(&work.id()) {
            Some(At::Waiting) => return Offered::Waits,
            Some(At::UnderWay) => return Offered::IsUnderWay,
            None if self.is_closed => return Offered::Closed,
            None => {}
        }
        let is_crowded = self.waiting() >= self.bounds.backlog_of_all;
        let lane = self.lanes.entry(work.lane.clone()).or_insert_with(Lane::new);
        if lane.waiting.len() >= self.bounds.backlog || (is_crowded && lane.waiting.len() >= FEW) {
            return Offered::Full(lane.defer(&self.bounds, work.due_at, now));
        }
        self.known.insert(work.id(), At::Waiting);
        let key = work.lane.clone();
        lane.waiting.push_back(work);
        self.give_turn(&key);
        Offered::Taken
    }

    /// The next to attempt. It comes back through `finish`.
    pub(crate) fn start(&mut self) -> Option<Work> {
        if self.under_way >= self.bounds.all {
            return None;
        }
        loop {
            let key = self.turns.pop_front()?;
            let Some(lane) = self.lanes.get_mut(&key) else { continue };
            lane.has_turn = false;
            // The bound may have been lowered since it got its turn.
            if lane.under_way >= self.bounds.lane {
                continue;
            }
            let Some(work) = lane.waiting.pop_front() else { continue };
            self.known.insert(work.id(), At::UnderWay);
            lane.under_way += 1;
            self.under_way += 1;
            self.give_turn(&key);
            return Some(work);
        }
    }

    /// From here on each lane may have so many attempts under way. What is above it ends by itself.
    pub(crate) fn bound_lanes(&mut self, attempts: usize) {
        if self.bounds.lane == attempts {
            return;
        }
        self.bounds.lane = attempts;
        let keys: Vec<_> = self.lanes.keys().cloned().collect();
        for key in keys {
            self.give_turn(&key);
        }
    }

    /// Puts a lane among the turns, once, if something of it may start.
    fn give_turn(&mut self, key: &LaneKey) {
        let Some(lane) = self.lanes.get_mut(key) else { return };
        if !lane.has_turn && !lane.waiting.is_empty() && lane.under_way < self.bounds.lane {
            lane.has_turn = true;
            self.turns.push_back(key.clone());
        }
    }

    pub(crate) fn finish(&mut self, key: &LaneKey, event_id: EventId, took: Duration) {
        if self.known.remove(&(key.org.clone(), event_id)).is_none() {
            return;
        }
        let Some(lane) = self.lanes.get_mut(key) else { return };
        lane.under_way -= 1;
        self.under_way -= 1;
        lane.mean = (lane.mean * 7 + took) / 8;
        self.give_turn(key);
        self.forget_if_idle(key);
    }

    /// Begins nothing any more, and gives out what was not begun.
    pub(crate) fn close(&mut self) -> Vec<Work> {
        self.is_closed = true;
        self.retain(|_| false)
    }

    /// Gives out what waits and is not wanted: its shard has another owner.
    pub(crate) fn retain(&mut self, is_wanted: impl Fn(&Work) -> bool) -> Vec<Work> {
        let mut unwanted = Vec::new();
        let keys: Vec<_> = self.lanes.keys().cloned().collect();
        for key in keys {
            if let Some(lane) = self.lanes.get_mut(&key) {
                for work in std::mem::take(&mut lane.waiting) {
                    if is_wanted(&work) {
                        lane.waiting.push_back(work);
                    } else {
                        self.known.remove(&work.id());
                        unwanted.push(work);
                    }
                }
            }
            self.forget_if_idle(&key);
        }
        let lanes = &mut self.lanes;
        self.turns.retain(|key| {
            let Some(lane) = lanes.get_mut(key) else { return false };
            lane.has_turn = !lane.waiting.is_empty();
            lane.has_turn
        });
        unwanted
    }

    fn forget_if_idle(&mut self, key: &LaneKey) {
        let Some(lane) = self.lanes.get_mut(key) else { return };
        if lane.waiting.is_empty() {
            lane.deferred_to = None;
            lane.oldest_deferred = None;
            if lane.under_way == 0 {
                self.lanes.remove(key);
            }
        }
    }
}

impl Lane {
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

    /// Those that find no room come up one after the other, as fast as the lane takes them: a long backlog is read and
    /// written about once, not again and again.
    fn defer(&mut self, bounds: &Bounds, due_at: Millis, now: Millis) -> Millis {
        let slots = u32::try_from(bounds.lane).unwrap_or(u32::MAX).max(1);
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
