//! Transforms 64 x 64 points to their lowest frequencies (DCT), and the frequencies to the bits of a hash.
//!
//! Rotating or mirroring a picture only swaps and negates its frequencies.

use std::{borrow::Cow, f64::consts::PI, sync::LazyLock};

use super::{PdqHash, reduce::Points, taps::POINTS};

/// Number of frequencies kept in each direction. Frequency 0, the mean brightness, is not among them.
const FREQUENCIES: usize = 16;

static WAVES: LazyLock<[[f64; POINTS]; FREQUENCIES]> = LazyLock::new(|| {
    let mut waves = [[0.0; POINTS]; FREQUENCIES];
    for (frequency, wave) in (1u32..).zip(&mut waves) {
        for (place, value) in (0u32..).zip(wave) {
            let steps = f64::from(frequency * (2 * place + 1));
            *value = (2.0 / 64.0f64).sqrt() * (PI / 128.0 * steps).cos();
        }
    }
    waves
});

/// A way to rotate or mirror a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Orientation {
    /// Rotated by 90 degrees counter-clockwise.
    Left,
    /// Rotated by 180 degrees.
    Around,
    /// Rotated by 90 degrees clockwise.
    Right,
    /// Left and right are swapped.
    MirrorLeftRight,
    /// Top and bottom are swapped.
    MirrorTopBottom,
    /// Mirrored along the diagonal that begins at the top left: rows become columns.
    MirrorDiagonal,
    /// Mirrored along the other diagonal.
    MirrorAntiDiagonal,
}

impl Orientation {
    pub const ALL: [Self; 7] = [
        Self::Left,
        Self::Around,
        Self::Right,
        Self::MirrorLeftRight,
        Self::MirrorTopBottom,
        Self::MirrorDiagonal,
        Self::MirrorAntiDiagonal,
    ];

    pub fn tag(self) -> &'static str {
        match self {
            Self::Left => "left",
            Self::Around => "around",
            Self::Right => "right",
            Self::MirrorLeftRight => "mirror_left_right",
            Self::MirrorTopBottom => "mirror_top_bottom",
            Self::MirrorDiagonal => "mirror_diagonal",
            Self::MirrorAntiDiagonal => "mirror_anti_diagonal",
        }
    }

    /// Returns three flags, applied in this order: transpose, reverse vertically, reverse horizontally.
    const fn axis_flags(self) -> (bool, bool, bool) {
        match self {
            Self::Left => (true, true, false),
            Self::Around => (false, true, true),
            Self::Right => (true, false, true),
            Self::MirrorLeftRight => (false, false, true),
            Self::MirrorTopBottom => (false, true, false),
            Self::MirrorDiagonal => (true, false, false),
            Self::MirrorAntiDiagonal => (true, true, true),
        }
    }
}

impl Orientation {
    /// Returns the transform in this orientation. `mirrored` is indexed by reversed rows, then by reversed columns.
    pub(super) fn transform_from(self, mirrored: [&[Coefficients; 2]; 2]) -> Cow<'_, Coefficients> {
        let (is_transposed, is_reversed_down, is_reversed_across) = self.axis_flags();
        let transform = |rows: bool, columns: bool| &mirrored[usize::from(rows)][usize::from(columns)];
        if is_transposed {
            Cow::Owned(transform(is_reversed_across, is_reversed_down).reoriented(Self::MirrorDiagonal))
        } else {
            Cow::Borrowed(transform(is_reversed_down, is_reversed_across))
        }
    }
}

/// Amplitude of each frequency, indexed by vertical, then by horizontal frequency.
#[derive(Clone, Debug, PartialEq)]
pub struct Coefficients(Box<[[f64; FREQUENCIES]; FREQUENCIES]>);

