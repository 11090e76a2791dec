//! Opinion map of a conversation, in the manner of Polis: participants placed by the first two principal components of their votes,
//! grouped by k-means. Deterministic: equal votes give equal bytes.

mod clusters;
mod principal_components;
mod typical_statements;

use std::cmp::Reverse;

pub(super) use self::typical_statements::TypicalStatement;
use self::{
    clusters::{WeightedPoint, find_groups, nearest_center, summarize},
    principal_components::VoteMatrix,
};
use super::vote_lists::PackedVote;

/// Votes that a participant needs to be placed; fewer if the conversation has fewer statements. Polis uses the same number.
const MIN_VOTES: usize = 7;
/// Number of participants that are placed in any case, those with the most votes first.
const MIN_PARTICIPANTS: usize = 15;
/// Number of participants up to which groups are sought among the participants themselves. More of them are first reduced to as many
/// clusters, which bounds the time of the comparison of all pairs. Polis does so above 100.
const BASE_CLUSTERS: usize = 500;
/// Maximum number of points in the page.
const MAX_POINTS: usize = 4_000;

/// Place of a participant.
pub(super) type Point = [f64; 2];

/// Participants of one group.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) size: usize,
    pub(super) center: Point,
    pub(super) typical_statements: Vec<TypicalStatement>,
}

#[derive(Clone, Debug)]
pub(super) struct OpinionMap {
    pub(super) phase: u32,
    /// Number of statements in the vote matrix.
    pub(super) statements: usize,
    /// Number of participants on the map.
    pub(super) placed: usize,
    /// Number of participants with too few votes.
    pub(super) unplaced: usize,
    /// Shares of the variance of the votes on the two axes.
    pub(super) variance_shares: [f64; 2],
    /// Groups in descending order of size.
    pub(super) groups: Vec<Group>,
    /// Points with the index of their group. A sample if there are more participants than [`MAX_POINTS`].
    pub(super) points: Vec<(Point, usize)>,
}

/// Computes the map of a phase. `votes` are sorted by participant, with one vote for each pair. `column_rank` orders the
/// items; it is `None` for items that the moderators of the conversation rejected. Returns `None` if too few people voted, or all voted alike.
pub(super) fn compute_map(
    phase: u32,
    votes: &[PackedVote],
    column_rank: impl Fn(u32) -> Option<u32>,
) -> Option<OpinionMap> {
    let matrix = VoteMatrix::new(votes, column_rank);
    let placed_rows = choose_rows(&matrix);
    if placed_rows.len() < 3 || matrix.column_count() < 2 {
        return None;
    }
    let components = matrix.principal_components();
    let points: Vec<_> = placed_rows.iter().map(|row| matrix.project(*row, &components)).collect();
    let weighted: Vec<_> = points.iter().map(|point| WeightedPoint { point: *point, weight: 1.0 }).collect();
    let base_clusters = summarize(&weighted, BASE_CLUSTERS);
    let centers = find_groups(&base_clusters)?;
    let assigned_centers: Vec<_> = points.iter().map(|point| nearest_center(point, &centers)).collect();
    // Groups are named A, B, C by size; of equal sizes, the one further to the left is first.
    let mut sizes = vec![0_usize; centers.len()];
    for center in &assigned_centers {
        sizes[*center] += 1;
    }
    let mut order: Vec<_> = (0..centers.len()).collect();
    order.sort_by(|left, right| {
        let by_size = Reverse(sizes[*left]).cmp(&Reverse(sizes[*right]));
        by_size.then(centers[*left][0].total_cmp(&centers[*right][0]))
    });
    let group_of_center = |center: usize| order.iter().position(|other| *other == center).unwrap_or_default();
    let assigned_groups: Vec<_> = assigned_centers.iter().map(|center| group_of_center(*center)).collect();
    let typical = typical_statements::find(&matrix, &placed_rows, &assigned_groups, centers.len());
    let groups = order.iter().zip(typical).map(|(center, typical_statements)| Group {
        size: sizes[*center],
        center: centers[*center],
        typical_statements,
    });
    let groups = groups.collect();
    let step = points.len().div_ceil(MAX_POINTS).max(1);
    Some(OpinionMap {
        phase,
        statements: matrix.column_count(),
        placed: points.len(),
        unplaced: matrix.row_count() - points.len(),
        variance_shares: components.variance_shares,
        groups,
        points: points.into_iter().zip(assigned_groups).step_by(step).collect(),
    })
}

