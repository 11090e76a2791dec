//! Weights of a line's pixels for each of the 64 points that are kept of it.
//!
//! A point is the mean over a window of means over windows, as two passes of a box filter give it. At a border, windows are
//! cut off and their means are over the rest. All weights are integers over a common divisor.

use std::ops::RangeInclusive;

pub(super) const POINTS: usize = 64;

/// The weighted pixels of a line that make one point.
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
    back: usize,
    ahead: usize,
}

impl Windows {
    fn for_length(length: usize) -> Self {
        let size = length.div_ceil(2 * POINTS);
        // The reference leads by the larger half of an even size.
        Self { length, back: (size - 1) / 2, ahead: size / 2 }
    }

    fn at(&self, place: usize) -> RangeInclusive<usize> {
        place.saturating_sub(self.back)..=(place + self.ahead).min(self.length - 1)
    }
}

fn count(window: &RangeInclusive<usize>) -> u32 {
    u32::try_from(window.end() - window.start() + 1).expect("a window is shorter than a side")
}

/// Returns the taps of every point of a line of `length` pixels.
pub(super) fn taps(length: usize) -> Vec<Taps> {
    let windows = Windows::for_length(length);
    (0..POINTS).map(|point| at(&windows, (2 * point + 1) * length / (2 * POINTS))).collect()
}

/// Returns the taps of the reversed line.
pub(super) fn reversed(taps: &[Taps], length: usize) -> Vec<Taps> {
    let reversed = |taps: &Taps| Taps {
        first: length - taps.first - taps.weights.len(),
        weights: taps.weights.iter().rev().copied().collect(),
        divisor: taps.divisor,
    };
    taps.iter().map(reversed).collect()
}

fn at(windows: &Windows, place: usize) -> Taps {
    let outer = windows.at(place);
    let common = outer.clone().map(|inner| count(&windows.at(inner))).fold(1, lcm);
    let first = *windows.at(*outer.start()).start();
    let last = *windows.at(*outer.end()).end();
    let mut weights = vec![0; last - first + 1];
    for inner in outer.clone() {
        let window = windows.at(inner);
        let weight = common / count(&window);
        for place in window {
            weights[place - first] += weight;
        }
    }
    Taps { first, weights, divisor: common * count(&outer) }
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
            let all = taps(length);
            assert_eq!(all.len(), POINTS);
            for taps in all {
                assert!(taps.first + taps.weights.len() <= length, "{length}");
                assert_eq!(taps.weights.iter().map(|w| u64::from(*w)).sum::<u64>(), u64::from(taps.divisor));
                assert!(taps.divisor.checked_mul(255).is_some(), "{length}: {}", taps.divisor);
            }
        }
    }

    #[test]
    fn short_lines_are_not_filtered() {
        for taps in taps(64).into_iter().chain(taps(128)) {
            assert_eq!((taps.weights, taps.divisor), (vec![1], 1));
        }
    }

    #[test]
    fn weights_inside_a_line_form_a_tent() {
        let taps = &taps(640)[30];
        assert_eq!(taps.weights, [1, 2, 3, 4, 5, 4, 3, 2, 1]);
        assert_eq!((taps.first + 4, taps.divisor), (305, 25));
    }
}
