//! Agreement with items: shares, and rankings that weigh the number of answers.

use super::bundle_content::{BundleContent, Item, Stance, StanceCounts};

/// Quantile of the normal distribution for an interval of 95 %.
const Z: f64 = 1.96;

/// Answers to an item in one phase.
#[derive(Clone, Debug)]
pub(super) struct ItemAnswers<'c> {
    pub(super) item: &'c Item,
    pub(super) phase: u32,
    pub(super) counts: StanceCounts,
}

impl<'c> ItemAnswers<'c> {
    /// Answers to all listed items by phase.
    pub(super) fn collect(content: &'c BundleContent) -> Vec<Self> {
        let answers_of = |item: &'c Item| {
            let phases = item.answered_phases().into_iter();
            phases.map(move |phase| Self { item, phase, counts: item.counts_in(phase) })
        };
        content.listed_items().flat_map(answers_of).collect()
    }

    pub(super) fn total(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }
}

fn sum_of(counts: &StanceCounts, stances: &[Stance]) -> u64 {
    stances.iter().fold(0, |sum, stance| sum.saturating_add(counts[*stance as usize]))
}

/// Sum of the answers to the item alone, without comparisons.
pub(super) fn direct_answers(counts: &StanceCounts) -> u64 {
    sum_of(counts, &[Stance::Agree, Stance::Disagree, Stance::Pass])
}

/// Sum of the comparisons with other items.
pub(super) fn comparisons(counts: &StanceCounts) -> u64 {
    sum_of(counts, &[Stance::Preferred, Stance::NotPreferred, Stance::Equal, Stance::PassedComparison])
}

/// Lower end of the 95 % interval of a share (Wilson). Small numbers of answers give a low value.
fn lower_bound(count: u64, total: u64) -> f64 {
    if total == 0 {
        return 0.0;
    }
    let (count, total) = (count as f64, total as f64);
    let share = count / total;
    let center = share + Z * Z / (2.0 * total);
    let margin = Z * (share * (1.0 - share) / total + Z * Z / (4.0 * total * total)).sqrt();
    ((center - margin) / (1.0 + Z * Z / total)).max(0.0)
}

/// Rank of an item among the most agreed ones: the lower bound of its share of agreement, or of preference in comparisons.
fn agreement_rank(counts: &StanceCounts) -> f64 {
    lower_bound(counts[Stance::Agree as usize], direct_answers(counts))
        .max(lower_bound(counts[Stance::Preferred as usize], comparisons(counts)))
}

/// Rank of an item among the most divisive ones: the smaller of the lower bounds of agreement and disagreement.
fn division_rank(counts: &StanceCounts) -> f64 {
    let total = direct_answers(counts);
    lower_bound(counts[Stance::Agree as usize], total)
        .min(lower_bound(counts[Stance::Disagree as usize], total))
}

pub(super) fn most_agreed<'a, 'c>(answers: &'a [ItemAnswers<'c>], max: usize) -> Vec<&'a ItemAnswers<'c>> {
    top(answers, max, agreement_rank)
}

pub(super) fn most_divisive<'a, 'c>(answers: &'a [ItemAnswers<'c>], max: usize) -> Vec<&'a ItemAnswers<'c>> {
    top(answers, max, division_rank)
}

/// Returns the answers with the highest ranks above 0; of equal ranks, the first in the bundle.
fn top<'a, 'c>(
    answers: &'a [ItemAnswers<'c>],
    max: usize,
    rank: impl Fn(&StanceCounts) -> f64,
) -> Vec<&'a ItemAnswers<'c>> {
    let mut ranked: Vec<_> = answers.iter().map(|answers| (rank(&answers.counts), answers)).collect();
    ranked.retain(|(rank, _)| *rank > 0.0);
    ranked.sort_by(|left, right| right.0.total_cmp(&left.0));
    ranked.into_iter().take(max).map(|(_, answers)| answers).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bound_of_a_share_is_that_of_wilson() {
        // 8 of 10: the interval of 95 % is from 0.4901 to 0.9433.
        assert!((lower_bound(8, 10) - 0.4901).abs() < 5e-4, "{}", lower_bound(8, 10));
        assert!(lower_bound(0, 10).abs() < 1e-12 && lower_bound(0, 0).abs() < 1e-12);
    }

    #[test]
    fn more_answers_rank_higher_at_equal_shares() {
        let counts = |agree, disagree, pass| [agree, disagree, pass, 0, 0, 0, 0];
        assert!(agreement_rank(&counts(90, 10, 0)) > agreement_rank(&counts(9, 1, 0)));
        assert!(agreement_rank(&counts(1, 0, 0)) < agreement_rank(&counts(70, 30, 0)));
        assert!(division_rank(&counts(50, 50, 0)) > division_rank(&counts(5, 5, 0)));
        assert!(division_rank(&counts(50, 50, 100)) < division_rank(&counts(50, 50, 0)));
        assert!(agreement_rank(&[0, 0, 0, 8, 2, 0, 0]) > 0.4);
    }
}
