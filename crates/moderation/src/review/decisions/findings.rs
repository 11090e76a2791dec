//! Findings of a decision about the rules that led to it.

use tidegate_schemas::ids::{ItemKey, Millis};
use tidegate_store::tables::items::rules::Finding;

use crate::{
    Error,
    effects::{Plan, PlannedFinding},
    rules::stats::RuleHit,
};

/// Parses hits from JSON lists. Returns each rule version once per day.
pub(super) fn parse_hits<'a>(texts: impl Iterator<Item = &'a str>) -> Result<Vec<RuleHit>, Error> {
    let mut distinct_hits: Vec<RuleHit> = Vec::new();
    for text in texts {
        let hits: Vec<RuleHit> = serde_json::from_str(text).map_err(Error::corrupt("hits"))?;
        for hit in hits {
            let is_equal = |other: &RuleHit| {
                (&other.rule, &other.version, other.at.day()) == (&hit.rule, &hit.version, hit.at.day())
            };
            if !distinct_hits.iter().any(is_equal) {
                distinct_hits.push(hit);
            }
        }
    }
    Ok(distinct_hits)
}

/// Adds a finding for each hit to the plan.
pub(super) fn add_findings(
    plan: &mut Plan,
    item: &ItemKey,
    hits: Vec<RuleHit>,
    finding: Finding,
    at: Millis,
) {
    let planned = |hit| PlannedFinding { hit, item: item.clone(), finding, at };
    plan.verdicts.extend(hits.into_iter().map(planned));
}
