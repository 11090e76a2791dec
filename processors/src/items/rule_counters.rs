//! Counts outcomes of rules, in metrics with a bounded number of labels and in rows that outlive the process.
//!
//! The outcome of a single item is in the item's row.

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

/// Common label of the rules beyond the bound. No rule can have this name.
const OTHERS: &str = "(others)";

#[derive(Clone)]
pub(crate) struct OutcomeCounters {
    store: Store,
    counters: Arc<Mutex<RuleCounters>>,
    max_labels: usize,
    labelled_rules: Arc<Mutex<HashSet<(OrgId, RuleId)>>>,
    match_rates: Arc<Mutex<MatchRates>>,
    /// Percentage of items at which a rule is reported as too frequent; 0: never.
    frequent_percent: u64,
}

impl OutcomeCounters {
    pub(crate) fn new(store: Store, max_labels: usize, frequent_percent: u64) -> Self {
        Self {
            store,
            counters: Arc::default(),
            max_labels,
            labelled_rules: Arc::default(),
            match_rates: Arc::default(),
            frequent_percent,
        }
    }

    /// Counts items without a rule outcome.
    pub(crate) fn count_quiet(&self, org: &OrgId, items: usize) {
        if items > 0 && self.frequent_percent > 0 {
            self.match_rates.lock().count_quiet(org, u64::try_from(items).unwrap_or(u64::MAX));
        }
    }

    /// Counts the outcomes of an item appended to the log at `at`. Outcomes of child-safety items are counted only in the
    /// operator's metrics, because rule statistics are visible to callers without access to the item.
    pub(crate) fn count(
        &self,
        org: &OrgId,
        appended_at: Millis,
        outcomes: &[RuleOutcome],
        is_child_safety: bool,
    ) {
        if self.frequent_percent > 0 {
            self.match_rates.lock().count(org, outcomes);
        }
        if outcomes.is_empty() {
            return;
        }
        if !is_child_safety {
            self.counters.lock().count(org, appended_at, outcomes);
        }
        for outcome in outcomes {
            let (org, rule) = self.metric_labels(org, &outcome.rule);
            metrics::record_rule_outcome(org, rule, outcome.kind.as_str());
        }
    }

    /// Writes the counts and reports frequent rules at each interval, until `stop`.
    pub(crate) async fn write_periodically(self, interval: Duration, stop: CancellationToken) {
        while !stop.is_cancelled() {
            tokio::select! {
                () = tokio::time::sleep(interval) => {}
                () = stop.cancelled() => {}
            }
            self.write_counts().await;
            self.report_frequent_rules();
        }
    }

    /// Logs rules that match more than `frequent_percent` of the items.
    fn report_frequent_rules(&self) {
        let frequent_rules = self.match_rates.lock().take_frequent(self.frequent_percent);
        for FrequentRule { org, rule, version, matched, items } in frequent_rules {
            metrics::record_frequent_rule();
            tracing::warn!(%org, %rule, version, matched, items,
                "a rule matches most items, and each match is stored: narrow its condition or archive it");
        }
    }

    /// Writes the counts. After an error they are kept for the next write.
    pub(crate) async fn write_counts(&self) {
        let counters = self.counters.lock().take_changed();
        if let Err(error) = stats::write_rows(&self.store, &counters, Millis::now()).await {
            tracing::debug!(
                tag = error.tag(),
                "the counts of rules cannot be written and are kept for the next write"
            );
            self.counters.lock().put_back(counters);
        }
    }

    fn metric_labels(&self, org: &OrgId, rule: &RuleId) -> (String, String) {
        let mut labelled_rules = self.labelled_rules.lock();
        let key = (org.clone(), rule.clone());
        let has_own_label = labelled_rules.contains(&key)
            || labelled_rules.len() < self.max_labels && labelled_rules.insert(key);
        if has_own_label {
            (org.to_string(), rule.to_string())
        } else {
            (OTHERS.to_owned(), OTHERS.to_owned())
        }
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
        let counters = OutcomeCounters::new(store, 2, 0);
        let name = |rule: &str| counters.metric_labels(&OrgId::new("acme"), &RuleId::new(rule)).1;
        assert_eq!(["a", "b", "c", "a", "d"].map(name), ["a", "b", OTHERS, "a", OTHERS]);
    }
}
