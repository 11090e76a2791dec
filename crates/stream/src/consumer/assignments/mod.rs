//! State of one consumer: a ledger for each assigned partition, the budget over all of them, and the epochs that exclude
//! settlements of former assignments.

use std::collections::BTreeMap;

use thiserror::Error;
use tidegate_schemas::ids::Millis;

use super::{
    budget::{Amount, BudgetGate, GateChange},
    ledger::{Ledger, LedgerError},
    ticket::{Epoch, Outcome, Settlement},
};
use crate::{
    settings::Budget,
    topics::{NextOffset, Offset, Partition},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum AssignmentError {
    #[error("{0} is not assigned")]
    NotAssigned(Partition),
    #[error("{partition}: {error}")]
    Ledger { partition: Partition, error: LedgerError },
}

/// Effect of a settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SettleResult {
    Counted,
    /// The assignment has ended, and another owner processes the record.
    Stale,
}

/// End of a partition at some time: no record at `end` or above has an append time below `complete_until`.
#[derive(Clone, Copy, Debug)]
struct ObservedEnd {
    end: NextOffset,
    complete_until: Millis,
}

#[derive(Debug)]
struct Assignment {
    epoch: Epoch,
    ledger: Ledger,
    /// Highest offset for which a commit was begun.
    requested: NextOffset,
    /// End of the partition at its assignment. No earlier owner received records from here on.
    end: NextOffset,
    /// Observation that no acknowledged commit has reached yet.
    pending_end: Option<ObservedEnd>,
    completed_until: Option<Millis>,
}

impl Assignment {
    fn update_completed_time(&mut self) {
        let acknowledged = self.ledger.acknowledged();
        let reached_end = self.pending_end.take_if(|observed| acknowledged >= observed.end);
        self.completed_until = self
            .completed_until
            .max(self.ledger.acknowledged_until())
            .max(reached_end.map(|observed| observed.complete_until));
    }
}

#[derive(Debug)]
pub(crate) struct Assignments {
    gate: BudgetGate,
    assigned: BTreeMap<Partition, Assignment>,
}

impl Assignments {
    pub(crate) const fn new(budget: Budget) -> Self {
        Self { gate: BudgetGate::new(budget), assigned: BTreeMap::new() }
    }

    /// Adds a partition that is read from `next` and ended at `end`. Releases an earlier assignment of it with its share of
    /// the budget.
    pub(crate) fn assign(&mut self, partition: Partition, epoch: Epoch, next: NextOffset, end: NextOffset) {
        self.release(partition);
        let ledger = Ledger::new(next);
        let assignment =
            Assignment { epoch, ledger, requested: next, end, pending_end: None, completed_until: None };
        self.assigned.insert(partition, assignment);
    }

    /// Counts a delivered record. Returns true if an earlier owner may have processed it.
    pub(crate) fn deliver(
        &mut self,
        partition: Partition,
        offset: Offset,
        bytes: usize,
        later_appends_from: Millis,
    ) -> Result<bool, AssignmentError> {
        let assignment = self.assigned.get_mut(&partition).ok_or(AssignmentError::NotAssigned(partition))?;
        assignment
            .ledger
            .deliver(offset, bytes, later_appends_from)
            .map_err(|error| AssignmentError::Ledger { partition, error })?;
        self.gate.charge(Amount::one(bytes));
        Ok(offset.0 < assignment.end.0)
    }

    pub(crate) fn settle(&mut self, settlement: Settlement) -> Result<SettleResult, AssignmentError> {
        let Settlement { partition, epoch, offset, outcome } = settlement;
        let Some(assignment) =
            self.assigned.get_mut(&partition).filter(|assignment| assignment.epoch == epoch)
        else {
            // A ticket of a former assignment. The offset may be open again in the present one.
            return Ok(SettleResult::Stale);
        };
        match outcome {
            Outcome::Complete => assignment.ledger.complete(offset),
            Outcome::Dropped => assignment.ledger.abandon(offset),
        }
        .map(|()| SettleResult::Counted)
        .map_err(|error| AssignmentError::Ledger { partition, error })
    }

