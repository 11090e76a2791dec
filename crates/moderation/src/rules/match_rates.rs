//! Detects rules that match most items of an organisation. Such rules are rarely intended, and each match is stored.
//! Pure.

use std::collections::{HashMap, HashSet};

use tidegate_schemas::ids::{OrgId, RuleId};

use super::stats::{OutcomeKind, RuleOutcome};

/// Number of items of an organisation per sample.
const SAMPLE: u64 = 1_000;

/// Maximum number of organisations with an open sample. Beyond it, all samples restart.
const ORGS: usize = 10_000;

/// Maximum number of remembered reports. Beyond it, a rule may be reported again.
const REPORTED: usize = 100_000;

/// Rule that matched most items of a sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrequentRule {
    pub org: OrgId,
    pub rule: RuleId,
    pub version: String,
    pub matched: u64,
    pub items: u64,
}

#[derive(Debug, Default)]
struct Sample {
    items: u64,
    matched: HashMap<RuleId, (String, u64)>,
}

/// Matches by rule since the last sample of each organisation.
#[derive(Debug, Default)]
pub struct MatchRates {
    samples: HashMap<OrgId, Sample>,
    reported: HashSet<(OrgId, RuleId, String)>,
}

impl MatchRates {
    /// Counts items without matches and failures.
    pub fn count_quiet(&mut self, org: &OrgId, items: u64) {
        self.sample(org).items += items;
    }

    /// Counts an item with the outcomes of its rules.
    pub fn count(&mut self, org: &OrgId, outcomes: &[RuleOutcome]) {
        let sample = self.sample(org);
        sample.items += 1;
        for outcome in outcomes.iter().filter(|candidate| candidate.kind != OutcomeKind::Errored) {
            if let Some((version, matched)) = sample.matched.get_mut(&outcome.rule) {
                // A new version starts at zero, so that it is not blamed for the matches of its predecessor.
                if *version != outcome.version {
                    (*version, *matched) = (outcome.version.clone(), 0);
                }
                *matched += 1;
            } else {
                sample.matched.insert(outcome.rule.clone(), (outcome.version.clone(), 1));
            }
        }
    }

    /// Returns the rules that matched at least `percent` of the items in a full sample, each version once.
    pub fn take_frequent(&mut self, percent: u64) -> Vec<FrequentRule> {
        let mut frequent = Vec::new();
        let is_full = |_: &OrgId, sample: &mut Sample| sample.items >= SAMPLE;
        for (org, Sample { items, matched }) in self.samples.extract_if(is_full) {
            for (rule, (version, matched)) in matched {
                if matched.saturating_mul(100) < items.saturating_mul(percent) {
                    continue;
                }
                if self.reported.len() >= REPORTED {
                    self.reported.clear();
                }
                if self.reported.insert((org.clone(), rule.clone(), version.clone())) {
                    frequent.push(FrequentRule { org: org.clone(), rule, version, matched, items });
                }
            }
        }
        frequent
    }

    fn sample(&mut self, org: &OrgId) -> &mut Sample {
        if self.samples.len() >= ORGS && !self.samples.contains_key(org) {
            self.samples.clear();
        }
        self.samples.entry(org.clone()).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(rule: &str, kind: OutcomeKind) -> RuleOutcome {
        RuleOutcome { rule: rule.into(), version: "1".to_owned(), kind }
    }

    #[test]
    fn rule_that_matches_most_items_is_reported_once() {
        let (acme, other) = (OrgId::new("acme"), OrgId::new("other"));
        let mut rates = MatchRates::default();
        let mut reported = Vec::new();
        for round in 0..3 {
            for nth in 0..950 {
                let mut outcomes =
                    vec![outcome("all", OutcomeKind::Acted), outcome("bad", OutcomeKind::Errored)];
                if nth % 2 == 0 {
                    outcomes.push(outcome("half", OutcomeKind::Acted));
                }
                rates.count(&acme, &outcomes);
                rates.count(&other, &outcomes);
            }
            assert_eq!(rates.take_frequent(90).len(), usize::from(round == 1), "the sample of the other org");
            rates.count_quiet(&acme, 50);
            reported.extend(rates.take_frequent(90));
        }
        let rules: Vec<_> =
            reported.iter().map(|it| (it.org.as_str(), it.rule.as_str(), it.matched, it.items)).collect();
        assert_eq!(rules, [("acme", "all", 950, 1_000)]);
    }

    #[test]
    fn quiet_items_lower_the_rate() {
        let org = OrgId::new("acme");
        let mut rates = MatchRates::default();
        for _ in 0..900 {
            rates.count(&org, &[outcome("often", OutcomeKind::Acted)]);
        }
        rates.count_quiet(&org, 200);
        assert_eq!(rates.take_frequent(90), []);
        assert!(rates.samples.is_empty());
    }
}
