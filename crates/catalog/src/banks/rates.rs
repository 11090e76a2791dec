//! Notices entries that suddenly match much more often than they did.
//!
//! It switches nothing off, and has no clock. What it counts is what this process sees.

use std::collections::HashMap;

use tidegate_schemas::{
    documents::Quarantine,
    ids::{BankId, Millis},
};
use uuid::Uuid;

#[derive(Default)]
pub(crate) struct Rates(HashMap<(BankId, Uuid), Rate>);

struct Rate {
    /// Of the stretch of time that is being counted.
    began: Millis,
    count: u32,
    /// Of the stretches before, the late ones more than the early ones.
    before: f64,
}

impl Rates {
    /// Counts a match; whether it is the one with which the entry's rate has jumped.
    pub(crate) fn count(&mut self, bank: &BankId, entry: Uuid, rule: &Quarantine, now: Millis) -> bool {
        let key = (bank.clone(), entry);
        let rate = self.0.entry(key).or_insert(Rate { began: now, count: 0, before: 0.0 });
        rate.move_to(rule, now);
        rate.count = rate.count.saturating_add(1);
        let usual = rate.before * f64::from(rule.times);
        let has_jumped = rate.count >= rule.matches && f64::from(rate.count) >= usual;
        if has_jumped {
            rate.count = 0;
        }
        has_jumped
    }

    /// Forgets what has not matched for long, so that only what matches takes memory.
    pub(crate) fn forget(&mut self, before: Millis) {
        self.0.retain(|_, rate| rate.began >= before);
    }
}

impl Rate {
    fn move_to(&mut self, rule: &Quarantine, now: Millis) {
        let length = i64::try_from(rule.within.seconds()).unwrap_or(i64::MAX / 1_000) * 1_000;
        let passed = (now.0 - self.began.0) / length.max(1);
        if passed < 1 {
            return;
        }
        self.before = f64::midpoint(self.before, f64::from(self.count));
        // Each stretch without a match halves it.
        self.before /= 2_f64.powi(i32::try_from(passed - 1).unwrap_or(i32::MAX).min(64));
        self.began = Millis(self.began.0 + passed * length);
        self.count = 0;
    }
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
        let mut rates = Rates::default();
        assert_eq!(jumps(&mut rates, 19, 0), 0);
        assert_eq!(jumps(&mut rates, 1, MINUTE - 1), 1);
        let mut slow = Rates::default();
        assert_eq!((0..200).map(|nth| jumps(&mut slow, 1, nth * MINUTE / 10)).sum::<usize>(), 0);
    }

    #[test]
    fn one_that_always_matches_much_has_not() {
        let mut rates = Rates::default();
        for minute in 0..20 {
            assert_eq!(jumps(&mut rates, 15, minute * MINUTE), 0);
        }
        assert_eq!(jumps(&mut rates, 140, 20 * MINUTE), 0, "ten times as much is 150");
        assert_eq!(jumps(&mut rates, 15, 20 * MINUTE + 1), 1);
        rates.forget(Millis(21 * MINUTE));
        assert!(rates.0.is_empty());
    }
}
