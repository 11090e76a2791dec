//! Limits the records that a consumer holds without an acknowledged commit, and decides when to pause it.

use crate::settings::Budget;

/// Number of records and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amount {
    pub(crate) records: usize,
    pub(crate) bytes: usize,
}

impl Amount {
    pub(crate) const ZERO: Self = Self { records: 0, bytes: 0 };

    pub(crate) const fn one(bytes: usize) -> Self {
        Self { records: 1, bytes }
    }

    pub(crate) const fn is_zero(self) -> bool {
        self.records == 0 && self.bytes == 0
    }
}

impl std::ops::AddAssign for Amount {
    fn add_assign(&mut self, other: Self) {
        self.records = self.records.saturating_add(other.records);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

impl std::ops::SubAssign for Amount {
    fn sub_assign(&mut self, other: Self) {
        debug_assert!(
            other.records <= self.records && other.bytes <= self.bytes,
            "refunded more than charged"
        );
        // Release builds saturate: a miscount must not wrap around to a full budget.
        self.records = self.records.saturating_sub(other.records);
        self.bytes = self.bytes.saturating_sub(other.bytes);
    }
}

/// Change of the gate, to be executed by the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GateChange {
    Pause,
    Resume,
}

/// Budget of a consumer. The gate closes at the limit and opens at half of it, so that a consumer at its limit does not
/// pause and resume for every record.
#[derive(Debug)]
pub(crate) struct BudgetGate {
    limit: Budget,
    held_amount: Amount,
    closed: bool,
}

impl BudgetGate {
    pub(crate) const fn new(limit: Budget) -> Self {
        Self { limit, held_amount: Amount::ZERO, closed: false }
    }

    pub(crate) fn charge(&mut self, amount: Amount) {
        self.held_amount += amount;
    }

    pub(crate) fn refund(&mut self, amount: Amount) {
        self.held_amount -= amount;
    }

    pub(crate) const fn held_amount(&self) -> Amount {
        self.held_amount
    }

    pub(crate) const fn limit(&self) -> Budget {
        self.limit
    }

    pub(crate) const fn is_closed(&self) -> bool {
        self.closed
    }

    /// Returns the amount that may still be fetched.
    pub(crate) const fn available(&self) -> Amount {
        if self.closed {
            return Amount::ZERO;
        }
        Amount {
            records: self.limit.records.saturating_sub(self.held_amount.records),
            bytes: self.limit.bytes.saturating_sub(self.held_amount.bytes),
        }
    }

    /// Opens or closes the gate if it is due, and returns the change.
    pub(crate) fn update(&mut self) -> Option<GateChange> {
        let is_full =
            self.held_amount.records >= self.limit.records || self.held_amount.bytes >= self.limit.bytes;
        // Both limits must have room, or the gate would close again at once.
        let is_half_free = self.held_amount.records <= self.limit.records / 2
            && self.held_amount.bytes <= self.limit.bytes / 2;
        if !self.closed && is_full {
            self.closed = true;
            return Some(GateChange::Pause);
        }
        if self.closed && is_half_free {
            self.closed = false;
            return Some(GateChange::Resume);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate() -> BudgetGate {
        BudgetGate::new(Budget { records: 10, bytes: 1_000 })
    }

    #[test]
    fn the_gate_closes_at_the_limit_and_opens_at_half() {
        let mut gate = gate();
        gate.charge(Amount { records: 9, bytes: 9 });
        assert_eq!(gate.update(), None);
        gate.charge(Amount::one(1));
        assert_eq!(gate.update(), Some(GateChange::Pause));
        assert_eq!(gate.update(), None, "a change is returned once");
        assert!(gate.available().is_zero());
        gate.refund(Amount { records: 4, bytes: 4 });
        assert_eq!(gate.update(), None, "six of ten is above half");
        gate.refund(Amount::one(1));
        assert_eq!(gate.update(), Some(GateChange::Resume));
    }

    #[test]
    fn bytes_close_the_gate_as_records_do() {
        let mut gate = gate();
        gate.charge(Amount::one(1_000));
        assert_eq!(gate.update(), Some(GateChange::Pause));
        gate.refund(Amount::one(1_000));
        assert_eq!(gate.update(), Some(GateChange::Resume));
        assert!(gate.held_amount().is_zero());
    }

    #[test]
    fn a_record_above_the_whole_budget_is_held_alone() {
        let mut gate = gate();
        assert_eq!(gate.available(), Amount { records: 10, bytes: 1_000 });
        gate.charge(Amount::one(5_000));
        assert_eq!(gate.update(), Some(GateChange::Pause));
        gate.refund(Amount::one(5_000));
        assert_eq!(gate.update(), Some(GateChange::Resume));
    }

    #[test]
    fn a_budget_of_one_record_still_moves() {
        let mut gate = BudgetGate::new(Budget { records: 1, bytes: 100 });
        gate.charge(Amount::one(1));
        assert_eq!(gate.update(), Some(GateChange::Pause));
        gate.refund(Amount::one(1));
        assert_eq!(gate.update(), Some(GateChange::Resume));
    }
}