/// Returns the rows of participants with enough votes.
fn choose_rows(matrix: &VoteMatrix) -> Vec<usize> {
    let min_votes = MIN_VOTES.min(matrix.column_count());
    let mut rows: Vec<_> = (0..matrix.row_count()).collect();
    rows.sort_by_key(|row| Reverse(matrix.vote_count(*row)));
    let with_enough_votes = rows.partition_point(|row| matrix.vote_count(*row) >= min_votes);
    rows.truncate(with_enough_votes.max(MIN_PARTICIPANTS));
    rows.retain(|row| matrix.vote_count(*row) > 0);
    rows.sort_unstable();
    rows
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{
        form::Answer,
        report_page::vote_lists::{Vote, VoteLists},
    };

    /// Votes of two camps that disagree on every statement; each participant skips one statement.
    fn two_camps() -> Vec<PackedVote> {
        let mut lists = VoteLists::new(usize::MAX);
        for participant in 0..30_u32 {
            for item in (0..12_u32).filter(|item| *item != participant % 12) {
                let agrees = (participant < 20) == (item % 2 == 0);
                let answer = if agrees { Answer::Agree } else { Answer::Disagree };
                lists.push(0, participant, item, Vote::from_answer(answer).unwrap());
            }
        }
        lists.take_longest(|_| true).unwrap().1
    }

    #[test]
    fn two_clear_clusters_are_two_groups() {
        let map = compute_map(0, &two_camps(), Some).unwrap();
        let sizes: Vec<_> = map.groups.iter().map(|group| group.size).collect();
        assert_eq!((sizes.as_slice(), map.statements, map.placed, map.unplaced), (&[20, 10][..], 12, 30, 0));
        assert!(map.variance_shares[0] > 0.8, "{:?}", map.variance_shares);
        let sides: Vec<_> = map.points.iter().map(|(point, group)| (point[0] > 0.0, *group)).collect();
        assert!(sides[..20].iter().all(|side| *side == sides[0]), "{sides:?}");
        assert!(sides[20..].iter().all(|side| side.0 != sides[0].0 && side.1 == 1), "{sides:?}");
        for (group, first_is_agreed) in [(0, true), (1, false)] {
            let statements = &map.groups[group].typical_statements;
            assert_eq!(statements.len(), 5);
            assert!(
                statements
                    .iter()
                    .all(|typical| typical.agrees == ((typical.item % 2 == 0) == first_is_agreed))
            );
        }
    }

    #[test]
    fn rejected_statements_are_not_in_the_matrix() {
        let map = compute_map(0, &two_camps(), |item| (item > 1).then_some(item)).unwrap();
        assert_eq!(map.statements, 10);
    }

    #[test]
    fn equal_votes_give_no_groups() {
        let mut lists = VoteLists::new(usize::MAX);
        for participant in 0..20 {
            for item in 0..9 {
                lists.push(0, participant, item, Vote::Agree);
            }
        }
        assert!(compute_map(0, &lists.take_longest(|_| true).unwrap().1, Some).is_none());
    }

    #[test]
    fn few_votes_leave_a_participant_off_the_map() {
        let mut lists = VoteLists::new(usize::MAX);
        for vote in two_camps().iter().filter(|vote| vote.participant() > 3 || vote.item() < 4) {
            lists.push(0, vote.participant(), vote.item(), vote.vote());
        }
        let map = compute_map(0, &lists.take_longest(|_| true).unwrap().1, Some).unwrap();
        assert_eq!((map.placed, map.unplaced), (26, 4));
    }
}
