//! Counts what rules come to, in metrics that cannot grow without bound, and in rows that outlive the process.
//!
//! What became of one item stands in its row.

use std::{collections::HashSet, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tidegate_moderation::rules::{
    match_rates::{FrequentRule, MatchRates},
    stats::{self, RuleCounters, RuleOutcome},
};
use tidegate_schemas::ids::{Millis, OrgId, RuleId};
use tidegate_store::Store;
use tokio_util::sync::CancellationToken;

use crate::metrics;

/// Rules beyond the bound are counted together under this name, which no rule can have.
const OTHERS: &str = "(others)";

#[derive(Clone)]
pub(crate) struct OutcomeCounters {
    store: Store,
    counters: Arc<Mutex<RuleCounters>>,
    most: usize,
    named: Arc<Mutex<HashSet<(OrgId, RuleId)>>>,
    rates: Arc<Mutex<MatchRates>>,
    /// Share of items from which on a rule is reported as one that matches most; 0 for none.
    frequent_percent: u64,
}

impl OutcomeCounters {
    pub(crate) fn new(store: Store, most: usize, frequent_percent: u64) -> Self {
        Self {
            store,
            counters: Arc::default(),
            most,
            named: Arc::default(),
            rates: Arc::default(),
            frequent_percent,
        }
    }

    /// Counts items of which no rule came to anything.
    pub(crate) fn count_quiet(&self, org: &OrgId, items: usize) {
        if items > 0 && self.frequent_percent > 0 {
            self.rates.lock().count_quiet(org, u64::try_from(items).unwrap_or(u64::MAX));
        }
    }

    /// Counts the outcomes of an item that the log took at that time. Those of an item of child safety are in the metrics of
    /// the operator only: the statistics of rules are open to callers who may not see the item.
    pub(crate) fn count(&self, org: &OrgId, at: Millis, outcomes: &[RuleOutcome], is_child_safety: bool) {
        if self.frequent_percent > 0 {
            self.rates.lock().count(org, outcomes);
        }
        if outcomes.is_empty() {
            return;
        }
        if !is_child_safety {
            self.counters.lock().count(org, at, outcomes);
        }
        for outcome in outcomes {
            let (org, rule) = self.labels(org, &outcome.rule);
            metrics::rule_outcome(org, rule, outcome.kind.as_str());
        }
    }

    /// Writes what was counted now and then, until it is told to stop.
    pub(crate) async fn keep(self, every: Duration, stop: CancellationToken) {
        while !stop.is_cancelled() {
            tokio::select! {
                () = tokio::time::sleep(every) => {}
                () = stop.cancelled() => {}
            }
            self.write().await;
            self.report_frequent();
        }
    }

    /// Warns of rules that match most items.
    fn report_frequent(&self) {
        let frequent = self.rates.lock().take_frequent(self.frequent_percent);
        for FrequentRule { org, rule, version, matched, items } in frequent {
            metrics::frequent_rule();
            tracing::warn!(%org, %rule, version, matched, items,
                "a rule matches most items, and each match is stored: narrow its condition or archive it");
        }
    }

    /// Writes the counts. Those that cannot be written now are written the next time.
    pub(crate) async fn write(&self) {
        let written = self.counters.lock().take();
        if let Err(error) = stats::write(&self.store, &written, Millis::now()).await {
            tracing::debug!(tag = error.tag(), "the counts of rules are written later");
            self.counters.lock().put_back(written);
        }
    }

    fn labels(&self, org: &OrgId, rule: &RuleId) -> (String, String) {
        let mut named = self.named.lock();
        let key = (org.clone(), rule.clone());
        let has_name = named.contains(&key) || named.len() < self.most && named.insert(key);
        if has_name { (org.to_string(), rule.to_string()) } else { (OTHERS.to_owned(), OTHERS.to_owned()) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn rules_beyond_the_bound_are_counted_together() {
        let folder = tempfile::tempdir().unwrap();
        let db = fjall::Database::builder(folder.path()).open().unwrap();
        let store = Store::open_embedded(&db, tidegate_store::embedded::Settings::default()).unwrap();
        let tally = OutcomeCounters::new(store, 2, 0);
        let name = |rule: &str| tally.labels(&OrgId::new("acme"), &RuleId::new(rule)).1;
        assert_eq!(["a", "b", "c", "a", "d"].map(name), ["a", "b", OTHERS, "a", OTHERS]);
    }
}
