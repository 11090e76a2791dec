//! Counts what rules come to, in metrics that cannot grow without bound.
//!
//! What became of one item stands in its row.

use std::{collections::HashSet, sync::Arc};

use parking_lot::Mutex;
use tidegate_schemas::ids::{OrgId, RuleId};

/// Rules beyond the bound are counted together under this name, which no rule can have.
const OTHERS: &str = "(others)";

#[derive(Clone)]
pub(crate) struct Tally {
    most: usize,
    named: Arc<Mutex<HashSet<(OrgId, RuleId)>>>,
}

impl Tally {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, named: Arc::default() }
    }

    pub(crate) fn count(&self, org: &OrgId, outcomes: &[(RuleId, &'static str)]) {
        for (rule, outcome) in outcomes {
            let (org, rule) = self.labels(org, rule);
            metrics::counter!("tidegate_rule_outcomes_total", "org" => org, "rule" => rule, "outcome" => *outcome)
                .increment(1);
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
    use super::*;

    #[test]
    fn rules_beyond_the_bound_are_counted_together() {
        let tally = Tally::new(2);
        let name = |rule: &str| tally.labels(&OrgId::new("acme"), &RuleId::new(rule)).1;
        assert_eq!(["a", "b", "c", "a", "d"].map(name), ["a", "b", OTHERS, "a", OTHERS]);
    }
}
