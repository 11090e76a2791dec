//! Tracks the offsets of one assigned partition: delivered, completed, and committable.

use std::collections::VecDeque;

use thiserror::Error;
use tidegate_schemas::ids::Millis;

use super::budget::Amount;
use crate::topics::{NextOffset, Offset};

/// Misuse of a ledger. An engine that delivers in order and a ticket that settles once cause none of these. They are
/// errors so that a bug becomes a message and not a panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum LedgerError {
    #[error("offset {got} was delivered, but the next offset is {expected} or higher")]
    NotAscending { got: Offset, expected: NextOffset },
    #[error("offset {0} is not outstanding")]
    NotOutstanding(Offset),
    #[error("offset {0} was settled before")]
    SettledTwice(Offset),
    #[error("a commit of {got} was acknowledged, but the frontier is {frontier}")]
    AheadOfFrontier { got: NextOffset, frontier: NextOffset },
}

/// RecordState of a delivered record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RecordState {
    Open,
    Complete,
    /// The ticket was dropped: no work is in progress, and no commit may pass the record.
    Abandoned,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    offset: Offset,
    state: RecordState,
    bytes: usize,
    later_appends_from: Millis,
}

/// Ring of the delivered records that no acknowledged commit has passed.
///
/// Offsets may have gaps, in Kafka after retention or a transaction. A gap holds no record, so it counts as complete and
/// takes no slot.
#[derive(Debug)]
pub(crate) struct Ledger {
    slots: VecDeque<Slot>,
    /// One past the last delivered record, or the start of reading.
    end: NextOffset,
    acknowledged: NextOffset,
    /// Lower bound of the append times at `acknowledged` and above. `None` until a commit passes a record.
    acknowledged_until: Option<Millis>,
    /// Number of complete slots at the front, before the first that is not complete.
    completed_prefix: usize,
    /// Number of slots in the state `Open`.
    open_count: usize,
    held_amount: Amount,
}

impl Ledger {
    pub(crate) const fn new(start: NextOffset) -> Self {
        Self {
            slots: VecDeque::new(),
            end: start,
            acknowledged: start,
            acknowledged_until: None,
            completed_prefix: 0,
            open_count: 0,
            held_amount: Amount::ZERO,
        }
    }

    /// Adds a delivered record. No later record of the partition has an append time below `later_appends_from`.
    pub(crate) fn deliver(
        &mut self,
        offset: Offset,
        bytes: usize,
        later_appends_from: Millis,
    ) -> Result<(), LedgerError> {
        // A record that is delivered twice would get two tickets.
        if offset.0 < self.end.0 {
            return Err(LedgerError::NotAscending { got: offset, expected: self.end });
        }
        self.slots.push_back(Slot { offset, state: RecordState::Open, bytes, later_appends_from });
        self.end = offset.next();
        self.open_count += 1;
        self.held_amount += Amount::one(bytes);
        Ok(())
    }

    /// Marks a record as complete: all its effects are durable.
    pub(crate) fn complete(&mut self, offset: Offset) -> Result<(), LedgerError> {
        self.settle(offset, RecordState::Complete)?;
        while self.slots.get(self.completed_prefix).is_some_and(|slot| slot.state == RecordState::Complete) {
            self.completed_prefix += 1;
        }
        Ok(())
    }

    /// Marks a record as abandoned: its ticket was dropped before completion.
    pub(crate) fn abandon(&mut self, offset: Offset) -> Result<(), LedgerError> {
        self.settle(offset, RecordState::Abandoned)
    }

    fn settle(&mut self, offset: Offset, state: RecordState) -> Result<(), LedgerError> {
        let index = self.find_slot(offset).ok_or(LedgerError::NotOutstanding(offset))?;
        let slot = &mut self.slots[index];
        if slot.state != RecordState::Open {
            return Err(LedgerError::SettledTwice(offset));
        }
        slot.state = state;
        self.open_count -= 1;
        Ok(())
    }

    /// Returns the index of the slot of an offset: the distance from the front, or less if there are gaps.
    fn find_slot(&self, offset: Offset) -> Option<usize> {
        let front = self.slots.front()?.offset;
        let distance = usize::try_from(offset.0.checked_sub(front.0)?).ok()?;
        // Most partitions have no gaps, so the distance is the index and the search below is skipped.
        if self.slots.get(distance).is_some_and(|slot| slot.offset == offset) {
            return Some(distance);
        }
        self.slots.binary_search_by_key(&offset, |slot| slot.offset).ok()
    }

    /// Returns the end of the contiguous completed prefix, the highest value that may be committed. It never passes an open or
    /// abandoned record.
    pub(crate) fn frontier(&self) -> NextOffset {
        self.slots.get(self.completed_prefix).map_or(self.end, |slot| NextOffset(slot.offset.0))
    }

    /// Number of records that wait only for a commit.
    pub(crate) const fn completed_prefix(&self) -> usize {
        self.completed_prefix
    }

