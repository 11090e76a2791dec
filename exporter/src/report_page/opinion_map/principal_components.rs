//! First two principal components of a sparse matrix of votes, by power iteration.
//!
//! A missing vote counts as the mean of its statement. After the means are subtracted it is 0, so only given votes are stored.

use super::{Point, clusters::Random};
use crate::report_page::vote_lists::PackedVote;

/// Squared change of a unit vector at which the iteration ends.
const TOLERANCE: f64 = 1e-24;
const MAX_ITERATIONS: usize = 1_000;
/// Maximum number of multiplications for one component, which bounds the time for millions of votes to some seconds.
const MAX_MULTIPLICATIONS: usize = 2_000_000_000;

/// Votes by participant (row) and statement (column), less the mean of the statement.
#[derive(Debug)]
pub(super) struct VoteMatrix {
    /// Start of each row in `cells`, and the end of the last one.
    row_starts: Vec<usize>,
    cells: Vec<Cell>,
    /// Mean vote of each column.
    means: Vec<f64>,
    /// Item of each column.
    items: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    pub(super) column: u32,
    /// Vote as a number, before the mean is subtracted: 1, 0 or -1.
    pub(super) vote: i8,
}

#[derive(Clone, Debug)]
pub(super) struct Components {
    axes: [Vec<f64>; 2],
    /// Shares of the variance on the two axes.
    pub(super) variance_shares: [f64; 2],
}

impl VoteMatrix {
    pub(super) fn new(votes: &[PackedVote], column_rank: impl Fn(u32) -> Option<u32>) -> Self {
        let mut items: Vec<_> = votes.iter().map(|vote| vote.item()).collect();
        items.sort_unstable();
        items.dedup();
        let mut ranks: Vec<_> =
            items.into_iter().filter_map(|item| Some((column_rank(item)?, item))).collect();
        ranks.sort_unstable();
        let mut sums = vec![(0.0, 0.0); ranks.len()];
        let (mut row_starts, mut cells) = (vec![0], Vec::with_capacity(votes.len()));
        for row in votes.chunk_by(|left, right| left.participant() == right.participant()) {
            for vote in row {
                let Some(rank) = column_rank(vote.item()) else { continue };
                let Ok(column) = ranks.binary_search(&(rank, vote.item())) else { continue };
                let (sum, count) = &mut sums[column];
                *sum += vote.vote().as_number();
                *count += 1.0;
                let vote = vote.vote() as i8 - 1;
                cells.push(Cell { column: u32::try_from(column).unwrap_or(u32::MAX), vote });
            }
            row_starts.push(cells.len());
        }
        let means = sums.into_iter().map(|(sum, count)| sum / f64::max(count, 1.0)).collect();
        let items = ranks.into_iter().map(|(_, item)| item).collect();
        Self { row_starts, cells, means, items }
    }

    pub(super) fn row_count(&self) -> usize {
        self.row_starts.len() - 1
    }

    pub(super) fn column_count(&self) -> usize {
        self.items.len()
    }

    pub(super) fn item_of(&self, column: u32) -> u32 {
        self.items[column as usize]
    }

    pub(super) fn vote_count(&self, row: usize) -> usize {
        self.row(row).len()
    }

    pub(super) fn row(&self, row: usize) -> &[Cell] {
        &self.cells[self.row_starts[row]..self.row_starts[row + 1]]
    }

    fn centered(&self, cell: Cell) -> f64 {
        f64::from(cell.vote) - self.means[cell.column as usize]
    }

    /// Product of a row, less the means, and a vector of the columns.
    fn multiply_row(&self, row: usize, vector: &[f64]) -> f64 {
        self.row(row).iter().map(|cell| self.centered(*cell) * vector[cell.column as usize]).sum()
    }

    /// Place of a participant. Scaled up for few votes, because missing votes draw a participant to the middle.
    pub(super) fn project(&self, row: usize, components: &Components) -> Point {
        let scale = (self.column_count() as f64 / self.vote_count(row).max(1) as f64).sqrt();
        [0, 1].map(|axis| scale * self.multiply_row(row, &components.axes[axis]))
    }

    pub(super) fn principal_components(&self) -> Components {
        let variance: f64 = self.cells.iter().map(|cell| self.centered(*cell).powi(2)).sum();
        let (first, first_value) = self.dominant_direction(None);
        let (second, second_value) = self.dominant_direction(Some(&first));
        let share = |value: f64| if variance > 0.0 { (value / variance).min(1.0) } else { 0.0 };
        Components { axes: [first, second], variance_shares: [share(first_value), share(second_value)] }
    }