impl Coefficients {
    pub(super) fn of(points: &Points) -> Self {
        let mut coefficients = Box::new([[0.0; FREQUENCIES]; FREQUENCIES]);
        for (vertical_wave, coefficient_row) in WAVES.iter().zip(coefficients.iter_mut()) {
            let mut row = [0.0; POINTS];
            for (weight, points) in vertical_wave.iter().zip(points) {
                for (sum, point) in row.iter_mut().zip(points) {
                    *sum += weight * point;
                }
            }
            for (horizontal_wave, coefficient) in WAVES.iter().zip(coefficient_row) {
                *coefficient = horizontal_wave.iter().zip(&row).map(|(weight, value)| weight * value).sum();
            }
        }
        Self(coefficients)
    }

    pub fn hash(&self) -> PdqHash {
        let mut sorted = [0.0; FREQUENCIES * FREQUENCIES];
        sorted.copy_from_slice(self.0.as_flattened());
        // Like the reference: the lower of the two middle values is the median.
        let (_, median, _) = sorted.select_nth_unstable_by(FREQUENCIES * FREQUENCIES / 2 - 1, f64::total_cmp);
        let mut hash = [0; 32];
        for (bit, value) in self.0.as_flattened().iter().enumerate() {
            hash[31 - bit / 8] |= u8::from(value > median) << (bit % 8);
        }
        PdqHash(hash)
    }

    /// Returns the coefficients of the picture in another orientation.
    #[must_use]
    pub fn reoriented(&self, orientation: Orientation) -> Self {
        let (is_transposed, is_reversed_down, is_reversed_across) = orientation.axis_flags();
        let mut reoriented = Box::new([[0.0; FREQUENCIES]; FREQUENCIES]);
        for (vertical, row) in reoriented.iter_mut().enumerate() {
            for (horizontal, value) in row.iter_mut().enumerate() {
                let source =
                    if is_transposed { self.0[horizontal][vertical] } else { self.0[vertical][horizontal] };
                // Reversal negates the waves of odd frequencies. The first frequency is 1, so these have even indices.
                let is_negated =
                    (is_reversed_down && vertical % 2 == 0) != (is_reversed_across && horizontal % 2 == 0);
                *value = if is_negated { -source } else { source };
            }
        }
        Self(reoriented)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::hashes::pdq::hash;

    /// A picture whose sides of 64 make every window even, so that rotating is exact.
    fn picture() -> Vec<u8> {
        let mut state = 7u32;
        let mut noise = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 24
        };
        (0..64 * 64u32)
            .map(|at| {
                let (x, y) = (at % 64, at / 64);
                u8::try_from((x * x / 30 + y * 2 + (x * y) / 50 + noise() / 4) % 256).unwrap()
            })
            .collect()
    }

    fn reoriented(luma: &[u8], orientation: Orientation) -> Vec<u8> {
        let at = |x: usize, y: usize| luma[y * 64 + x];
        (0..64 * 64)
            .map(|place| {
                let (x, y) = (place % 64, place / 64);
                match orientation {
                    Orientation::Left => at(63 - y, x),
                    Orientation::Around => at(63 - x, 63 - y),
                    Orientation::Right => at(y, 63 - x),
                    Orientation::MirrorLeftRight => at(63 - x, y),
                    Orientation::MirrorTopBottom => at(x, 63 - y),
                    Orientation::MirrorDiagonal => at(y, x),
                    Orientation::MirrorAntiDiagonal => at(63 - y, 63 - x),
                }
            })
            .collect()
    }

    #[test]
    fn reoriented_hash_is_the_hash_of_the_reoriented_picture() {
        let luma = picture();
        let original = hash(&luma, 64, 64).unwrap();
        assert_eq!(original.hash.weight(), 128);
        for orientation in Orientation::ALL {
            let expected = hash(&reoriented(&luma, orientation), 64, 64).unwrap().hash;
            assert_eq!(
                original.coefficients.reoriented(orientation).hash(),
                expected,
                "{}",
                orientation.tag()
            );
            assert!(expected.distance(&original.hash) > 80, "{}", orientation.tag());
        }
    }
}
