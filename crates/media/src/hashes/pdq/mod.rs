//! PDQ: a 256-bit hash of a picture's low frequencies, computed from its luma in one pass.
//!
//! The reference implementation blurs the picture twice in each direction, samples 64 x 64 points, and transforms them. All
//! steps are linear, so each point is computed here directly, as one weighted sum over the pixels of its window.

mod reduce;
mod taps;
mod transform;

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use tidegate_schemas::hex::{self, hex};

use self::taps::{Taps, compute_taps, reverse_taps};
pub use self::transform::{Coefficients, Orientation};

/// Lowest quality of a comparable hash.
pub const MIN_QUALITY: u8 = 50;
/// Shortest side of a hashed picture, in pixels.
pub const MIN_SIDE: u32 = 5;
/// Shortest side of a picture with a quality above 0. A hash consists of frequencies 1 to 16, and a line of n pixels
/// contains only the frequencies 0 to n - 1. In shorter lines, the higher ones are artefacts of stretching.
pub const MIN_QUALITY_SIDE: u32 = 17;
/// Longest side of a hashed picture. The sums of up to this many pixels fit their integer types.
pub const MAX_SIDE: u32 = 32_768;

/// Largest distance of two pictures that count as the same.
pub const MATCH_DISTANCE: u32 = 31;

/// A PDQ hash. Its text is a 256-bit number. Bit `k` of the number, counted from the lowest, belongs to row `k / 16` and
/// column `k % 16` of the transformed picture.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PdqHash(pub [u8; 32]);

impl PdqHash {
    /// Number of differing bits. Even between hashes of detailed pictures, because each has 128 bits set.
    pub fn distance(&self, other: &Self) -> u32 {
        let word =
            |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("chunks_exact gives eight bytes"));
        let pairs = self.0.chunks_exact(8).zip(other.0.chunks_exact(8));
        pairs.map(|(left, right)| (word(left) ^ word(right)).count_ones()).sum()
    }

    /// Number of set bits: 128 in the hash of any picture with some detail.
    pub fn weight(&self) -> u32 {
        self.distance(&Self([0; 32]))
    }
}

impl fmt::Display for PdqHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&hex(&self.0))
    }
}

impl fmt::Debug for PdqHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PdqHash({self})")
    }
}

/// The text is not a PDQ hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a PDQ hash has 64 hexadecimal digits")]
pub struct PdqHashError;

impl PdqHashError {
    pub fn tag(&self) -> &'static str {
        "pdq_malformed"
    }
}

impl FromStr for PdqHash {
    type Err = PdqHashError;

    fn from_str(text: &str) -> Result<Self, PdqHashError> {
        hex::decode(text).map(Self).ok_or(PdqHashError)
    }
}

impl Serialize for PdqHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PdqHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

/// Hash of a picture, with its quality and the transform behind it.
#[derive(Clone, Debug)]
pub struct PdqResult {
    pub hash: PdqHash,
    /// Amount of detail, from 0 to 100.
    pub quality: u8,
    pub coefficients: Coefficients,
}

/// Hashes luma, stored in rows without gaps. Returns `None` if a side is below `MIN_SIDE` or above `MAX_SIDE`, or if the
/// number of samples is not width x height.
pub fn hash(luma: &[u8], width: u32, height: u32) -> Option<PdqResult> {
    let (width, height) = checked_sides(luma, width, height)?;
    let [points] = reduce::reduce(luma, width, &compute_taps(height), [&compute_taps(width)]);
    Some(PdqResult::of((width, height), &points, Coefficients::of(&points)))
}