    /// Unit vector of the largest variance perpendicular to `other`, with the variance along it; a zero vector if there is none.
    fn dominant_direction(&self, other: Option<&[f64]>) -> (Vec<f64>, f64) {
        let mut random = Random::default();
        let mut vector: Vec<f64> = (0..self.column_count()).map(|_| random.next_unit() - 0.5).collect();
        remove_component(&mut vector, other);
        let mut variance = normalize(&mut vector);
        let max_iterations = (MAX_MULTIPLICATIONS / self.cells.len().max(1)).clamp(20, MAX_ITERATIONS);
        for _ in 0..max_iterations {
            let mut next = vec![0.0; vector.len()];
            for row in 0..self.row_count() {
                let product = self.multiply_row(row, &vector);
                for cell in self.row(row) {
                    next[cell.column as usize] += self.centered(*cell) * product;
                }
            }
            // Rounding errors would otherwise grow along the first component.
            remove_component(&mut next, other);
            variance = normalize(&mut next);
            let change: f64 = next.iter().zip(&vector).map(|(new, old)| (new - old).powi(2)).sum();
            vector = next;
            if change < TOLERANCE {
                break;
            }
        }
        // The sign of a component has no meaning. It is fixed by the largest value, so that equal votes give equal maps.
        let largest = vector.iter().copied().fold(0.0, |largest: f64, value| {
            if value.abs() > largest.abs() + 1e-9 { value } else { largest }
        });
        if largest < 0.0 {
            vector.iter_mut().for_each(|value| *value = -*value);
        }
        (vector, variance)
    }
}

fn remove_component(vector: &mut [f64], unit: Option<&[f64]>) {
    let Some(unit) = unit else { return };
    let product: f64 = vector.iter().zip(unit).map(|(value, along)| value * along).sum();
    for (value, along) in vector.iter_mut().zip(unit) {
        *value -= product * along;
    }
}

/// Scales the vector to length 1 and returns its former length. A vector of rounding errors becomes 0.
fn normalize(vector: &mut [f64]) -> f64 {
    let length = vector.iter().map(|value| value * value).sum::<f64>().sqrt();
    if length < 1e-9 {
        vector.fill(0.0);
        return 0.0;
    }
    vector.iter_mut().for_each(|value| *value /= length);
    length
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::report_page::vote_lists::{Vote, VoteLists};

    /// Matrix of the votes, with `.` for a missing one.
    fn matrix(rows: &[&str]) -> VoteMatrix {
        let mut lists = VoteLists::new(usize::MAX);
        for (participant, row) in (0..).zip(rows) {
            for (item, vote) in (0..).zip(row.chars()) {
                let vote = match vote {
                    '+' => Vote::Agree,
                    '-' => Vote::Disagree,
                    '0' => Vote::Pass,
                    _ => continue,
                };
                lists.push(0, participant, item, vote);
            }
        }
        VoteMatrix::new(&lists.take_longest(|_| true).unwrap().1, Some)
    }

    #[test]
    fn components_of_a_small_matrix_are_exact() {
        // The means are 0 and the products of the columns add up to 0, so the components are the columns themselves.
        let matrix = matrix(&["++0", "+-0", "-+0", "--0", "+.0", "-.0"]);
        let components = matrix.principal_components();
        assert!((components.axes[0][0] - 1.0).abs() < 1e-9 && components.axes[0][1].abs() < 1e-9);
        assert!((components.axes[1][1] - 1.0).abs() < 1e-9 && components.axes[1][0].abs() < 1e-9);
        // 6 of 10 squares are in the first column, 4 in the second.
        assert!((components.variance_shares[0] - 0.6).abs() < 1e-9, "{:?}", components.variance_shares);
        assert!((components.variance_shares[1] - 0.4).abs() < 1e-9, "{:?}", components.variance_shares);
        // Two of three votes were given: scaled by the root of 3 / 2.
        let point = matrix.project(4, &components);
        assert!((point[0] - 1.5_f64.sqrt()).abs() < 1e-9 && point[1].abs() < 1e-9, "{point:?}");
        let point = matrix.project(1, &components);
        assert!((point[0] - 1.0).abs() < 1e-9 && (point[1] + 1.0).abs() < 1e-9, "{point:?}");
    }

    #[test]
    fn missing_votes_count_as_the_mean() {
        // The mean of the first statement is 1/3; a participant without a vote on it stands in the middle of its axis.
        let matrix = matrix(&["++", "+-", "-+", ".0"]);
        assert!((matrix.means[0] - 1.0 / 3.0).abs() < 1e-12);
        let components = Components { axes: [vec![1.0, 0.0], vec![0.0, 1.0]], variance_shares: [0.0; 2] };
        assert!(matrix.project(3, &components)[0].abs() < 1e-12);
        assert!((matrix.project(0, &components)[0] - 2.0 / 3.0).abs() < 1e-12);
    }
}
