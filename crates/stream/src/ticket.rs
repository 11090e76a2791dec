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

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::{
    signal::Signal,
    topics::{Offset, Partition, Position},
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
}

/// The debt of one record. It ends with `complete`; a ticket dropped before that, while its partition
/// is owned, fails the role by name, and its offset is never passed.
#[derive(Debug)]
pub struct Ticket {
    lease: Arc<Lease>,
    offset: Offset,
    settled: bool,
}

impl Ticket {
    pub(crate) const fn new(lease: Arc<Lease>, offset: Offset) -> Self {
        Self { lease, offset, settled: false }
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

    /// Whether the partition is being let go: what is not begun yet need not be.
    pub fn is_lost(&self) -> bool {
        self.lease.lost.is_cancelled()
    }

    /// Resolves when the partition is being let go. Work in flight may go on and complete until the
    /// drain's deadline; waiting for others, as for a fetch, should end.
    pub async fn lost(&self) {
        self.lease.lost.cancelled().await;
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
