//! The consumer's end: batches as they come, the partitions it owns, and how the driver ended.
//!
//! It fetches, charges and commits nothing: the driver does, and fills it.

use std::{
    collections::VecDeque,
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    error::{ConsumeError, Stopped},
    record::Received,
    ticket::Epoch,
    topics::Partition,
};

/// What a consumer owns at the moment. Whoever acts for a partition without a record of it, as a due
/// scanner does, may do so only while its epoch is current.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ownership {
    pub partitions: Vec<(Partition, Epoch)>,
    /// Owned, but not read: each with its reason.
    pub stopped: Vec<Stopped>,
}

impl Ownership {
    pub fn is_current(&self, epoch: Epoch) -> bool {
        self.partitions.iter().any(|(_, own)| *own == epoch)
    }

    pub fn epoch_of(&self, partition: Partition) -> Option<Epoch> {
        self.partitions.iter().find(|(own, _)| *own == partition).map(|(_, epoch)| *epoch)
    }
}

/// How a consumer or a log let go of what it held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// Nothing was left in flight, and everything complete is committed.
    Clean,
    /// Time ran out. What was not committed is delivered again.
    Forced,
}

impl Drained {
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Clean, Self::Clean) => Self::Clean,
            _ => Self::Forced,
        }
    }
}

#[derive(Default)]
struct Waiting {
    batches: VecDeque<Vec<Received>>,
    /// Nothing more comes: asked to stop, or failed.
    ended: Option<Result<(), ConsumeError>>,
    /// Since when nothing is fetched, because the budget is used up.
    full_since: Option<Instant>,
}

/// What driver and inbox share.
#[derive(Default)]
pub(crate) struct Tray {
    waiting: Mutex<Waiting>,
    filled: Notify,
}

impl fmt::Debug for Tray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tray").finish_non_exhaustive()
    }
}

impl Tray {
    pub(crate) fn put(&self, batch: Vec<Received>) {
        if !batch.is_empty() {
            self.waiting.lock().batches.push_back(batch);
            self.filled.notify_one();
        }
    }

    pub(crate) fn full(&self, is_full: bool) {
        let mut waiting = self.waiting.lock();
        waiting.full_since = is_full.then(|| waiting.full_since.unwrap_or_else(Instant::now));
    }

    /// Takes back what nobody has picked up: its assignment is being let go.
    pub(crate) fn take_back(&self, lost: impl Fn(&Received) -> bool) {
        let mut taken = Vec::new();
        {
            let mut waiting = self.waiting.lock();
            for batch in &mut waiting.batches {
                taken.extend(batch.extract_if(.., |received| lost(received)));
            }
            waiting.batches.retain(|batch| !batch.is_empty());
        }
        // Their tickets report while no lock is held.
        drop(taken);
    }

    /// The first end counts. What was not picked up is taken back, so that `next` tells the end at once.
    pub(crate) fn end(&self, how: Result<(), ConsumeError>) {
        self.take_back(|_| true);
        self.waiting.lock().ended.get_or_insert(how);
        self.filled.notify_one();
    }

    fn pick_up(&self) -> Option<Result<Option<Vec<Received>>, ConsumeError>> {
        let mut waiting = self.waiting.lock();
        if let Some(batch) = waiting.batches.pop_front() {
            return Some(Ok(Some(batch)));
        }
        waiting.ended.clone().map(|ended| ended.map(|()| None))
    }
}

/// Whether a consumer has room for more.
#[derive(Clone, Debug)]
pub struct Gate(Arc<Tray>);

impl Gate {
    /// For how long the consumer has fetched nothing, because its budget is used up: what it has handed out is not
    /// complete, or cannot be committed behind something that is not.
    pub fn closed_for(&self) -> Option<Duration> {
        let since = self.0.waiting.lock().full_since?;
        Some(since.elapsed())
    }
}

/// The records of one group for one role. Dropping it stops the consumer.
#[derive(Debug)]
pub struct Inbox {
    pub(crate) tray: Arc<Tray>,
    pub(crate) ownership: watch::Receiver<Ownership>,
    pub(crate) drained: watch::Receiver<Option<Drained>>,
    pub(crate) stop: CancellationToken,
    pub(crate) _stop_on_drop: DropGuard,
}

impl Inbox {
    /// The next batch. `None`: the consumer was asked to stop; what was handed out before may still be
    /// completed until the drain's deadline. An error: the role must fail with it. Cancel-safe.
    pub async fn next(&mut self) -> Result<Option<Vec<Received>>, ConsumeError> {
        loop {
            if let Some(next) = self.tray.pick_up() {
                return next;
            }
            self.tray.filled.notified().await;
        }
    }

    /// The partitions owned now, and every change of them.
    pub fn ownership(&self) -> watch::Receiver<Ownership> {
        self.ownership.clone()
    }

    pub fn gate(&self) -> Gate {
        Gate(Arc::clone(&self.tray))
    }

    /// Asks the consumer to stop: `next` ends, work in flight is waited for, then committed.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Resolves when the driver has let go of everything, after a stop or a failure.
    pub async fn drained(mut self) -> Drained {
        // A driver that is gone without a word, as after a panic, has drained nothing.
        match self.drained.wait_for(Option::is_some).await {
            Ok(how) => how.unwrap_or(Drained::Forced),
            Err(_) => Drained::Forced,
        }
    }
}