    /// Returns the frontiers without a commit, and marks their commits as begun.
    pub(crate) fn begin_commit(&mut self) -> Vec<(Partition, NextOffset)> {
        let commits = self.assigned.iter_mut().filter_map(|(partition, assignment)| {
            let frontier = assignment.ledger.frontier();
            // No progress since the last request.
            if frontier <= assignment.requested {
                return None;
            }
            assignment.requested = frontier;
            Some((*partition, frontier))
        });
        commits.collect()
    }

    /// Frees the budget of the records below a durable commit. A commit of a former assignment has no effect.
    pub(crate) fn acknowledge(
        &mut self,
        partition: Partition,
        next: NextOffset,
    ) -> Result<(), AssignmentError> {
        let Some(assignment) = self.assigned.get_mut(&partition) else { return Ok(()) };
        let freed_amount = assignment
            .ledger
            .acknowledge(next)
            .map_err(|error| AssignmentError::Ledger { partition, error })?;
        assignment.update_completed_time();
        self.gate.refund(freed_amount);
        Ok(())
    }

    /// Notes the end of a partition: no record at `end` or above has an append time below `complete_until`.
    pub(crate) fn observe_end(&mut self, partition: Partition, end: NextOffset, complete_until: Millis) {
        let Some(assignment) = self.assigned.get_mut(&partition) else { return };
        let observed = ObservedEnd { end, complete_until };
        match &mut assignment.pending_end {
            // Under constant load the latest end is never reached, so an earlier one is kept until it is.
            Some(pending) if pending.end < end => {}
            pending => *pending = Some(observed),
        }
        assignment.update_completed_time();
    }

    /// Returns the append time of each partition below which all records are completed and passed by an acknowledged commit.
    pub(crate) fn completed_times(&self) -> impl Iterator<Item = (Partition, Millis)> {
        self.assigned
            .iter()
            .filter_map(|(partition, assignment)| Some((*partition, assignment.completed_until?)))
    }

    /// Marks a commit as not begun, so that the next one includes its offsets again.
    pub(crate) fn fail_commit(&mut self, partition: Partition) {
        if let Some(assignment) = self.assigned.get_mut(&partition) {
            assignment.requested = assignment.ledger.acknowledged();
        }
    }

    /// Drops a partition and its epoch.
    pub(crate) fn release(&mut self, partition: Partition) {
        if let Some(assignment) = self.assigned.remove(&partition) {
            self.gate.refund(assignment.ledger.held_amount());
        }
    }

    /// Number of records in work.
    pub(crate) fn in_flight(&self, partitions: &[Partition]) -> usize {
        self.assignments_of(partitions).map(|assignment| assignment.ledger.in_flight()).sum()
    }

    /// Number of partitions with completed records that no acknowledged commit has passed.
    pub(crate) fn uncommitted(&self, partitions: &[Partition]) -> usize {
        self.assignments_of(partitions)
            .filter(|assignment| assignment.ledger.frontier() > assignment.ledger.acknowledged())
            .count()
    }

    /// Number of records that wait only for a commit.
    pub(crate) fn committable(&self) -> usize {
        self.assigned.values().map(|assignment| assignment.ledger.completed_prefix()).sum()
    }

    pub(crate) fn has_commit_in_flight(&self) -> bool {
        self.assigned.values().any(|assignment| assignment.requested > assignment.ledger.acknowledged())
    }

    pub(crate) fn frontiers(&self) -> impl Iterator<Item = (Partition, NextOffset)> {
        self.assigned.iter().map(|(partition, assignment)| (*partition, assignment.ledger.frontier()))
    }

    #[cfg(test)]
    fn partitions(&self) -> Vec<Partition> {
        self.assigned.keys().copied().collect()
    }

    pub(crate) const fn held_amount(&self) -> Amount {
        self.gate.held_amount()
    }

    pub(crate) const fn available(&self) -> Amount {
        self.gate.available()
    }

    pub(crate) const fn limit(&self) -> Budget {
        self.gate.limit()
    }

    pub(crate) const fn is_full(&self) -> bool {
        self.gate.is_closed()
    }

    pub(crate) fn update_gate(&mut self) -> Option<GateChange> {
        self.gate.update()
    }

    fn assignments_of<'a>(&'a self, partitions: &'a [Partition]) -> impl Iterator<Item = &'a Assignment> {
        partitions.iter().filter_map(|partition| self.assigned.get(partition))
    }
}

#[cfg(test)]
mod tests;
