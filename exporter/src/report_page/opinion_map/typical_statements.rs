//! Statements that set a group apart, by the tests that Polis uses: the share in the group differs from one half, and from the share
//! among the other participants.

use super::principal_components::VoteMatrix;

/// Number of statements for each group.
const MAX_STATEMENTS: usize = 5;
/// Threshold of both tests: significance of 90 %, one-sided.
const MIN_Z: f64 = 1.2816;

#[derive(Clone, Debug)]
pub(in crate::report_page) struct TypicalStatement {
    pub(in crate::report_page) item: u32,
    /// True if the group agrees, false if it disagrees.
    pub(in crate::report_page) agrees: bool,
    /// Votes of the group: agree, disagree, pass.
    pub(in crate::report_page) votes: [u64; 3],
    /// Votes of the other participants on the map.
    pub(in crate::report_page) other_votes: [u64; 3],
}

/// Returns the typical statements of each group. `groups` has the group of each row of `rows`.
pub(super) fn find(
    matrix: &VoteMatrix,
    rows: &[usize],
    groups: &[usize],
    group_count: usize,
) -> Vec<Vec<TypicalStatement>> {
    let mut totals = vec![[0_u64; 3]; matrix.column_count()];
    let mut by_group = vec![totals.clone(); group_count];
    for (row, group) in rows.iter().zip(groups) {
        for cell in matrix.row(*row) {
            let kind = match cell.vote {
                1 => 0,
                -1 => 1,
                _ => 2,
            };
            totals[cell.column as usize][kind] += 1;
            by_group[*group][cell.column as usize][kind] += 1;
        }
    }
    let statements_of = |group_votes: &Vec<[u64; 3]>| {
        let mut scored: Vec<(f64, TypicalStatement)> = Vec::new();
        for ((column, votes), total) in (0..).zip(group_votes).zip(&totals) {
            let other_votes = [0, 1, 2].map(|kind| total[kind] - votes[kind]);
            let stronger = [0, 1].map(|kind| score(kind, votes, &other_votes));
            let (score, agrees) =
                if stronger[0] >= stronger[1] { (stronger[0], true) } else { (stronger[1], false) };
            if score > 0.0 {
                let item = matrix.item_of(column);
                scored.push((score, TypicalStatement { item, agrees, votes: *votes, other_votes }));
            }
        }
        scored.sort_by(|left, right| right.0.total_cmp(&left.0));
        scored.truncate(MAX_STATEMENTS);
        scored.into_iter().map(|(_, statement)| statement).collect()
    };
    by_group.iter().map(statements_of).collect()
}

/// Strength of one answer of a group: 0 unless both tests are passed.
fn score(kind: usize, votes: &[u64; 3], other_votes: &[u64; 3]) -> f64 {
    // One vote is added to each number, which keeps small groups from extreme shares.
    let [answers, others] = [votes[kind], other_votes[kind]].map(|count| count as f64 + 1.0);
    let [total, other_total] = [votes, other_votes].map(|votes| votes.iter().sum::<u64>() as f64 + 1.0);
    let (share, other_share) = (answers / total, others / other_total);
    let share_z = 2.0 * total.sqrt() * (share - 0.5);
    let pooled = (answers + others) / (total + other_total);
    let difference_z = if pooled < 1.0 {
        (share - other_share) / (pooled * (1.0 - pooled) * (1.0 / total + 1.0 / other_total)).sqrt()
    } else {
        0.0
    };
    if share_z > MIN_Z && difference_z > MIN_Z {
        share_z * difference_z * share * share / other_share
    } else {
        0.0
    }
}
