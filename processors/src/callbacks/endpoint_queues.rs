//! Queues of due attempts, one for each endpoint of an org, served round robin within limits per endpoint and in total.
//!
//! Pure data structure. Deliveries beyond its bounds wait in the store.

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
    /// Concurrent attempts of one queue.
    pub(crate) calls_per_queue: usize,
    /// Concurrent attempts of all queues.
    pub(crate) calls: usize,
    /// Deliveries that may wait in one queue.
    pub(crate) backlog_per_queue: usize,
    /// Deliveries that may wait in all queues. A queue below `GUARANTEED_BACKLOG` accepts more in spite of it.
    pub(crate) total_backlog: usize,
    pub(crate) longest_deferral: Duration,
}

/// Delivery that is due for an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DueAttempt {
    pub(crate) queue: EndpointKey,
    pub(crate) event_id: EventId,
    pub(crate) shard: u32,
    pub(crate) due_at: Millis,
    /// True if this process has just accepted the event, so no earlier attempt exists.
    pub(crate) is_fresh: bool,
}

impl DueAttempt {
    fn id(&self) -> (OrgId, EventId) {
        (self.queue.org.clone(), self.event_id)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AttemptState {
    Waiting,
    UnderWay,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OfferResult {
    Queued,
    /// The delivery waits in its queue already.
    AlreadyQueued,
    AlreadyUnderWay,
    /// The queue is full. The delivery is due again at this time.
    Full(Millis),
    /// The process is stopping and starts no attempt.
    Closed,
}

#[derive(Debug)]
struct EndpointQueue {
    queued_attempts: VecDeque<DueAttempt>,
    under_way: usize,
    /// True if the queue is in `ready_queues`.
    has_turn: bool,
    /// Moving average of the duration of attempts.
    mean_duration: Duration,
    /// Time at which the delivery that was deferred last is due again.
    last_deferral: Option<Millis>,
    /// Due time of the oldest deferred delivery. Cleared when the queue is empty.
    oldest_deferred_due: Option<Millis>,
}

#[derive(Debug)]
pub(crate) struct EndpointQueues {
    bounds: Bounds,
    queues: HashMap<EndpointKey, EndpointQueue>,
    /// Queues with a waiting delivery and a free place, each once.
    ready_queues: VecDeque<EndpointKey>,
    attempt_states: HashMap<(OrgId, EventId), AttemptState>,
    under_way: usize,
    is_closed: bool,
}

/// Lower bound of the mean. After a burst of immediate failures, a smaller mean would make the whole deferred backlog
/// due at once.
const MIN_MEAN_DURATION: Duration = Duration::from_millis(5);
const MIN_DEFERRAL: Duration = Duration::from_secs(1);
/// Assumed duration of an attempt before the first one has ended.
const INITIAL_MEAN_DURATION: Duration = Duration::from_millis(200);
/// Number of deliveries that each queue may hold even if the total backlog is full. Stuck queues cannot lock the others
/// out.
const GUARANTEED_BACKLOG: usize = 64;

impl EndpointQueues {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            queues: HashMap::new(),
            ready_queues: VecDeque::new(),
            attempt_states: HashMap::new(),
            under_way: 0,
            is_closed: false,
        }
    }

    pub(crate) const fn count_under_way(&self) -> usize {
        self.under_way
    }

    pub(crate) fn count_queued(&self) -> usize {
        self.attempt_states.len() - self.under_way
    }

    /// Returns the due time of the oldest delivery that is queued or deferred.
    pub(crate) fn oldest_due_at(&self) -> Option<Millis> {
        let oldest_of_queue = |queue: &EndpointQueue| {
            queue
                .queued_attempts
                .front()
                .map(|attempt| attempt.due_at)
                .into_iter()
                .chain(queue.oldest_deferred_due)
                .min()
        };
        self.queues.values().filter_map(oldest_of_queue).min()
    }

    pub(crate) fn offer(&mut self, attempt: DueAttempt, now: Millis) -> OfferResult {
        match self.attempt_states.get(&attempt.id()) {
            Some(AttemptState::Waiting) => return OfferResult::AlreadyQueued,
            Some(AttemptState::UnderWay) => return OfferResult::AlreadyUnderWay,
            None if self.is_closed => return OfferResult::Closed,
            None => {}
        }
        let is_crowded = self.count_queued() >= self.bounds.total_backlog;
        let queue = self.queues.entry(attempt.queue.clone()).or_insert_with(EndpointQueue::new);
        if queue.queued_attempts.len() >= self.bounds.backlog_per_queue
            || (is_crowded && queue.queued_attempts.len() >= GUARANTEED_BACKLOG)
        {
            return OfferResult::Full(queue.defer_delivery(&self.bounds, attempt.due_at, now));
        }
        self.attempt_states.insert(attempt.id(), AttemptState::Waiting);
        let key = attempt.queue.clone();
        queue.queued_attempts.push_back(attempt);
        self.mark_ready(&key);
        OfferResult::Queued
    }

    /// Takes the next attempt. The caller ends it with `finish`.
    pub(crate) fn start_next(&mut self) -> Option<DueAttempt> {
        if self.under_way >= self.bounds.calls {
            return None;
        }
        loop {
            let key = self.ready_queues.pop_front()?;
            let Some(queue) = self.queues.get_mut(&key) else { continue };
            queue.has_turn = false;
            // The bound may have been lowered after the queue was marked ready.
            if queue.under_way >= self.bounds.calls_per_queue {
                continue;
            }
            let Some(attempt) = queue.queued_attempts.pop_front() else { continue };
            self.attempt_states.insert(attempt.id(), AttemptState::UnderWay);
            queue.under_way += 1;
            self.under_way += 1;
            self.mark_ready(&key);
            return Some(attempt);
        }
    }

    /// Sets the limit of concurrent attempts per queue. Running attempts above the limit continue.
    pub(crate) fn limit_queues(&mut self, attempts: usize) {
        if self.bounds.calls_per_queue == attempts {
            return;
        }
        self.bounds.calls_per_queue = attempts;
        let keys: Vec<_> = self.queues.keys().cloned().collect();
        for key in keys {
            self.mark_ready(&key);
        }
    }

    /// Adds the queue to `ready_queues` if one of its attempts may start.
    fn mark_ready(&mut self, key: &EndpointKey) {
        let Some(queue) = self.queues.get_mut(key) else { return };
        if !queue.has_turn
            && !queue.queued_attempts.is_empty()
            && queue.under_way < self.bounds.calls_per_queue
        {
            queue.has_turn = true;
            self.ready_queues.push_back(key.clone());
        }
    }

    pub(crate) fn finish(&mut self, key: &EndpointKey, event_id: EventId, duration: Duration) {
        if self.attempt_states.remove(&(key.org.clone(), event_id)).is_none() {
            return;
        }
        let Some(queue) = self.queues.get_mut(key) else { return };
        queue.under_way -= 1;
        self.under_way -= 1;
        // Exponential moving average; the last attempt has a weight of one eighth.
        queue.mean_duration = (queue.mean_duration * 7 + duration) / 8;
        self.mark_ready(key);
        self.forget_if_idle(key);
    }

    /// Refuses further attempts and returns the queued ones.
    pub(crate) fn close(&mut self) -> Vec<DueAttempt> {
        self.is_closed = true;
        self.retain(|_| false)
    }

    /// Removes and returns the queued attempts that `should_keep` rejects. Running attempts stay.
    pub(crate) fn retain(&mut self, should_keep: impl Fn(&DueAttempt) -> bool) -> Vec<DueAttempt> {
        let mut removed_attempts = Vec::new();
        let keys: Vec<_> = self.queues.keys().cloned().collect();
        for key in keys {
            if let Some(queue) = self.queues.get_mut(&key) {
                for attempt in std::mem::take(&mut queue.queued_attempts) {
                    if should_keep(&attempt) {
                        queue.queued_attempts.push_back(attempt);
                    } else {
                        self.attempt_states.remove(&attempt.id());
                        removed_attempts.push(attempt);
                    }
                }
            }
            self.forget_if_idle(&key);
        }
        let queues = &mut self.queues;
        // `has_turn` must match the membership in `ready_queues`, or a queue would be added twice or never.
        self.ready_queues.retain(|key| {
            let Some(queue) = queues.get_mut(key) else { return false };
            queue.has_turn = !queue.queued_attempts.is_empty();
            queue.has_turn
        });
        removed_attempts
    }

    fn forget_if_idle(&mut self, key: &EndpointKey) {
        let Some(queue) = self.queues.get_mut(key) else { return };
        if queue.queued_attempts.is_empty() {
            // The queue has caught up, so later deferrals are spaced from the current time again.
            queue.last_deferral = None;
            queue.oldest_deferred_due = None;
            if queue.under_way == 0 {
                self.queues.remove(key);
            }
        }
    }
}

impl EndpointQueue {
    fn new() -> Self {
        Self {
            queued_attempts: VecDeque::new(),
            under_way: 0,
            has_turn: false,
            mean_duration: INITIAL_MEAN_DURATION,
            last_deferral: None,
            oldest_deferred_due: None,
        }
    }

    /// Returns the time at which a delivery without room is due again. Deferred deliveries are spaced at the speed of
    /// the queue, so each delivery of a long backlog is read from the store about once.
    fn defer_delivery(&mut self, bounds: &Bounds, due_at: Millis, now: Millis) -> Millis {
        let slots = u32::try_from(bounds.calls_per_queue).unwrap_or(u32::MAX).max(1);
        let earliest = now.plus(MIN_DEFERRAL);
        // With `slots` concurrent attempts, a place is freed every `mean_duration / slots`.
        let paced_time = self
            .last_deferral
            .map_or(earliest, |last| last.plus(self.mean_duration.max(MIN_MEAN_DURATION) / slots))
            .max(earliest);
        let due_again_at = paced_time.min(now.plus(bounds.longest_deferral.max(MIN_DEFERRAL)));
        self.last_deferral = Some(due_again_at);
        self.oldest_deferred_due = Some(self.oldest_deferred_due.map_or(due_at, |oldest| oldest.min(due_at)));
        due_again_at
    }
}

#[cfg(test)]
#[path = "tests/endpoint_queues.rs"]
mod tests;
