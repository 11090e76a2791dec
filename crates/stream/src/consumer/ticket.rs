//! Tickets of delivered records. A consumer completes one for each record, after writing dead letters for failed parts.
//!
//! A ticket reports to the driver's settlement queue; the driver decides when the offset is committed.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use async_recursion::async_recursion as boxed;
use bytes::Bytes;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tidegate_schemas::{
    ids::{Millis, OrgId, SubmissionId},
    records::{DeadLetter, Header},
};
use tokio_util::sync::CancellationToken;

use crate::{
    codec::Codec,
    error::AppendError,
    metrics,
    record::{Headers, Record},
    topics::{Offset, Partition, Position},
    wakeup::Wakeup,
};

/// Number of one assignment of one partition to this process. A later assignment has a greater epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Epoch(pub u64);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Complete,
    Dropped,
}

/// End of one ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settlement {
    pub(crate) partition: Partition,
    pub(crate) epoch: Epoch,
    pub(crate) offset: Offset,
    pub(crate) outcome: Outcome,
}

impl Settlement {
    pub(crate) const fn position(self) -> Position {
        Position { partition: self.partition, offset: self.offset }
    }
}

/// Queue from the tickets, on any thread, to the driver.
#[derive(Debug)]
pub(crate) struct SettlementQueue {
    settlements: Mutex<Vec<Settlement>>,
    /// True if the next settlement must wake the driver. Other settlements cost no wake-up.
    wakes_driver: AtomicBool,
    wakeup: Arc<Wakeup>,
}

impl SettlementQueue {
    pub(crate) fn new(wakeup: Arc<Wakeup>) -> Self {
        Self { settlements: Mutex::new(Vec::new()), wakes_driver: AtomicBool::new(false), wakeup }
    }

    fn push(&self, settlement: Settlement) {
        self.settlements.lock().push(settlement);
        // Only the first settlement wakes the driver, which then collects all of them.
        if self.wakes_driver.swap(false, Ordering::AcqRel) {
            self.wakeup.notify();
        }
    }

    /// Swaps the settlements into `buffer`, which must be empty: two buffers are used alternately.
    pub(crate) fn collect(&self, buffer: &mut Vec<Settlement>) {
        std::mem::swap(&mut *self.settlements.lock(), buffer);
    }

    /// Requests a wake-up at the next settlement. Returns false if settlements are queued already, so that the driver must
    /// not sleep.
    pub(crate) fn await_next(&self) -> bool {
        // Set before the queue is checked: a push in between then wakes the driver.
        self.wakes_driver.store(true, Ordering::Release);
        self.settlements.lock().is_empty()
    }
}

/// Log for dead letters. At the disk limit it may use the share that is closed to requests.
pub(crate) trait DeadLetterSink: fmt::Debug + Send + Sync {
    fn append<'a>(&'a self, letter: Record<'a>) -> BoxFuture<'a, Result<(), AppendError>>;
}

/// Lease of one partition for one assignment, shared by all its tickets.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) partition: Partition,
    pub(crate) epoch: Epoch,
    /// Cancelled when the release of the partition begins.
    pub(crate) cancelled: CancellationToken,
    pub(crate) settlements: Arc<SettlementQueue>,
    pub(crate) codec: Arc<Codec>,
    pub(crate) dead_letters: Arc<dyn DeadLetterSink>,
}

/// Origin of a record, repeated in its dead letter.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    pub(crate) key: Bytes,
    pub(crate) headers: Headers,
    pub(crate) written_at: Millis,
}

/// Reason why a part of a record becomes a dead letter.
#[derive(Clone, Debug)]
pub struct DeadLetterReason {
    /// Pipeline step that failed.
    pub stage: &'static str,
    /// Stable name of the error.
    pub tag: &'static str,
    /// Text for the operator; never a payload, key or URL query.
    pub detail: String,
    pub org: Option<OrgId>,
    pub submission_id: Option<SubmissionId>,
}

/// Obligation to complete one record. It ends with `complete`; a ticket dropped before that, while its partition is
/// owned, fails the role by name, and its offset is never passed.
#[derive(Debug)]
pub struct Ticket {
    lease: Arc<Lease>,
    offset: Offset,
    origin: Origin,
    is_settled: bool,
}

impl Ticket {
    pub(crate) const fn new(lease: Arc<Lease>, offset: Offset, origin: Origin) -> Self {
        Self { lease, offset, origin, is_settled: false }
    }

    pub fn position(&self) -> Position {
        Position { partition: self.lease.partition, offset: self.offset }
    }

    pub fn epoch(&self) -> Epoch {
        self.lease.epoch
    }

    /// Completes the record: all its effects are durable.
    pub fn complete(mut self) {
        self.settle(Outcome::Complete);
    }

    /// True if the partition is being released. New work need not begin.
    pub fn is_cancelled(&self) -> bool {
        self.lease.cancelled.is_cancelled()
    }

    /// Waits until the release of the partition begins. Running work may continue until the drain's deadline, but should
    /// no longer wait for others, such as a fetch.
    #[boxed]
    pub async fn cancelled(&self) {
        self.lease.cancelled.cancelled().await;
    }

    /// Writes the failing part of the record to the dead letters, with its origin. `part` is a datum of the record's own
    /// type with only the failing part. `Ok`: the letter is durable, and counts as the completion of that part.
    #[boxed]
    pub async fn dead_letter(&self, part: &[u8], reason: DeadLetterReason) -> Result<(), AppendError> {
        let Position { partition, offset } = self.position();
        // A dead letter holds a framed value, like the topic of its record.
        let mut framed = Vec::new();
        self.lease.codec.frame(partition.topic, part, &mut framed);
        let Origin { key, headers, written_at } = &self.origin;
        let header = |(name, value): (&str, &Bytes)| Header { name: name.to_owned(), value: value.clone() };
        let letter = DeadLetter {
            org: reason.org,
            topic: partition.topic.label().to_owned(),
            partition: i32::try_from(partition.index).unwrap_or(i32::MAX),
            offset: offset.0,
            written_at: *written_at,
            key: key.clone(),
            value: framed.into(),
            headers: headers.iter().map(header).collect(),
            submission_id: reason.submission_id,
            stage: reason.stage.to_owned(),
            reason: reason.tag.to_owned(),
            detail: reason.detail,
            failed_at: Millis::now(),
        };
        let started_at = Instant::now();
        let result = self.lease.dead_letters.append(Record::from_content(key, &letter)).await;
        metrics::append_answered(&result, started_at.elapsed());
        result?;
        metrics::dead_letter(partition.topic, reason.stage, reason.tag);
        Ok(())
    }

    fn settle(&mut self, outcome: Outcome) {
        // `complete` settles first, and the drop after it must not settle again.
        if !std::mem::replace(&mut self.is_settled, true) {
            let Lease { partition, epoch, ref settlements, .. } = *self.lease;
            settlements.push(Settlement { partition, epoch, offset: self.offset, outcome });
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.settle(Outcome::Dropped);
    }
}
