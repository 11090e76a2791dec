//! Detects entries that match much more often than before, from the matches of this process.

use std::collections::HashMap;

use tidegate_schemas::{
    documents::Quarantine,
    ids::{BankId, Millis},
};
use uuid::Uuid;

pub(crate) struct Rates {
    /// Start of counting. Earlier rates are unknown.
    since: Millis,
    rates: HashMap<(BankId, Uuid), Rate>,
}

struct Rate {
    /// Start of the current period.
    period_start: Millis,
    count: u32,
    /// Average count of past periods, weighted towards recent ones.
    past_average: f64,
    /// True if the spike of this period was reported.
    is_reported: bool,
}

impl Rates {
    pub(crate) fn new(since: Millis) -> Self {
        Self { since, rates: HashMap::new() }
    }

    /// Counts a match; returns true once per period, when the entry's rate spikes.
    pub(crate) fn record_match(
        &mut self,
        bank: &BankId,
        entry: Uuid,
        rule: &Quarantine,
        now: Millis,
    ) -> bool {
        let key = (bank.clone(), entry);
        let rate = self.rates.entry(key).or_insert(Rate {
            period_start: now,
            count: 0,
            past_average: 0.0,
            is_reported: false,
        });
        rate.advance_to(rule, now);
        rate.count = rate.count.saturating_add(1);
        let spike_threshold = rate.past_average * f64::from(rule.times);
        // Within one period after the start, a high rate may have been usual before.
        let has_history = rate.period_start.0 - self.since.0 >= period_ms(rule);
        let exceeds_threshold = rate.count >= rule.matches && f64::from(rate.count) >= spike_threshold;
        let is_new_spike = has_history && exceeds_threshold && !rate.is_reported;
        rate.is_reported |= is_new_spike;
        is_new_spike
    }

    /// Removes entries without a match since the cutoff, to bound memory.
    pub(crate) fn forget_inactive(&mut self, cutoff: Millis) {
        self.rates.retain(|_, rate| rate.period_start >= cutoff);
    }
}

impl Rate {
    fn advance_to(&mut self, rule: &Quarantine, now: Millis) {
        let period_ms = period_ms(rule);
        let elapsed_periods = (now.0 - self.period_start.0) / period_ms;
        if elapsed_periods < 1 {
            return;
        }
        self.past_average = f64::midpoint(self.past_average, f64::from(self.count));
        // Every further period had no match and halves the average.
        self.past_average /= 2_f64.powi(i32::try_from(elapsed_periods - 1).unwrap_or(i32::MAX).min(64));
        self.period_start = Millis(self.period_start.0 + elapsed_periods * period_ms);
        self.count = 0;
        self.is_reported = false;
    }
}

/// Returns the length of a rule's period in milliseconds.
fn period_ms(rule: &Quarantine) -> i64 {
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
        (0..count).filter(|_| rates.record_match(&bank, Uuid::nil(), &rule(), Millis(now))).count()
    }

    #[test]
    fn sudden_rise_of_matches_is_a_spike() {
        let mut rates = Rates::new(Millis(-MINUTE));
        assert_eq!(jumps(&mut rates, 19, 0), 0);
        assert_eq!(jumps(&mut rates, 1, MINUTE - 1), 1);
        assert_eq!(jumps(&mut rates, 30, MINUTE - 1), 0, "told once");
        let mut slow = Rates::new(Millis(-MINUTE));
        assert_eq!((0..200).map(|nth| jumps(&mut slow, 1, nth * MINUTE / 10)).sum::<usize>(), 0);
    }

    #[test]
    fn no_spike_is_reported_in_the_first_period() {
        let mut rates = Rates::new(Millis(0));
        assert_eq!(jumps(&mut rates, 500, MINUTE - 1), 0, "it may have been as much before");
        assert_eq!(jumps(&mut rates, 500, MINUTE + 1), 0, "its stretch began before");
        assert_eq!(jumps(&mut rates, 4_999, 2 * MINUTE), 0, "ten times as much is 5,000");
        assert_eq!(jumps(&mut rates, 1, 2 * MINUTE), 1);
    }

    #[test]
    fn steady_high_rate_is_no_spike() {
        let mut rates = Rates::new(Millis(-MINUTE));
        for minute in 0..20 {
            assert_eq!(jumps(&mut rates, 15, minute * MINUTE), 0);
        }
        assert_eq!(jumps(&mut rates, 140, 20 * MINUTE), 0, "ten times as much is 150");
        assert_eq!(jumps(&mut rates, 15, 20 * MINUTE + 1), 1);
        rates.forget_inactive(Millis(21 * MINUTE));
        assert!(rates.rates.is_empty());
    }
}
