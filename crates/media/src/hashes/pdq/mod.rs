//! PDQ: a hash of 256 bits of a picture's low frequencies, from all of its luma in one pass.
//!
//! The reference blurs the whole picture twice in each direction, keeps 64 x 64 points of it, and transforms those.
//! All of that is linear, so here each of the points is one weighted sum over the few pixels that reach it.

mod reduce;
mod taps;
mod transform;

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use tidegate_schemas::hex::{self, hex};

use self::taps::{Taps, reversed, taps};
pub use self::transform::{Coefficients, Orientation};

/// Lowest quality of a hash that is worth comparing.
pub const MIN_QUALITY: u8 = 50;
/// Shortest side of a picture that gets a hash.
pub const MIN_SIDE: u32 = 5;
/// Shortest side of a picture whose quality is not 0. A hash is made of frequencies 1 to 16, and a line of pixels has as
/// many frequencies as pixels, including 0. The others would come from stretching the line.
pub const MIN_QUALITY_SIDE: u32 = 17;
/// Longest side of a picture that gets a hash: the sums are made for this many pixels.
pub const MAX_SIDE: u32 = 32_768;

/// Distance up to which two pictures count as the same.
pub const MATCH_DISTANCE: u32 = 31;

/// A PDQ hash. Bit `k`, counted from the lowest of the 256-bit number that its text writes, is row `k / 16` and column
/// `k % 16` of the transformed picture.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PdqHash(pub [u8; 32]);

impl PdqHash {
    /// Number of bits that differ. It is even between hashes of pictures, because each has 128 bits set.
    pub fn distance(&self, other: &Self) -> u32 {
        let word =
            |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("chunks_exact gives eight bytes"));
        let pairs = self.0.chunks_exact(8).zip(other.0.chunks_exact(8));
        pairs.map(|(mine, theirs)| (word(mine) ^ word(theirs)).count_ones()).sum()
    }

    /// Number of bits that are set: 128 in the hash of any picture with some detail.
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
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PdqHash {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(from)?;
        text.parse().map_err(D::Error::custom)
    }
}

/// A transformed picture, with its hash.
#[derive(Clone, Debug)]
pub struct Hashed {
    pub hash: PdqHash,
    /// Amount of detail, from 0 to 100.
    pub quality: u8,
    pub coefficients: Coefficients,
}

/// Hashes luma, row by row without gaps. Returns `None` for a side below `MIN_SIDE` or above `MAX_SIDE`, and if there are
/// not width x height samples.
pub fn hash(luma: &[u8], width: u32, height: u32) -> Option<Hashed> {
    let (width, height) = sides(luma, width, height)?;
    let [points] = reduce::reduce(luma, width, &taps(height), [&taps(width)]);
    Some(Hashed::of((width, height), &points, Coefficients::of(&points)))
}

/// Hashes luma as `hash` does, and also in each other orientation, in the order of `Orientation::ALL`.
pub fn hash_all_orientations(luma: &[u8], width: u32, height: u32) -> Option<(Hashed, [PdqHash; 7])> {
    let (width, height) = sides(luma, width, height)?;
    let (rows, columns) = (taps(height), taps(width));
    let (up, back) = (reversed(&rows, height), reversed(&columns, width));
    // In lines of most lengths, the box filter's windows or the kept points lie unevenly. Such lines are weighed back to
    // front as well. For even ones, other signs of the transform give the same.
    let is_even = |taps: &[Taps], reversed: &[Taps]| taps.iter().rev().eq(reversed);
    let of_rows = |rows: &[Taps]| {
        if is_even(&columns, &back) {
            let [points] = reduce::reduce(luma, width, rows, [&columns]);
            let ahead = Coefficients::of(&points);
            let back = ahead.reoriented(Orientation::MirrorLeftRight);
            (points, [ahead, back])
        } else {
            let [points, others] = reduce::reduce(luma, width, rows, [&columns, &back]);
            let both = [&points, &others].map(|points| Coefficients::of(points));
            (points, both)
        }
    };
    let (points, down) = of_rows(&rows);
    let up = if is_even(&rows, &up) {
        down.each_ref().map(|coefficients| coefficients.reoriented(Orientation::MirrorTopBottom))
    } else {
        of_rows(&up).1
    };
    let turned = Orientation::ALL.map(|orientation| orientation.of_mirrored([&down, &up]).hash());
    let [coefficients, _] = down;
    Some((Hashed::of((width, height), &points, coefficients), turned))
}

impl Hashed {
    fn of((width, height): (usize, usize), points: &reduce::Points, coefficients: Coefficients) -> Self {
        let is_large_enough = width.min(height) >= MIN_QUALITY_SIDE as usize;
        let quality = if is_large_enough { reduce::quality(points) } else { 0 };
        Self { hash: coefficients.hash(), quality, coefficients }
    }
}

fn sides(luma: &[u8], width: u32, height: u32) -> Option<(usize, usize)> {
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
