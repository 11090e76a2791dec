//! Queues requests to the writer. Organisations take turns by written bytes; requests of one organisation keep their order.
//!
//! Requests without an organisation, such as those of the sweep, belong to the service, which takes turns like an organisation.

use std::sync::Arc;

use bytes::Bytes;
use fjall::{UserKey, UserValue};
use parking_lot::{Condvar, Mutex};
use tidegate_scheduler::UsageQueue;
use tidegate_schemas::ids::OrgId;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::Slot;
use crate::{Error, Version};

/// Rows of one table with distinct keys.
pub(super) struct Puts {
    pub(super) slot: Arc<Slot>,
    pub(super) rows: Vec<(UserKey, UserValue)>,
}

pub(super) enum Work {
    Put {
        puts: Vec<Puts>,
        durable: bool,
        /// True if these keys were never written.
        new_rows: bool,
    },
    Insert {
        slot: Arc<Slot>,
        key: UserKey,
        value: UserValue,
    },
    Replace {
        slot: Arc<Slot>,
        key: UserKey,
        value: UserValue,
        was: Version,
    },
    /// Removes each row from the disk if its value is unchanged.
    Purge {
        slot: Arc<Slot>,
        rows: Vec<(UserKey, UserValue)>,
    },
}

impl Work {
    pub(super) fn needs_sync(&self) -> bool {
        match self {
            Self::Put { durable, .. } => *durable,
            Self::Insert { .. } | Self::Replace { .. } => true,
            Self::Purge { .. } => false,
        }
    }

    fn row_count(&self) -> usize {
        match self {
            Self::Put { puts, .. } => puts.iter().map(|puts| puts.rows.len()).sum(),
            Self::Insert { .. } | Self::Replace { .. } => 1,
            Self::Purge { rows, .. } => rows.len(),
        }
    }
}

pub(super) enum WriteResult {
    Written,
    /// Conflicting row of a conditional write; `None` if the row is missing.
    Refused(Option<Bytes>),
}

pub(super) struct Request {
    pub(super) work: Work,
    pub(super) bytes: usize,
    pub(super) reply: oneshot::Sender<Result<WriteResult, Error>>,
    /// Permits of the queue, released with the answer.
    pub(super) room: Option<OwnedSemaphorePermit>,
}

/// Organisation of the written rows; `None` for rows of the service.
pub(super) type Owner = Option<OrgId>;

/// Cost of a request or a row in addition to its bytes: writing a small row takes about as long as this many bytes.
const ROW_COST: usize = 256;

/// Queue of requests to the writer. Clones share it.
#[derive(Clone, Default)]
pub(super) struct WriteQueue(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    wakeup: Condvar,
}

#[derive(Default)]
struct State {
    requests: UsageQueue<Owner, Request>,
    is_closed: bool,
}

impl WriteQueue {
    pub(super) fn push(&self, owner: &Owner, request: Request) -> Result<(), Error> {
        let mut state = self.0.state.lock();
        if state.is_closed {
            return Err(Error::Closed);
        }
        state.requests.push(owner, request);
        // Unlocked first, so that the woken writer does not wait for the lock.
        drop(state);
        self.0.wakeup.notify_one();
        Ok(())
    }

    /// Waits for requests and takes the next ones until their cost reaches the limit. `None`: the queue is closed and empty.
    pub(super) fn next_group(&self, limit: usize) -> Option<Vec<Request>> {
        let mut state = self.0.state.lock();
        while state.requests.is_empty() {
            if state.is_closed {
                return None;
            }
            self.0.wakeup.wait(&mut state);
        }
        let (mut group, mut group_cost) = (Vec::new(), 0);
        while group_cost < limit
            && let Some((owner, request)) = state.requests.pop()
        {
            // A request without rows, such as a ping, still costs one row: it wakes the writer.
            let cost = request.bytes + ROW_COST * request.work.row_count().max(1);
            group_cost += cost;
            state.requests.charge(&owner, cost as u64);
            group.push(request);
        }
        Some(group)
    }

    /// Refuses further requests. Queued requests are still handed out.
    pub(super) fn close(&self) {
        self.0.state.lock().is_closed = true;
        self.0.wakeup.notify_one();
    }

    /// Refuses further requests and drops the queued ones, which answers their callers with `Closed`.
    pub(super) fn abandon(&self) {
        self.close();
        let abandoned_requests = std::mem::take(&mut self.0.state.lock().requests);
        // Dropped after the lock is released, because it wakes the callers.
        drop(abandoned_requests);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn put(bytes: usize) -> (Request, oneshot::Receiver<Result<WriteResult, Error>>) {
        let work = Work::Put { puts: Vec::new(), durable: false, new_rows: false };
        let (reply, answer) = oneshot::channel();
        (Request { work, bytes, reply, room: None }, answer)
    }

    /// Queues a put of this size. An empty name stands for the service.
    fn push(queue: &WriteQueue, org: &str, bytes: usize) {
        let owner = (!org.is_empty()).then(|| OrgId::new(org));
        queue.push(&owner, put(bytes).0).unwrap();
    }

    fn sizes(group: Option<Vec<Request>>) -> Vec<usize> {
        group.unwrap().iter().map(|request| request.bytes).collect()
    }

    #[test]
    fn organisations_and_service_take_turns_by_bytes() {
        let queue = WriteQueue::default();
        // Ten small requests cost as much as a large one.
        for nth in 0..100 {
            push(&queue, "large", 10 * (1_000 + ROW_COST) - ROW_COST + nth);
        }
        for nth in 0..30 {
            push(&queue, "small", 1_000 + nth);
        }
        push(&queue, "", 7);
        let served: Vec<usize> = (0..34).flat_map(|_| sizes(queue.next_group(1))).collect();
        assert_eq!(served[0], 7);
        let (small, large): (Vec<usize>, Vec<usize>) = served[1..].iter().partition(|bytes| **bytes < 2_000);
        assert_eq!(small, (1_000..1_030).collect::<Vec<usize>>(), "in the order in which they came");
        assert_eq!(large.len(), 3);
    }

    #[test]
    fn request_of_another_organisation_waits_for_one_group_at_most() {
        let queue = WriteQueue::default();
        for _ in 0..1_000 {
            push(&queue, "busy", 1_000);
        }
        let group = sizes(queue.next_group(10_000));
        assert_eq!(group.len(), 8, "a group ends where its cost reaches the limit");
        push(&queue, "other", 1);
        assert_eq!(sizes(queue.next_group(10_000))[0], 1);
    }

    #[test]
    fn many_small_rows_cost_more_than_their_bytes() {
        let queue = WriteQueue::default();
        for _ in 0..1_000 {
            push(&queue, "o", 0);
        }
        assert_eq!(sizes(queue.next_group(100 * ROW_COST)).len(), 100);
    }

    #[test]
    fn closed_queue_hands_out_queued_requests_only() {
        let queue = WriteQueue::default();
        push(&queue, "o", 1);
        queue.close();
        assert!(queue.push(&None, put(1).0).is_err());
        assert_eq!(sizes(queue.next_group(10)), [1]);
        assert!(queue.next_group(10).is_none());
    }

    #[test]
    fn abandoned_requests_are_answered() {
        let queue = WriteQueue::default();
        let (request, answer) = put(1);
        queue.push(&None, request).unwrap();
        queue.abandon();
        assert!(answer.blocking_recv().is_err(), "its caller is told that the store is closed");
        assert!(queue.next_group(10).is_none());
    }
}
