//! Receiving end of a consumer: batches of records, owned partitions, and the result of the drain.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use async_recursion::async_recursion as boxed;
use bytes::Bytes;
use parking_lot::Mutex;
use tidegate_schemas::{
    ids::Millis,
    records::{self, RecordDecodeError},
};
use tokio::sync::{Notify, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::ticket::{Epoch, Ticket};
use crate::{
    error::{ConsumeError, StoppedPartition},
    record::Headers,
    topics::{Partition, Position},
};

/// A record handed to a consumer, with the ticket that must be completed.
#[derive(Debug)]
pub struct ReceivedRecord {
    pub at: Position,
    pub key: Bytes,
    /// The datum in the reader's schema, without framing.
    pub value: Bytes,
    pub headers: Headers,
    /// Append time. Never decreases within a partition.
    pub written_at: Millis,
    /// True if an earlier owner may have processed the record, so that its effects may exist.
    pub maybe_replayed: bool,
    pub ticket: Ticket,
}

impl ReceivedRecord {
    /// Decodes the value. `Bytes` of the result are slices of it.
    pub fn decode<R: records::Record>(&self) -> Result<R, RecordDecodeError> {
        R::decode(&self.value)
    }
}

/// Partitions that a consumer owns now. Code that acts for a partition without a record of it, as a due
/// scanner does, may do so only while its epoch is current.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ownership {
    pub partitions: Vec<(Partition, Epoch)>,
    /// Partitions that are owned but not read, each with its reason.
    pub stopped: Vec<StoppedPartition>,
}

impl Ownership {
    pub fn is_current(&self, epoch: Epoch) -> bool {
        self.partitions.iter().any(|(_, owned_epoch)| *owned_epoch == epoch)
    }

    pub fn epoch_of(&self, partition: Partition) -> Option<Epoch> {
        self.partitions
            .iter()
            .find(|(owned_partition, _)| *owned_partition == partition)
            .map(|(_, epoch)| *epoch)
    }
}

/// End of a consumer or a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainResult {
    /// No work is left in flight, and all completed records are committed.
    Clean,
    /// The deadline passed. Uncommitted records are delivered again.
    Forced,
}

impl DrainResult {
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Clean, Self::Clean) => Self::Clean,
            _ => Self::Forced,
        }
    }
}

#[derive(Default)]
struct QueueState {
    batches: VecDeque<Vec<ReceivedRecord>>,
    /// Set at the end of the queue: the consumer was stopped or failed.
    ended: Option<Result<(), ConsumeError>>,
    /// Start of the current pause at the budget.
    paused_since: Option<Instant>,
}

/// Batches on their way from the driver to the inbox.
#[derive(Default)]
pub(crate) struct BatchQueue {
    state: Mutex<QueueState>,
    changed: Notify,
}

impl fmt::Debug for BatchQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchQueue").finish_non_exhaustive()
    }
}

impl BatchQueue {
    pub(crate) fn push(&self, batch: Vec<ReceivedRecord>) {
        if !batch.is_empty() {
            self.state.lock().batches.push_back(batch);
            self.changed.notify_one();
        }
    }

    pub(crate) fn set_paused(&self, is_paused: bool) {
        let mut state = self.state.lock();
        state.paused_since = is_paused.then(|| state.paused_since.unwrap_or_else(Instant::now));
    }

    /// Removes queued records of assignments that are being released.
    pub(crate) fn remove(&self, is_cancelled: impl Fn(&ReceivedRecord) -> bool) {
        let mut removed = Vec::new();
        {
            let mut state = self.state.lock();
            for batch in &mut state.batches {
                removed.extend(batch.extract_if(.., |received| is_cancelled(received)));
            }
            state.batches.retain(|batch| !batch.is_empty());
        }
        // Dropped after the lock is released: dropped tickets report to the settlement queue.
        drop(removed);
    }

    /// Ends the queue; the first end counts. Queued records are removed, so that `next` returns the end at once.
    pub(crate) fn end(&self, result: Result<(), ConsumeError>) {
        self.remove(|_| true);
        self.state.lock().ended.get_or_insert(result);
        self.changed.notify_one();
    }

    fn pop(&self) -> Option<Result<Option<Vec<ReceivedRecord>>, ConsumeError>> {
        let mut state = self.state.lock();
        // `end` has removed the batches that must not be handed out.
        if let Some(batch) = state.batches.pop_front() {
            return Some(Ok(Some(batch)));
        }
        state.ended.clone().map(|ended| ended.map(|()| None))
    }
}

/// Handle to read for how long a consumer is paused by its budget.
#[derive(Clone, Debug)]
pub struct Backpressure(Arc<BatchQueue>);

impl Backpressure {
    /// Returns how long the consumer has fetched no records because its budget is used up: the records that it handed out are
    /// not completed, or stand behind one that is not.
    pub fn pause_duration(&self) -> Option<Duration> {
        let paused_since = self.0.state.lock().paused_since?;
        Some(paused_since.elapsed())
    }
}

/// Handle to read how far a consumer has completed its partitions, as append times.
#[derive(Clone, Debug, Default)]
pub struct CompletedTimes(Arc<Mutex<BTreeMap<Partition, Millis>>>);

impl CompletedTimes {
    /// Returns, for each owned partition, the append time below which every record is completed and passed by a durable commit.
    /// No record below it is appended or returned any more. A partition without a known time is absent.
    pub fn read(&self) -> Vec<(Partition, Millis)> {
        self.0.lock().iter().map(|(partition, until)| (*partition, *until)).collect()
    }

    pub(crate) fn replace(&self, times: impl Iterator<Item = (Partition, Millis)>) {
        *self.0.lock() = times.collect();
    }
}

/// Records of one group for one role. Dropping it stops the consumer.
#[derive(Debug)]
pub struct Inbox {
    pub(crate) queue: Arc<BatchQueue>,
    pub(crate) ownership: watch::Receiver<Ownership>,
    pub(crate) completed_times: CompletedTimes,
    pub(crate) drained: watch::Receiver<Option<DrainResult>>,
    pub(crate) stop: CancellationToken,
    pub(crate) _stop_on_drop: DropGuard,
}

impl Inbox {
    /// Returns the next batch. `None`: the consumer was stopped; tickets of earlier records may still be
    /// completed until the drain's deadline. An error: the role must fail with it. Cancel-safe.
    #[boxed]
    pub async fn next(&mut self) -> Result<Option<Vec<ReceivedRecord>>, ConsumeError> {
        loop {
            if let Some(next) = self.queue.pop() {
                return next;
            }
            // `notify_one` stores a permit, so a push after `pop` is not missed.
            self.queue.changed.notified().await;
        }
    }

    /// Returns a watch on the owned partitions.
    pub fn ownership(&self) -> watch::Receiver<Ownership> {
        self.ownership.clone()
    }

    pub fn completed_times(&self) -> CompletedTimes {
        self.completed_times.clone()
    }

    pub fn backpressure(&self) -> Backpressure {
        Backpressure(Arc::clone(&self.queue))
    }

    /// Stops the consumer: `next` ends, and the driver waits for work in flight and commits it.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Waits until the driver has released all partitions, after a stop or a failure.
    #[boxed]
    pub async fn wait_until_drained(mut self) -> DrainResult {
        // A driver without a result has panicked, so its drain is not clean.
        match self.drained.wait_for(Option::is_some).await {
            Ok(result) => result.unwrap_or(DrainResult::Forced),
            Err(_) => DrainResult::Forced,
        }
    }
}
