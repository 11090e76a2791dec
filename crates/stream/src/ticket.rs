//! What a consumer owes for a record: to complete it, or to say where it went instead.
//!
//! It does not know when the offset is committed: it reports to the desk, and the driver decides.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use parking_lot::Mutex;
use tidegate_schemas::{
    ids::Millis,
    records::{DeadLetter, Header},
};
use tokio_util::sync::CancellationToken;

use crate::{
    codec::Codec,
    error::AppendError,
    log::Log,
    metrics,
    record::{Headers, Reason, Record},
    signal::Signal,
    topics::{Offset, Partition, Position, Topic},
};

/// One assignment of one partition to this process. A later assignment has a greater epoch.
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

/// What became of one ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settled {
    pub(crate) partition: Partition,
    pub(crate) epoch: Epoch,
    pub(crate) offset: Offset,
    pub(crate) outcome: Outcome,
}

impl Settled {
    pub(crate) const fn position(self) -> Position {
        Position { partition: self.partition, offset: self.offset }
    }
}

/// Where tickets report, from any thread, and the driver collects.
#[derive(Debug)]
pub(crate) struct Desk {
    settled: Mutex<Vec<Settled>>,
    /// The driver sleeps and wants to hear of the next report. Else a report costs no wake-up.
    awaited: AtomicBool,
    signal: Arc<Signal>,
}

impl Desk {
    pub(crate) fn new(signal: Arc<Signal>) -> Self {
        Self { settled: Mutex::new(Vec::new()), awaited: AtomicBool::new(false), signal }
    }

    fn report(&self, settled: Settled) {
        self.settled.lock().push(settled);
        if self.awaited.swap(false, Ordering::AcqRel) {
            self.signal.ring();
        }
    }

    /// Swaps the reports into `into`, which must be empty: two buffers take turns.
    pub(crate) fn collect(&self, into: &mut Vec<Settled>) {
        std::mem::swap(&mut *self.settled.lock(), into);
    }

    /// Asks for a ring at the next report. False: there are reports already, do not sleep.
    pub(crate) fn await_report(&self) -> bool {
        self.awaited.store(true, Ordering::Release);
        self.settled.lock().is_empty()
    }
}

/// What all tickets of one assignment share.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) partition: Partition,
    pub(crate) epoch: Epoch,
    /// Cancelled when the partition is being let go.
    pub(crate) lost: CancellationToken,
    pub(crate) desk: Arc<Desk>,
    pub(crate) outlet: Arc<Outlet>,
}

/// Where dead letters go.
#[derive(Debug)]
pub(crate) struct Outlet {
    pub(crate) log: Log,
    pub(crate) codec: Arc<Codec>,
}

/// What a dead letter keeps of the record that the ticket is for.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    pub(crate) key: Bytes,
    pub(crate) headers: Headers,
    pub(crate) written_at: Millis,
}

/// The debt of one record. It ends with `complete`; a ticket dropped before that, while its partition
/// is owned, fails the role by name, and its offset is never passed.
#[derive(Debug)]
pub struct Ticket {
    lease: Arc<Lease>,
    offset: Offset,
    origin: Origin,
    settled: bool,
}

impl Ticket {
    pub(crate) const fn new(lease: Arc<Lease>, offset: Offset, origin: Origin) -> Self {
        Self { lease, offset, origin, settled: false }
    }

    pub fn position(&self) -> Position {
        Position { partition: self.lease.partition, offset: self.offset }
    }

    pub fn epoch(&self) -> Epoch {
        self.lease.epoch
    }

    /// Every effect of the record is durable.
    pub fn complete(mut self) {
        self.settle(Outcome::Complete);
    }

    /// What no ticket may do.
    #[cfg(feature = "fault-commit-at-poll")]
    pub(crate) fn settled_before_work(mut self) -> Self {
        self.settle(Outcome::Complete);
        self
    }

    /// Whether the partition is being let go: what is not begun yet need not be.
    pub fn is_lost(&self) -> bool {
        self.lease.lost.is_cancelled()
    }

    /// Resolves when the partition is being let go. Work in flight may go on and complete until the
    /// drain's deadline; waiting for others, as for a fetch, should end.
    pub async fn lost(&self) {
        self.lease.lost.cancelled().await;
    }

    /// Writes the failing part of the record to the dead letters, with its origin. `part` is a datum of
    /// the record's own type that holds nothing but the failing part. `Ok`: it is durable, and the
    /// record may be completed once its other parts are.
    pub async fn dead_letter(&self, part: &[u8], why: Reason) -> Result<(), AppendError> {
        let Position { partition, offset } = self.position();
        let Outlet { log, codec } = &*self.lease.outlet;
        let mut framed = Vec::new();
        codec.frame(partition.topic, part, &mut framed);
        let letter = DeadLetter {
            org: why.org,
            topic: partition.topic.label().to_owned(),
            partition: i32::try_from(partition.index).unwrap_or(i32::MAX),
            offset: offset.0,
            written_at: self.origin.written_at,
            key: self.origin.key.clone(),
            value: framed.into(),
            headers: self
                .origin
                .headers
                .iter()
                .map(|(name, value)| Header { name: name.to_owned(), value: value.clone() })
                .collect(),
            submission_id: why.submission_id,
            stage: why.stage.to_owned(),
            reason: why.tag.to_owned(),
            detail: why.detail,
            failed_at: Millis::now(),
        };
        let key = &self.origin.key;
        let to = log.partition(Topic::DeadLetters, key);
        log.reserved().append(&[(to, Record::of(key, &letter))]).await?;
        metrics::dead_letter(partition.topic, why.stage, why.tag);
        Ok(())
    }

    fn settle(&mut self, outcome: Outcome) {
        if !std::mem::replace(&mut self.settled, true) {
            let Lease { partition, epoch, ref desk, .. } = *self.lease;
            desk.report(Settled { partition, epoch, offset: self.offset, outcome });
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.settle(Outcome::Dropped);
    }
}