/// Hashes luma like `hash`, and also in each other orientation, in the order of `Orientation::ALL`.
pub fn hash_all_orientations(luma: &[u8], width: u32, height: u32) -> Option<(PdqResult, [PdqHash; 7])> {
    let (width, height) = checked_sides(luma, width, height)?;
    let (rows, columns) = (compute_taps(height), compute_taps(width));
    let (rows_upward, columns_backward) = (reverse_taps(&rows, height), reverse_taps(&columns, width));
    // For most line lengths, the windows of the box filter or the sampled points are not symmetric, so the reversed line
    // has other sums and needs a pass of its own. For symmetric lengths, changing signs of the transform gives the same
    // result.
    let is_symmetric = |taps: &[Taps], reversed: &[Taps]| taps.iter().rev().eq(reversed);
    let transform_rows = |rows: &[Taps]| {
        if is_symmetric(&columns, &columns_backward) {
            let [points] = reduce::reduce(luma, width, rows, [&columns]);
            let forward = Coefficients::of(&points);
            let backward = forward.reoriented(Orientation::MirrorLeftRight);
            (points, [forward, backward])
        } else {
            let [points, backward_points] = reduce::reduce(luma, width, rows, [&columns, &columns_backward]);
            let transforms = [&points, &backward_points].map(|points| Coefficients::of(points));
            (points, transforms)
        }
    };
    let (points, downward) = transform_rows(&rows);
    let upward = if is_symmetric(&rows, &rows_upward) {
        downward.each_ref().map(|coefficients| coefficients.reoriented(Orientation::MirrorTopBottom))
    } else {
        transform_rows(&rows_upward).1
    };
    let reoriented_hashes =
        Orientation::ALL.map(|orientation| orientation.transform_from([&downward, &upward]).hash());
    // The unchanged picture: rows downward, columns forward.
    let [coefficients, _] = downward;
    Some((PdqResult::of((width, height), &points, coefficients), reoriented_hashes))
}

impl PdqResult {
    fn of((width, height): (usize, usize), points: &reduce::Points, coefficients: Coefficients) -> Self {
        // Hashes of smaller pictures exist but are not comparable, so their quality is 0.
        let is_large_enough = width.min(height) >= MIN_QUALITY_SIDE as usize;
        let quality = if is_large_enough { reduce::measure_quality(points) } else { 0 };
        Self { hash: coefficients.hash(), quality, coefficients }
    }
}

fn checked_sides(luma: &[u8], width: u32, height: u32) -> Option<(usize, usize)> {
    let sides = MIN_SIDE..=MAX_SIDE;
    let has_hash = sides.contains(&width) && sides.contains(&height);
    let (width, height) = (width as usize, height as usize);
    (has_hash && luma.len() == width * height).then_some((width, height))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const TEXT: &str = "f8f8f0cee0f4a84f06370a22038f63f0b36e2ed596621e1d33e6b39c4e9c9b22";

    #[test]
    fn hash_is_read_and_written_as_64_digits() {
        let hash: PdqHash = TEXT.parse().unwrap();
        assert_eq!(hash.to_string(), TEXT);
        assert_eq!(TEXT.to_uppercase().parse::<PdqHash>(), Ok(hash));
        assert_eq!(serde_json::from_str::<PdqHash>(&serde_json::to_string(&hash).unwrap()).unwrap(), hash);
        for wrong in ["", &TEXT[..63], &format!("{TEXT}0"), &TEXT.replace('f', "g"), &"é".repeat(32)] {
            assert_eq!(wrong.parse::<PdqHash>(), Err(PdqHashError), "{wrong}");
        }
    }

    #[test]
    fn distance_counts_differing_bits() {
        let (zero, mut one) = (PdqHash([0; 32]), PdqHash([0; 32]));
        assert_eq!(zero.distance(&zero), 0);
        assert_eq!(zero.distance(&PdqHash([255; 32])), 256);
        for at in 0..256 {
            one.0[at / 8] |= 1 << (at % 8);
            assert_eq!(zero.distance(&one) as usize, at + 1);
        }
    }

    #[test]
    fn sides_out_of_range_get_no_hash() {
        assert!(hash(&[0; 4 * 100], 4, 100).is_none());
        assert!(hash(&[0; 4 * 100], 100, 4).is_none());
        assert!(hash(&[0; 99], 10, 10).is_none());
        assert!(hash(&[0; 5 * 32_769], 5, 32_769).is_none());
        assert!(hash(&[0; 5 * 32_768], 5, 32_768).is_some());
    }
}
