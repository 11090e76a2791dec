//! Everything one consumer holds: a ledger for each assigned partition, the budget over all of them,
//! and the epochs that keep work of an assignment that is gone from counting.
//!
//! It holds no record, and knows neither clock nor engine.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::{
    budget::{Budget, Charge, Meter, Turn},
    ledger::{Ledger, LedgerError},
    ticket::{Epoch, Outcome, Settled},
    topics::{NextOffset, Offset, Partition},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum BookError {
    #[error("{0} is not assigned")]
    NotAssigned(Partition),
    #[error("{partition}: {error}")]
    Ledger { partition: Partition, error: LedgerError },
}

/// What a settled ticket meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Counted,
    /// Its assignment is gone: another owner works on the record.
    Straggler,
}

#[derive(Debug)]
struct Assignment {
    epoch: Epoch,
    ledger: Ledger,
    /// The highest commit begun.
    asked: NextOffset,
    /// Where the partition ended when it became ours. An earlier owner was handed nothing from here on.
    end: NextOffset,
}

#[derive(Debug)]
pub(crate) struct Book {
    meter: Meter,
    assigned: BTreeMap<Partition, Assignment>,
}

impl Book {
    pub(crate) const fn new(budget: Budget) -> Self {
        Self { meter: Meter::new(budget), assigned: BTreeMap::new() }
    }

    /// The partition is ours from `next` on, and ended at `end`. What an earlier assignment of it still held is given
    /// back.
    pub(crate) fn assign(&mut self, partition: Partition, epoch: Epoch, next: NextOffset, end: NextOffset) {
        self.release(partition);
        let ledger = Ledger::new(next);
        self.assigned.insert(partition, Assignment { epoch, ledger, asked: next, end });
    }

    /// A record is handed out. True: an earlier owner may have worked on it.
    pub(crate) fn deliver(
        &mut self,
        partition: Partition,
        offset: Offset,
        bytes: usize,
    ) -> Result<bool, BookError> {
        let assignment = self.assigned.get_mut(&partition).ok_or(BookError::NotAssigned(partition))?;
        assignment.ledger.deliver(offset, bytes).map_err(|error| BookError::Ledger { partition, error })?;
        self.meter.charge(Charge::one(bytes));
        Ok(offset.0 < assignment.end.0)
    }

    pub(crate) fn settle(&mut self, settled: Settled) -> Result<Fate, BookError> {
        let Settled { partition, epoch, offset, outcome } = settled;
        let Some(assignment) = self.assigned.get_mut(&partition).filter(|own| own.epoch == epoch) else {
            return Ok(Fate::Straggler);
        };
        match outcome {
            Outcome::Complete => assignment.ledger.complete(offset),
            Outcome::Dropped => assignment.ledger.abandon(offset),
        }
        .map(|()| Fate::Counted)
        .map_err(|error| BookError::Ledger { partition, error })
    }

    /// What is to be committed and was not asked for yet.
    pub(crate) fn begin_commit(&mut self) -> Vec<(Partition, NextOffset)> {
        let ahead = self.assigned.iter_mut().filter_map(|(partition, assignment)| {
            let frontier = assignment.ledger.frontier();
            if frontier <= assignment.asked {
                return None;
            }
            assignment.asked = frontier;
            Some((*partition, frontier))
        });
        ahead.collect()
    }

    /// A commit is durable. One of an assignment that is gone changes nothing.
    pub(crate) fn acknowledge(&mut self, partition: Partition, next: NextOffset) -> Result<(), BookError> {
        let Some(assignment) = self.assigned.get_mut(&partition) else { return Ok(()) };
        let back =
            assignment.ledger.acknowledge(next).map_err(|error| BookError::Ledger { partition, error })?;
        self.meter.refund(back);
        Ok(())
    }

    /// The commit did not happen: the next one asks again.
    pub(crate) fn fail_commit(&mut self, partition: Partition) {
        if let Some(assignment) = self.assigned.get_mut(&partition) {
            assignment.asked = assignment.ledger.acknowledged();
        }
    }

    /// The partition is not ours any more. Its epoch dies with it.
    pub(crate) fn release(&mut self, partition: Partition) {
        if let Some(assignment) = self.assigned.remove(&partition) {
            self.meter.refund(assignment.ledger.held());
        }
    }

    pub(crate) fn in_flight(&self, partitions: &[Partition]) -> usize {
        self.of(partitions).map(|assignment| assignment.ledger.in_flight()).sum()
    }

    /// Partitions that have something complete which no acknowledged commit has passed.
    pub(crate) fn uncommitted(&self, partitions: &[Partition]) -> usize {
        self.of(partitions).filter(|own| own.ledger.frontier() > own.ledger.acknowledged()).count()
    }

    /// Records that only wait for a commit.
    pub(crate) fn committable(&self) -> usize {
        self.assigned.values().map(|assignment| assignment.ledger.completed_prefix()).sum()
    }

    pub(crate) fn is_commit_unanswered(&self) -> bool {
        self.assigned.values().any(|own| own.asked > own.ledger.acknowledged())
    }

    pub(crate) fn frontiers(&self) -> impl Iterator<Item = (Partition, NextOffset)> {
        self.assigned.iter().map(|(partition, own)| (*partition, own.ledger.frontier()))
    }

    #[cfg(test)]
    fn partitions(&self) -> Vec<Partition> {
        self.assigned.keys().copied().collect()
    }

    pub(crate) const fn used(&self) -> Charge {
        self.meter.used()
    }

    pub(crate) const fn room(&self) -> Charge {
        self.meter.room()
    }

    pub(crate) const fn cap(&self) -> Budget {
        self.meter.cap()
    }

    pub(crate) const fn is_full(&self) -> bool {
        self.meter.is_closed()
    }

    pub(crate) fn turn(&mut self) -> Option<Turn> {
        self.meter.turn()
    }

    fn of<'a>(&'a self, partitions: &'a [Partition]) -> impl Iterator<Item = &'a Assignment> {
        partitions.iter().filter_map(|partition| self.assigned.get(partition))
    }
}

#[cfg(test)]
mod tests;
