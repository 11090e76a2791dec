//! Notices entries that suddenly match much more often than they did.
//!
//! It switches nothing off, and has no clock. What it counts is what this process sees.

use std::collections::HashMap;

use tidegate_schemas::{
    documents::Quarantine,
    ids::{BankId, Millis},
};
use uuid::Uuid;

pub(crate) struct Rates {
    /// Time at which this process began to count. It does not know the rates before.
    since: Millis,
    rates: HashMap<(BankId, Uuid), Rate>,
}

struct Rate {
    /// Start of the time stretch that is being counted.
    began: Millis,
    count: u32,
    /// Weighted count of earlier stretches; late ones weigh more.
    before: f64,
    /// True if the jump in this stretch was reported.
    told: bool,
}

impl Rates {
    pub(crate) fn new(since: Millis) -> Self {
        Self { since, rates: HashMap::new() }
    }

    /// Counts a match; whether it is the one with which the entry's rate has jumped.
    pub(crate) fn count(&mut self, bank: &BankId, entry: Uuid, rule: &Quarantine, now: Millis) -> bool {
        let key = (bank.clone(), entry);
        let rate = self.rates.entry(key).or_insert(Rate { began: now, count: 0, before: 0.0, told: false });
        rate.move_to(rule, now);
        rate.count = rate.count.saturating_add(1);
        let usual = rate.before * f64::from(rule.times);
        let knows_usual = rate.began.0 - self.since.0 >= length(rule);
        let is_much = rate.count >= rule.matches && f64::from(rate.count) >= usual;
        let has_jumped = knows_usual && is_much && !rate.told;
        rate.told |= has_jumped;
        has_jumped
    }

    /// Forgets what has not matched for long, so that only what matches takes memory.
    pub(crate) fn forget(&mut self, before: Millis) {
        self.rates.retain(|_, rate| rate.began >= before);
    }
}

impl Rate {
    fn move_to(&mut self, rule: &Quarantine, now: Millis) {
        let length = length(rule);
        let passed = (now.0 - self.began.0) / length;
        if passed < 1 {
            return;
        }
        self.before = f64::midpoint(self.before, f64::from(self.count));
        // Each stretch without a match halves it.
        self.before /= 2_f64.powi(i32::try_from(passed - 1).unwrap_or(i32::MAX).min(64));
        self.began = Millis(self.began.0 + passed * length);
        self.count = 0;
        self.told = false;
    }
}

/// Returns the length of a time stretch in milliseconds.
fn length(rule: &Quarantine) -> i64 {
    (i64::try_from(rule.within.seconds()).unwrap_or(i64::MAX / 1_000) * 1_000).max(1)
}

#[cfg(test)]
mod tests {
    use tidegate_schemas::documents::Period;

    use super::*;

    const MINUTE: i64 = 60_000;

    fn rule() -> Quarantine {
        Quarantine { matches: 20, within: Period::of_seconds(60), times: 10 }
    }

    fn jumps(rates: &mut Rates, count: u32, now: i64) -> usize {
        let bank = BankId::new("b");
        (0..count).filter(|_| rates.count(&bank, Uuid::nil(), &rule(), Millis(now))).count()
    }

    #[test]
    fn an_entry_that_matches_much_all_at_once_has_jumped() {
        let mut rates = Rates::new(Millis(-MINUTE));
        assert_eq!(jumps(&mut rates, 19, 0), 0);
        assert_eq!(jumps(&mut rates, 1, MINUTE - 1), 1);
        assert_eq!(jumps(&mut rates, 30, MINUTE - 1), 0, "told once");
        let mut slow = Rates::new(Millis(-MINUTE));
        assert_eq!((0..200).map(|nth| jumps(&mut slow, 1, nth * MINUTE / 10)).sum::<usize>(), 0);
    }

    #[test]
    fn a_process_that_has_just_begun_knows_no_jumps() {
        let mut rates = Rates::new(Millis(0));
        assert_eq!(jumps(&mut rates, 500, MINUTE - 1), 0, "it may have been as much before");
        assert_eq!(jumps(&mut rates, 500, MINUTE + 1), 0, "its stretch began before");
        assert_eq!(jumps(&mut rates, 4_999, 2 * MINUTE), 0, "ten times as much is 5,000");
        assert_eq!(jumps(&mut rates, 1, 2 * MINUTE), 1);
    }

    #[test]
    fn one_that_always_matches_much_has_not() {
        let mut rates = Rates::new(Millis(-MINUTE));
        for minute in 0..20 {
            assert_eq!(jumps(&mut rates, 15, minute * MINUTE), 0);
        }
        assert_eq!(jumps(&mut rates, 140, 20 * MINUTE), 0, "ten times as much is 150");
        assert_eq!(jumps(&mut rates, 15, 20 * MINUTE + 1), 1);
        rates.forget(Millis(21 * MINUTE));
        assert!(rates.rates.is_empty());
    }
}
