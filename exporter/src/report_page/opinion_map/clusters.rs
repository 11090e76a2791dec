//! Groups points by k-means, with the number of groups chosen by their silhouette.

use super::Point;

/// Largest number of groups, as in Polis.
const MAX_GROUPS: usize = 5;
/// Number of points for each group above two, as in Polis.
const POINTS_PER_FURTHER_GROUP: usize = 12;
/// Number of starts of k-means; the best result is kept.
const STARTS: usize = 16;
const MAX_ITERATIONS: usize = 100;
/// Maximum number of distances in one run, which bounds the time for a million of points to some seconds.
const MAX_DISTANCES: usize = 2_000_000_000;

/// Point that stands for one or more participants.
#[derive(Clone, Copy, Debug)]
pub(super) struct WeightedPoint {
    pub(super) point: Point,
    /// Number of participants.
    pub(super) weight: f64,
}

/// Generator of the same numbers in each run (splitmix64).
#[derive(Debug, Default)]
pub(super) struct Random(u64);

impl Random {
    /// Number from 0 to 1, without 1.
    pub(super) fn next_unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        // 53 bits fit a double exactly.
        ((bits ^ bits >> 31) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

fn squared_distance(left: &Point, right: &Point) -> f64 {
    (left[0] - right[0]).powi(2) + (left[1] - right[1]).powi(2)
}

/// Index of the nearest center; of equally near ones the first.
pub(super) fn nearest_center(point: &Point, centers: &[Point]) -> usize {
    let mut nearest = (0, f64::INFINITY);
    for (index, center) in centers.iter().enumerate() {
        let distance = squared_distance(point, center);
        if distance < nearest.1 {
            nearest = (index, distance);
        }
    }
    nearest.0
}

/// Reduces the points to at most `max_points` clusters.
pub(super) fn summarize(points: &[WeightedPoint], max_points: usize) -> Vec<WeightedPoint> {
    if points.len() <= max_points {
        return points.to_vec();
    }
    let (centers, _) = run_k_means(points, max_points, &mut Random::default());
    let mut clusters: Vec<_> =
        centers.iter().map(|center| WeightedPoint { point: *center, weight: 0.0 }).collect();
    for point in points {
        clusters[nearest_center(&point.point, &centers)].weight += point.weight;
    }
    clusters.retain(|cluster| cluster.weight > 0.0);
    clusters
}

/// Returns the centers of the groups: two to five, whichever number has the best silhouette. `None` if all points are equal.
pub(super) fn find_groups(points: &[WeightedPoint]) -> Option<Vec<Point>> {
    let max_groups = MAX_GROUPS.min(2 + points.len() / POINTS_PER_FURTHER_GROUP).min(points.len() - 1);
    let mut best: Option<(f64, Vec<Point>)> = None;
    for group_count in 2..=max_groups {
        let mut random = Random::default();
        let mut centers_of_count: Option<(Vec<Point>, f64)> = None;
        for _ in 0..STARTS {
            let (centers, spread) = run_k_means(points, group_count, &mut random);
            if centers_of_count.as_ref().is_none_or(|(_, least)| spread < least - 1e-9) {
                centers_of_count = Some((centers, spread));
            }
        }
        let (centers, _) = centers_of_count?;
        // Fewer distinct points than groups.
        if centers.len() < group_count {
            break;
        }
        let silhouette = mean_silhouette(points, &centers);
        // A larger number of groups must be better, not equal.
        if best.as_ref().is_none_or(|(highest, _)| silhouette > highest + 1e-9) {
            best = Some((silhouette, centers));
        }
    }
    best.map(|(_, centers)| centers)
}

/// Runs k-means once from random centers far from each other (k-means++). Returns the centers, fewer if fewer points are distinct,
/// and the weighted sum of squared distances.
fn run_k_means(points: &[WeightedPoint], count: usize, random: &mut Random) -> (Vec<Point>, f64) {
    let mut centers = choose_first_centers(points, count, random);
    let mut spread = f64::INFINITY;
    let max_iterations = (MAX_DISTANCES / (points.len() * count).max(1)).clamp(5, MAX_ITERATIONS);
    for _ in 0..max_iterations {
        let mut sums = vec![([0.0, 0.0], 0.0); centers.len()];
        let mut next_spread = 0.0;
        for WeightedPoint { point, weight } in points {
            let nearest = nearest_center(point, &centers);
            next_spread += weight * squared_distance(point, &centers[nearest]);
            let (sum, total) = &mut sums[nearest];
            sum[0] += weight * point[0];
            sum[1] += weight * point[1];
            *total += weight;
        }
        for (center, (sum, total)) in centers.iter_mut().zip(sums) {
            // A center without points stays where it is.
            if total > 0.0 {
                *center = [sum[0] / total, sum[1] / total];
            }
        }
        if next_spread >= spread - 1e-12 {
            break;
        }
        spread = next_spread;
    }
    (centers, spread)
}

fn choose_first_centers(points: &[WeightedPoint], count: usize, random: &mut Random) -> Vec<Point> {
    let mut centers: Vec<Point> = Vec::new();
    // Squared distance of each point to its nearest center, times its weight; at first the weight alone.
    let mut chances: Vec<f64> = points.iter().map(|point| point.weight).collect();
    while centers.len() < count {
        let total: f64 = chances.iter().sum();
        if total <= 1e-12 {
            break;
        }
        let mut threshold = random.next_unit() * total;
        // Rounding can leave a remainder at the end; the last possible point is then chosen.
        let mut chosen_index = None;
        for (index, chance) in chances.iter().enumerate().filter(|(_, chance)| **chance > 0.0) {
            chosen_index = Some(index);
            threshold -= chance;
            if threshold < 0.0 {
                break;
            }
        }
        let Some(center_index) = chosen_index else { break };
        let center = points[center_index].point;
        for (chance, WeightedPoint { point, weight }) in chances.iter_mut().zip(points) {
            let distance = weight * squared_distance(point, &center);
            *chance = if centers.is_empty() { distance } else { chance.min(distance) };
        }
        centers.push(center);
    }
    centers
}

/// Mean silhouette of the participants: near 1 if groups are compact and far apart, below 0 if they overlap.
fn mean_silhouette(points: &[WeightedPoint], centers: &[Point]) -> f64 {
    let groups: Vec<_> = points.iter().map(|point| nearest_center(&point.point, centers)).collect();
    let mut group_weights = vec![0.0; centers.len()];
    for (point, group) in points.iter().zip(&groups) {
        group_weights[*group] += point.weight;
    }
    let (mut sum, mut total_weight) = (0.0, 0.0);
    for (point, own_group) in points.iter().zip(&groups) {
        let mut distances = vec![0.0; centers.len()];
        for (other, group) in points.iter().zip(&groups) {
            distances[*group] += other.weight * squared_distance(&point.point, &other.point).sqrt();
        }
        total_weight += point.weight;
        // The silhouette of a participant alone in a group is 0.
        if group_weights[*own_group] <= 1.0 {
            continue;
        }
        let to_own_group = distances[*own_group] / (group_weights[*own_group] - 1.0);
        let to_others = (0..centers.len())
            .filter(|group| group != own_group && group_weights[*group] > 0.0)
            .map(|group| distances[group] / group_weights[group]);
        let to_nearest = to_others.fold(f64::INFINITY, f64::min);
        let larger = to_own_group.max(to_nearest);
        if larger > 0.0 && to_nearest.is_finite() {
            sum += point.weight * (to_nearest - to_own_group) / larger;
        }
    }
    if total_weight > 0.0 { sum / total_weight } else { 0.0 }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Points around the given centers.
    fn scatter(centers: &[Point], count: usize, radius: f64) -> Vec<WeightedPoint> {
        let mut random = Random(7);
        let points = centers.iter().flat_map(|center| std::iter::repeat_n(center, count));
        let mut offset = || radius * (random.next_unit() - 0.5);
        points
            .map(|center| WeightedPoint { point: [center[0] + offset(), center[1] + offset()], weight: 1.0 })
            .collect()
    }

    #[test]
    fn silhouette_chooses_the_number_of_groups() {
        let corners = [[0.0, 0.0], [10.0, 0.0], [0.0, 10.0], [10.0, 10.0], [5.0, 25.0]];
        for count in 2..=5 {
            let groups = find_groups(&scatter(&corners[..count], 20, 2.0)).unwrap();
            assert_eq!(groups.len(), count);
            for corner in &corners[..count] {
                let nearest = &groups[nearest_center(corner, &groups)];
                assert!(squared_distance(corner, nearest) < 1.0, "{corner:?} {groups:?}");
            }
        }
    }

    #[test]
    fn summary_keeps_weights_and_groups() {
        let points = scatter(&[[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]], 500, 3.0);
        let summary = summarize(&points, 100);
        assert!(summary.len() <= 100);
        assert!((summary.iter().map(|point| point.weight).sum::<f64>() - 1_500.0).abs() < 1e-9);
        assert_eq!(find_groups(&summary).unwrap().len(), 3);
    }

    #[test]
    fn equal_points_have_no_groups() {
        assert!(find_groups(&scatter(&[[1.0, 1.0]], 30, 0.0)).is_none());
    }

    #[test]
    fn silhouette_of_four_points_is_exact() {
        let points = [0.0, 1.0, 10.0, 11.0].map(|x| WeightedPoint { point: [x, 0.0], weight: 1.0 });
        // By hand: (10.5 - 1) / 10.5 for the outer points, (9.5 - 1) / 9.5 for the inner ones.
        let expected = (9.5 / 10.5 + 8.5 / 9.5) / 2.0;
        assert!((mean_silhouette(&points, &[[0.5, 0.0], [10.5, 0.0]]) - expected).abs() < 1e-12);
    }
}
