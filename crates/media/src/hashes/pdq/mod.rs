//! PDQ: 256 bits of how a picture's brightness varies, from all of its luma in one pass.
//!
//! The reference blurs the whole picture twice in each direction, keeps 64 x 64 points of it, and transforms those.
//! All of that is linear, so here each of the points is one weighted sum over the few pixels that reach it. Which
//! pixels a file has is `decode`'s matter.

mod reduce;
mod taps;
mod transform;

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use self::taps::{Taps, reversed, taps};
pub use self::transform::{Coefficients, Turn};
use super::hex::{self, Hex};

/// Hashes of a lower quality say too little to be compared.
pub const MIN_QUALITY: u8 = 50;
/// A picture with a shorter side has no hash.
pub const MIN_SIDE: u32 = 5;
/// A picture with a shorter side has quality 0. A hash is of frequencies 1 to 16, and a line of pixels has as many
/// frequencies as pixels, the one of 0 included: the rest would be of how the line is stretched.
pub const TELLING_SIDE: u32 = 17;
/// A picture with a longer side has no hash: the sums are made for this many pixels.
pub const MAX_SIDE: u32 = 32_768;

/// The distance up to which two pictures are taken for the same.
pub const MATCH_DISTANCE: u32 = 31;

/// A PDQ hash. Bit `k` is the lowest but `k` of the 256-bit number that its text writes: row `k / 16`, column `k % 16`
/// of the transformed picture.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PdqHash(pub [u8; 32]);

impl PdqHash {
    /// In how many bits they differ. Between hashes of pictures it is even, because each has 128 bits set.
    pub fn distance(&self, other: &Self) -> u32 {
        let word =
            |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("chunks_exact gives eight bytes"));
        let pairs = self.0.chunks_exact(8).zip(other.0.chunks_exact(8));
        pairs.map(|(mine, theirs)| (word(mine) ^ word(theirs)).count_ones()).sum()
    }

    /// How many bits are set: 128 in the hash of any picture with something to see. Others are hardly of a picture.
    pub fn weight(&self) -> u32 {
        self.distance(&Self([0; 32]))
    }
}

impl fmt::Display for PdqHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Hex(&self.0).fmt(f)
    }
}

impl fmt::Debug for PdqHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PdqHash({self})")
    }
}

/// Text that is no PDQ hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a PDQ hash has 64 hexadecimal digits")]
pub struct NoPdqHash;

impl NoPdqHash {
    pub fn tag(&self) -> &'static str {
        "pdq_malformed"
    }
}

impl FromStr for PdqHash {
    type Err = NoPdqHash;

    fn from_str(text: &str) -> Result<Self, NoPdqHash> {
        hex::decode(text).map(Self).ok_or(NoPdqHash)
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

/// A picture transformed, from which its hash and those of its turns are read.
#[derive(Clone, Debug)]
pub struct Hashed {
    pub hash: PdqHash,
    /// How much is to be seen, 0 to 100.
    pub quality: u8,
    pub coefficients: Coefficients,
}

/// Hashes luma, row by row without gaps. Nothing for a picture whose sides are below `MIN_SIDE` or above `MAX_SIDE`, or
/// whose luma does not have width x height samples.
pub fn hash(luma: &[u8], width: u32, height: u32) -> Option<Hashed> {
    let (width, height) = sides(luma, width, height)?;
    let [points] = reduce::reduce(luma, width, &taps(height), [&taps(width)]);
    Some(Hashed::of((width, height), &points, Coefficients::of(&points)))
}

/// The same, and what it says of the picture turned in each way, in the order of `Turn::ALL`. In lines of most lengths the
/// box filter's windows or the points that are kept lie unevenly, so it is more than the transform with other signs.
pub fn hash_turned(luma: &[u8], width: u32, height: u32) -> Option<(Hashed, [PdqHash; 7])> {
    let (width, height) = sides(luma, width, height)?;
    let (rows, columns) = (taps(height), taps(width));
    let (up, back) = (reversed(&rows, height), reversed(&columns, width));
    let is_even = |taps: &[Taps], reversed: &[Taps]| taps.iter().rev().eq(reversed);
    let of_rows = |rows: &[Taps]| {
        if is_even(&columns, &back) {
            let [points] = reduce::reduce(luma, width, rows, [&columns]);
            let ahead = Coefficients::of(&points);
            let back = ahead.turned(Turn::MirrorLeftRight);
            (points, [ahead, back])
        } else {
            let [points, others] = reduce::reduce(luma, width, rows, [&columns, &back]);
            let both = [&points, &others].map(|points| Coefficients::of(points));
            (points, both)
        }
    };
    let (points, down) = of_rows(&rows);
    let up = if is_even(&rows, &up) {
        down.each_ref().map(|coefficients| coefficients.turned(Turn::MirrorTopBottom))
    } else {
        of_rows(&up).1
    };
    let turned = Turn::ALL.map(|turn| turn.of_mirrored([&down, &up]).hash());
    let [coefficients, _] = down;
    Some((Hashed::of((width, height), &points, coefficients), turned))
}

impl Hashed {
    fn of((width, height): (usize, usize), points: &reduce::Points, coefficients: Coefficients) -> Self {
        let is_telling = width.min(height) >= TELLING_SIDE as usize;
        let quality = if is_telling { reduce::quality(points) } else { 0 };
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
    fn a_hash_is_read_and_written_as_its_64_digits() {
        let hash: PdqHash = TEXT.parse().unwrap();
        assert_eq!(hash.to_string(), TEXT);
        assert_eq!(TEXT.to_uppercase().parse::<PdqHash>(), Ok(hash));
        assert_eq!(serde_json::from_str::<PdqHash>(&serde_json::to_string(&hash).unwrap()).unwrap(), hash);
        for wrong in ["", &TEXT[..63], &format!("{TEXT}0"), &TEXT.replace('f', "g"), &"é".repeat(32)] {
            assert_eq!(wrong.parse::<PdqHash>(), Err(NoPdqHash), "{wrong}");
        }
    }

    #[test]
    fn the_distance_counts_bits() {
        let (zero, mut one) = (PdqHash([0; 32]), PdqHash([0; 32]));
        assert_eq!(zero.distance(&zero), 0);
        assert_eq!(zero.distance(&PdqHash([255; 32])), 256);
        for at in 0..256 {
            one.0[at / 8] |= 1 << (at % 8);
            assert_eq!(zero.distance(&one) as usize, at + 1);
        }
    }

    #[test]
    fn what_has_no_hash_gets_none() {
        assert!(hash(&[0; 4 * 100], 4, 100).is_none());
        assert!(hash(&[0; 4 * 100], 100, 4).is_none());
        assert!(hash(&[0; 99], 10, 10).is_none());
        assert!(hash(&[0; 5 * 32_769], 5, 32_769).is_none());
        assert!(hash(&[0; 5 * 32_768], 5, 32_768).is_some());
    }
}
