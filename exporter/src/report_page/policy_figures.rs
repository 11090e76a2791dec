//! Decisions and appeals by policy, from the claims of a moderation bundle.

use std::collections::BTreeMap;

use super::bundle_content::{BundleContent, Item, Stance, StanceCounts};

const MODERATION_CLAIM: &str = "moderation-claim";
const POLICY: &str = "policy";

/// Figures of one policy, or of all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PolicyFigures {
    pub(super) id: String,
    /// Name of the policy; empty if the bundle has none.
    pub(super) name: String,
    pub(super) claims: u64,
    pub(super) reports: u64,
    /// Reviews that found a violation.
    pub(super) violations: u64,
    /// Reviews that found none.
    pub(super) dismissals: u64,
    /// Reviews that left the question open.
    pub(super) undecided: u64,
    /// Outcomes of the type `moderation-decision`.
    pub(super) decisions: u64,
    pub(super) appeals: u64,
    /// Appeals after which the decision stayed.
    pub(super) upheld: u64,
    /// Appeals after which the decision was reversed.
    pub(super) overturned: u64,
    /// Number of counts that are suppressed for privacy.
    pub(super) suppressed_counts: u64,
}

impl PolicyFigures {
    /// Share of the answered appeals that reversed the decision; `None` without answered appeals.
    pub(super) fn overturn_rate(&self) -> Option<f64> {
        let answered = self.upheld.saturating_add(self.overturned);
        (answered > 0).then(|| self.overturned as f64 / answered as f64)
    }

    fn add(&mut self, claim: &Item, counts: &ClaimCounts) {
        let sums = [
            (&mut self.claims, 1),
            (&mut self.reports, counts.report[Stance::Agree as usize]),
            (&mut self.violations, counts.review[Stance::Agree as usize]),
            (&mut self.dismissals, counts.review[Stance::Disagree as usize]),
            (&mut self.undecided, counts.review[Stance::Pass as usize]),
            (&mut self.decisions, claim.decisions),
            (&mut self.appeals, counts.appeal[Stance::Disagree as usize]),
            (&mut self.upheld, counts.appeal_review[Stance::Agree as usize]),
            (&mut self.overturned, counts.appeal_review[Stance::Disagree as usize]),
            (&mut self.suppressed_counts, claim.suppressed_counts),
        ];
        for (sum, count) in sums {
            *sum = sum.saturating_add(count);
        }
    }
}

/// Answers to a claim by phase.
struct ClaimCounts {
    report: StanceCounts,
    review: StanceCounts,
    appeal: StanceCounts,
    appeal_review: StanceCounts,
}

/// Returns the figures of each policy, those with the most claims first, and of all policies. `None` if the bundle has no claims.
pub(super) fn collect_policy_figures(content: &BundleContent) -> Option<(Vec<PolicyFigures>, PolicyFigures)> {
    let phases = ["phase-report", "phase-review", "phase-appeal", "phase-appeal-review"]
        .map(|id| content.phase_number(id));
    let mut names = BTreeMap::new();
    for item in content.listed_items().filter(|item| content.kind_of(item) == POLICY) {
        let id = item.id();
        names.insert(id.strip_prefix("policy:").unwrap_or(&id).to_owned(), item.text.clone());
    }
    let (mut by_policy, mut sums) = (BTreeMap::new(), PolicyFigures::default());
    for claim in content.listed_items().filter(|item| content.kind_of(item) == MODERATION_CLAIM) {
        let [report, review, appeal, appeal_review] =
            phases.map(|phase| phase.map(|phase| claim.counts_in(phase)).unwrap_or_default());
        let counts = ClaimCounts { report, review, appeal, appeal_review };
        let id = claim.id();
        let figures: &mut PolicyFigures = by_policy.entry(policy_of(&id).to_owned()).or_default();
        figures.add(claim, &counts);
        sums.add(claim, &counts);
    }
    if by_policy.is_empty() {
        return None;
    }
    let with_names = by_policy.into_iter().map(|(id, figures)| PolicyFigures {
        name: names.remove(&id).unwrap_or_default(),
        id,
        ..figures
    });
    let mut policies: Vec<_> = with_names.collect();
    // Stable, so policies with equal numbers stay in the order of their ids.
    policies.sort_by_key(|figures| std::cmp::Reverse(figures.claims));
    Some((policies, sums))
}

/// Policy in the id of a claim, `claim:<item type>:<pseudonym>:<policy>`. Types and policies may contain colons themselves.
fn policy_of(claim_id: &str) -> &str {
    let mut starts = claim_id.match_indices(':').map(|(at, _)| at + 1);
    let after_pseudonym = starts.find_map(|start| {
        let (pseudonym, policy) = claim_id[start..].split_once(':')?;
        let is_pseudonym = pseudonym.len() == 32 && pseudonym.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_pseudonym.then_some(policy)
    });
    after_pseudonym.or_else(|| claim_id.splitn(4, ':').nth(3)).unwrap_or(claim_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_is_the_part_after_the_pseudonym() {
        for (id, policy) in [
            ("claim:post:0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a:spam", "spam"),
            ("claim:org:post:0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a:hate:severe", "hate:severe"),
            ("claim:post:17:spam", "spam"),
            ("claim:post", "claim:post"),
            ("", ""),
        ] {
            assert_eq!(policy_of(id), policy);
        }
    }
}
