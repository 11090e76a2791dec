//! Weights of a line's pixels for each of its 64 sampled points.
//!
//! A point is a mean of means: two passes of a box filter. At a border, a window is cut off, and its mean covers only the
//! pixels inside. All weights are integers over a common divisor.

use std::ops::RangeInclusive;

pub(super) const POINTS: usize = 64;

/// Weighted pixels of one point of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Taps {
    /// Index of the first pixel.
    pub(super) first: usize,
    pub(super) weights: Vec<u32>,
    /// Sum of the weights.
    pub(super) divisor: u32,
}

/// The windows of the box filter for lines of one length.
struct Windows {
    length: usize,
    pixels_before: usize,
    pixels_after: usize,
}

impl Windows {
    fn for_length(length: usize) -> Self {
        let size = length.div_ceil(2 * POINTS);
        // Like the reference: a window of even size has one pixel more after its centre than before it.
        Self { length, pixels_before: (size - 1) / 2, pixels_after: size / 2 }
    }

    fn window_at(&self, place: usize) -> RangeInclusive<usize> {
        place.saturating_sub(self.pixels_before)..=(place + self.pixels_after).min(self.length - 1)
    }
}

fn window_length(window: &RangeInclusive<usize>) -> u32 {
    u32::try_from(window.end() - window.start() + 1).expect("a window is shorter than a side")
}

/// Returns the taps of every point of a line of `length` pixels.
pub(super) fn compute_taps(length: usize) -> Vec<Taps> {
    let windows = Windows::for_length(length);
    (0..POINTS).map(|point| taps_at(&windows, (2 * point + 1) * length / (2 * POINTS))).collect()
}

/// Returns the taps of the reversed line.
pub(super) fn reverse_taps(taps: &[Taps], length: usize) -> Vec<Taps> {
    let reverse = |taps: &Taps| Taps {
        first: length - taps.first - taps.weights.len(),
        weights: taps.weights.iter().rev().copied().collect(),
        divisor: taps.divisor,
    };
    taps.iter().map(reverse).collect()
}

fn taps_at(windows: &Windows, place: usize) -> Taps {
    let outer_window = windows.window_at(place);
    // Windows at a border are shorter. A common multiple of all lengths makes every weight an integer.
    let common_multiple =
        outer_window.clone().map(|inner| window_length(&windows.window_at(inner))).fold(1, lcm);
    let first = *windows.window_at(*outer_window.start()).start();
    let last = *windows.window_at(*outer_window.end()).end();
    let mut weights = vec![0; last - first + 1];
    for inner in outer_window.clone() {
        let window = windows.window_at(inner);
        let weight = common_multiple / window_length(&window);
        for place in window {
            weights[place - first] += weight;
        }
    }
    Taps { first, weights, divisor: common_multiple * window_length(&outer_window) }
}

fn lcm(a: u32, b: u32) -> u32 {
    a / gcd(a, b) * b
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_every_length_fit_32_bits() {
        for length in (1..=2_000).chain((2_001..32_768).step_by(61)).chain([32_640, 32_641, 32_767, 32_768]) {
            let all_taps = compute_taps(length);
            assert_eq!(all_taps.len(), POINTS);
            for taps in all_taps {
                assert!(taps.first + taps.weights.len() <= length, "{length}");
                assert_eq!(taps.weights.iter().map(|w| u64::from(*w)).sum::<u64>(), u64::from(taps.divisor));
                assert!(taps.divisor.checked_mul(255).is_some(), "{length}: {}", taps.divisor);
            }
        }
    }

    #[test]
    fn short_lines_are_not_filtered() {
        for taps in compute_taps(64).into_iter().chain(compute_taps(128)) {
            assert_eq!((taps.weights, taps.divisor), (vec![1], 1));
        }
    }

    #[test]
    fn weights_inside_a_line_form_a_tent() {
        let taps = &compute_taps(640)[30];
        assert_eq!(taps.weights, [1, 2, 3, 4, 5, 4, 3, 2, 1]);
        assert_eq!((taps.first + 4, taps.divisor), (305, 25));
    }
}
