//! Limit of what a consumer holds before an acknowledged commit has passed it, and when to pause for it.

use crate::settings::Budget;

/// A number of records and their bytes.
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
        self.records = self.records.saturating_sub(other.records);
        self.bytes = self.bytes.saturating_sub(other.bytes);
    }
}

/// A change of the gate, for the driver to carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GateChange {
    Pause,
    Resume,
}

/// The budget in use. It closes at the limit and opens again at half of it, so that a consumer at its limit does not
/// pause and resume for every record.
#[derive(Debug)]
pub(crate) struct BudgetGate {
    limit: Budget,
    used: Amount,
    closed: bool,
}

impl BudgetGate {
    pub(crate) const fn new(limit: Budget) -> Self {
        Self { limit, used: Amount::ZERO, closed: false }
    }

    pub(crate) fn charge(&mut self, amount: Amount) {
        self.used += amount;
    }

    pub(crate) fn refund(&mut self, amount: Amount) {
        self.used -= amount;
    }

    pub(crate) const fn used(&self) -> Amount {
        self.used
    }

    pub(crate) const fn limit(&self) -> Budget {
        self.limit
    }

    pub(crate) const fn is_closed(&self) -> bool {
        self.closed
    }

    /// Amount that may still be fetched.
    pub(crate) const fn available(&self) -> Amount {
        if self.closed {
            return Amount::ZERO;
        }
        Amount {
            records: self.limit.records.saturating_sub(self.used.records),
            bytes: self.limit.bytes.saturating_sub(self.used.bytes),
        }
    }

    /// Opens or closes the gate if it is due, and returns the change.
    pub(crate) fn update(&mut self) -> Option<GateChange> {
        let is_full = self.used.records >= self.limit.records || self.used.bytes >= self.limit.bytes;
        let is_half_free =
            self.used.records <= self.limit.records / 2 && self.used.bytes <= self.limit.bytes / 2;
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
        assert!(gate.used().is_zero());
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