    /// Removes the records below a durable commit at `next`, and returns their amount.
    pub(crate) fn acknowledge(&mut self, next: NextOffset) -> Result<Amount, LedgerError> {
        let frontier = self.frontier();
        if next > frontier {
            return Err(LedgerError::AheadOfFrontier { got: next, frontier });
        }
        let mut freed_amount = Amount::default();
        while self.slots.front().is_some_and(|slot| slot.offset.0 < next.0) {
            if let Some(slot) = self.slots.pop_front() {
                freed_amount += Amount::one(slot.bytes);
                self.acknowledged_until = self.acknowledged_until.max(Some(slot.later_appends_from));
                // The frontier bounds `next`, so every removed slot belongs to the completed prefix.
                self.completed_prefix -= 1;
            }
        }
        self.held_amount -= freed_amount;
        // An older acknowledgement must not move it back.
        self.acknowledged = self.acknowledged.max(next);
        Ok(freed_amount)
    }

    pub(crate) const fn acknowledged(&self) -> NextOffset {
        self.acknowledged
    }

    pub(crate) const fn acknowledged_until(&self) -> Option<Millis> {
        self.acknowledged_until
    }

    /// Number of records in work.
    pub(crate) const fn in_flight(&self) -> usize {
        self.open_count
    }

    /// Share of the budget that the ledger holds.
    pub(crate) const fn held_amount(&self) -> Amount {
        self.held_amount
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn ledger(offsets: &[i64]) -> Ledger {
        let mut ledger = Ledger::new(NextOffset(offsets[0]));
        for offset in offsets {
            ledger.deliver(Offset(*offset), 10, Millis(*offset * 100)).unwrap();
        }
        ledger
    }

    #[test]
    fn out_of_order_completion_does_not_move_the_frontier() {
        let mut ledger = ledger(&[5, 6, 7]);
        ledger.complete(Offset(7)).unwrap();
        ledger.complete(Offset(6)).unwrap();
        assert_eq!(ledger.frontier(), NextOffset(5));
        ledger.complete(Offset(5)).unwrap();
        assert_eq!(ledger.frontier(), NextOffset(8));
    }

    #[test]
    fn a_gap_is_complete_by_itself() {
        let mut ledger = ledger(&[5, 9, 1_000_000_000_000]);
        ledger.complete(Offset(5)).unwrap();
        assert_eq!(ledger.frontier(), NextOffset(9));
        ledger.complete(Offset(1_000_000_000_000)).unwrap();
        ledger.complete(Offset(9)).unwrap();
        assert_eq!(ledger.frontier(), NextOffset(1_000_000_000_001));
    }

    #[test]
    fn a_record_is_held_until_an_acknowledged_commit_passes_it() {
        let mut ledger = ledger(&[0, 1, 2]);
        ledger.complete(Offset(0)).unwrap();
        ledger.complete(Offset(1)).unwrap();
        assert_eq!(ledger.held_amount(), Amount { records: 3, bytes: 30 });
        assert_eq!(ledger.acknowledge(NextOffset(1)).unwrap(), Amount::one(10));
        assert_eq!(
            ledger.acknowledge(NextOffset(1)).unwrap(),
            Amount::default(),
            "acknowledged twice, returned once"
        );
        assert_eq!(ledger.acknowledge(NextOffset(2)).unwrap(), Amount::one(10));
        assert_eq!(ledger.held_amount(), Amount::one(10));
    }

    #[test]
    fn acknowledged_time_follows_commits_and_not_completions() {
        let mut ledger = ledger(&[5, 6, 7]);
        ledger.complete(Offset(6)).unwrap();
        ledger.complete(Offset(5)).unwrap();
        assert_eq!(ledger.acknowledged_until(), None, "a crash now returns both records");
        ledger.acknowledge(NextOffset(6)).unwrap();
        assert_eq!(ledger.acknowledged_until(), Some(Millis(500)));
        ledger.acknowledge(NextOffset(7)).unwrap();
        assert_eq!(ledger.acknowledged_until(), Some(Millis(600)));
    }

    #[test]
    fn an_abandoned_record_is_no_longer_in_flight_and_never_passed() {
        let mut ledger = ledger(&[0, 1, 2]);
        ledger.abandon(Offset(1)).unwrap();
        ledger.complete(Offset(0)).unwrap();
        ledger.complete(Offset(2)).unwrap();
        assert_eq!(ledger.in_flight(), 0);
        assert_eq!(ledger.frontier(), NextOffset(1));
    }

    #[test]
    fn misuse_is_reported_and_changes_no_state() {
        let mut ledger = ledger(&[5, 6]);
        ledger.complete(Offset(6)).unwrap();
        assert_eq!(
            ledger.deliver(Offset(6), 1, Millis(0)),
            Err(LedgerError::NotAscending { got: Offset(6), expected: NextOffset(7) })
        );
        assert_eq!(ledger.complete(Offset(4)), Err(LedgerError::NotOutstanding(Offset(4))));
        assert_eq!(ledger.complete(Offset(i64::MIN)), Err(LedgerError::NotOutstanding(Offset(i64::MIN))));
        assert_eq!(ledger.complete(Offset(6)), Err(LedgerError::SettledTwice(Offset(6))));
        assert_eq!(
            ledger.acknowledge(NextOffset(6)),
            Err(LedgerError::AheadOfFrontier { got: NextOffset(6), frontier: NextOffset(5) })
        );
        assert_eq!(
            (ledger.frontier(), ledger.in_flight(), ledger.held_amount().records),
            (NextOffset(5), 1, 2)
        );
    }
}
