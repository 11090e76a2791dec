//! How much a consumer may hold that no acknowledged commit has passed yet.
//!
//! It does not pause anything: it says when to.

use serde::{Deserialize, Serialize};

/// What one consumer may hold: records and bytes, whichever is reached first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    pub records: usize,
    pub bytes: usize,
}

/// A number of records and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Charge {
    pub(crate) records: usize,
    pub(crate) bytes: usize,
}

impl Charge {
    pub(crate) const fn one(bytes: usize) -> Self {
        Self { records: 1, bytes }
    }

    pub(crate) const fn is_zero(self) -> bool {
        self.records == 0 && self.bytes == 0
    }
}

impl std::ops::AddAssign for Charge {
    fn add_assign(&mut self, other: Self) {
        self.records = self.records.saturating_add(other.records);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

impl std::ops::SubAssign for Charge {
    fn sub_assign(&mut self, other: Self) {
        debug_assert!(
            other.records <= self.records && other.bytes <= self.bytes,
            "refunded more than charged"
        );
        self.records = self.records.saturating_sub(other.records);
        self.bytes = self.bytes.saturating_sub(other.bytes);
    }
}

/// What the gate does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Pause,
    Resume,
}

/// The budget in use. It closes at the cap and opens again at half of it, so that a consumer at its
/// limit does not pause and resume for every record.
#[derive(Debug)]
pub(crate) struct Meter {
    cap: Budget,
    used: Charge,
    closed: bool,
}

impl Meter {
    pub(crate) const fn new(cap: Budget) -> Self {
        Self { cap, used: Charge { records: 0, bytes: 0 }, closed: false }
    }

    pub(crate) fn charge(&mut self, charge: Charge) {
        self.used += charge;
    }

    pub(crate) fn refund(&mut self, charge: Charge) {
        self.used -= charge;
    }

    pub(crate) const fn used(&self) -> Charge {
        self.used
    }

    pub(crate) const fn cap(&self) -> Budget {
        self.cap
    }

    pub(crate) const fn is_closed(&self) -> bool {
        self.closed
    }

    /// What may still be fetched. A single record above the whole byte budget passes when nothing else
    /// is held, or it would never pass.
    pub(crate) const fn room(&self) -> Charge {
        if self.closed {
            return Charge { records: 0, bytes: 0 };
        }
        Charge {
            records: self.cap.records.saturating_sub(self.used.records),
            bytes: self.cap.bytes.saturating_sub(self.used.bytes),
        }
    }

    /// The change of the gate since the last call, if there is one.
    pub(crate) fn turn(&mut self) -> Option<Turn> {
        let full = self.used.records >= self.cap.records || self.used.bytes >= self.cap.bytes;
        let half = self.used.records <= self.cap.records / 2 && self.used.bytes <= self.cap.bytes / 2;
        if !self.closed && full {
            self.closed = true;
            return Some(Turn::Pause);
        }
        if self.closed && half {
            self.closed = false;
            return Some(Turn::Resume);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meter() -> Meter {
        Meter::new(Budget { records: 10, bytes: 1_000 })
    }

    #[test]
    fn the_gate_closes_at_the_cap_and_opens_at_half() {
        let mut meter = meter();
        meter.charge(Charge { records: 9, bytes: 9 });
        assert_eq!(meter.turn(), None);
        meter.charge(Charge::one(1));
        assert_eq!(meter.turn(), Some(Turn::Pause));
        assert_eq!(meter.turn(), None, "a turn is told once");
        assert!(meter.room().is_zero());
        meter.refund(Charge { records: 4, bytes: 4 });
        assert_eq!(meter.turn(), None, "six of ten is above half");
        meter.refund(Charge::one(1));
        assert_eq!(meter.turn(), Some(Turn::Resume));
    }

    #[test]
    fn bytes_close_the_gate_as_records_do() {
        let mut meter = meter();
        meter.charge(Charge::one(1_000));
        assert_eq!(meter.turn(), Some(Turn::Pause));
        meter.refund(Charge::one(1_000));
        assert_eq!(meter.turn(), Some(Turn::Resume));
        assert!(meter.used().is_zero());
    }

    #[test]
    fn a_record_above_the_whole_budget_is_held_alone() {
        let mut meter = meter();
        assert_eq!(meter.room(), Charge { records: 10, bytes: 1_000 });
        meter.charge(Charge::one(5_000));
        assert_eq!(meter.turn(), Some(Turn::Pause));
        meter.refund(Charge::one(5_000));
        assert_eq!(meter.turn(), Some(Turn::Resume));
    }

    #[test]
    fn a_budget_of_one_record_still_moves() {
        let mut meter = Meter::new(Budget { records: 1, bytes: 100 });
        meter.charge(Charge::one(1));
        assert_eq!(meter.turn(), Some(Turn::Pause));
        meter.refund(Charge::one(1));
        assert_eq!(meter.turn(), Some(Turn::Resume));
    }
}
