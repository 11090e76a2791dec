//! The instructions that are found when the service runs, and what compilers make no vectors of: turning a square.
//!
//! What is turned, and why, is not known here.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::__m256i;

#[cfg(target_arch = "x86_64")]
use pulp::{cast, x86::V3};

pub(super) type Rows = [[i32; 8]; 8];

pub(super) type Samples = [[u8; 8]; 8];

#[derive(Clone, Copy)]
pub(super) struct Vectors {
    #[cfg(target_arch = "x86_64")]
    found: Option<V3>,
}

impl Vectors {
    /// Runs `work` with the instructions that are found. Only inlined code is compiled for them, and only a closure that
    /// moves what it captures is inlined as a whole.
    pub(super) fn dispatch<R>(work: impl FnOnce(Self) -> R) -> R {
        #[cfg(target_arch = "x86_64")]
        if let Some(found) = V3::try_new() {
            return found.vectorize(
                #[inline(always)]
                move || work(Self { found: Some(found) }),
            );
        }
        work(Self::PLAIN)
    }

    pub(super) const PLAIN: Self = Self {
        #[cfg(target_arch = "x86_64")]
        found: None,
    };

    #[inline(always)]
    pub(super) fn turned(self, rows: &Rows) -> Rows {
        #[cfg(target_arch = "x86_64")]
        if let Some(found) = self.found {
            return turned(found, rows);
        }
        let mut turned = [[0; 8]; 8];
        for (at, row) in rows.iter().enumerate() {
            for (across, value) in row.iter().enumerate() {
                turned[across][at] = *value;
            }
        }
        turned
    }

    /// The same, as `sample` makes samples of them.
    #[inline(always)]
    pub(super) fn turned_samples(self, rows: &Rows) -> Samples {
        #[cfg(target_arch = "x86_64")]
        if let Some(found) = self.found {
            return turned_samples(found, rows);
        }
        let mut turned = [[0; 8]; 8];
        for (at, row) in rows.iter().enumerate() {
            for (across, value) in row.iter().enumerate() {
                turned[across][at] = sample(*value);
            }
        }
        turned
    }
}

/// Shifts a value around zero to the middle of a byte, and clamps it.
#[inline(always)]
pub(super) fn sample(value: i32) -> u8 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
    return (value.clamp(-128, 127) + 128) as u8;
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn turned(found: V3, rows: &Rows) -> Rows {
    let avx2 = found.avx2;
    let row = |at: usize| -> __m256i { cast(rows[at]) };
    let mut fours = [cast([0i32; 8]); 8];
    for half in [0, 4] {
        let upper = avx2._mm256_unpacklo_epi32(row(half), row(half + 1));
        let lower = avx2._mm256_unpacklo_epi32(row(half + 2), row(half + 3));
        fours[half] = avx2._mm256_unpacklo_epi64(upper, lower);
        fours[half + 1] = avx2._mm256_unpackhi_epi64(upper, lower);
        let upper = avx2._mm256_unpackhi_epi32(row(half), row(half + 1));
        let lower = avx2._mm256_unpackhi_epi32(row(half + 2), row(half + 3));
        fours[half + 2] = avx2._mm256_unpacklo_epi64(upper, lower);
        fours[half + 3] = avx2._mm256_unpackhi_epi64(upper, lower);
    }
    let mut turned = [[0; 8]; 8];
    for at in 0..4 {
        turned[at] = cast(avx2._mm256_permute2x128_si256::<0x20>(fours[at], fours[at + 4]));
        turned[at + 4] = cast(avx2._mm256_permute2x128_si256::<0x31>(fours[at], fours[at + 4]));
    }
    turned
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn turned_samples(found: V3, rows: &Rows) -> Samples {
    const TURNS_FOURS: [u8; 16] = [0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15];
    let avx2 = found.avx2;
    let order = cast([TURNS_FOURS; 2]);
    let pair = |at: usize| avx2._mm256_packs_epi32(cast(rows[at]), cast(rows[at + 1]));
    let four = |at: usize| -> __m256i {
        let around_zero = avx2._mm256_packs_epi16(pair(at), pair(at + 2));
        avx2._mm256_xor_si256(around_zero, cast([128u8; 32]))
    };
    // Four rows' first four values, then their last four.
    let left = avx2._mm256_shuffle_epi8(four(0), order);
    let right = avx2._mm256_shuffle_epi8(four(4), order);
    let [zero, one, four, five]: [[u8; 8]; 4] = cast(avx2._mm256_unpacklo_epi32(left, right));
    let [two, three, six, seven]: [[u8; 8]; 4] = cast(avx2._mm256_unpackhi_epi32(left, right));
    [zero, one, two, three, four, five, six, seven]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn squares_are_turned_alike_with_and_without_vectors() {
        let mut rows = [[0; 8]; 8];
        for (at, value) in rows.as_flattened_mut().iter_mut().enumerate() {
            *value =
                [1, 17, -40_000, 100, 70_000, 127, -128, -1][at % 8] + i32::try_from(at).unwrap_or_default();
        }
        let (turned, samples) = (Vectors::PLAIN.turned(&rows), Vectors::PLAIN.turned_samples(&rows));
        for at in 0..64 {
            assert_eq!(turned[at % 8][at / 8], rows[at / 8][at % 8]);
            assert_eq!(i32::from(samples[at % 8][at / 8]), (rows[at / 8][at % 8] + 128).clamp(0, 255));
        }
        let found = Vectors::dispatch(|vectors| (vectors.turned(&rows), vectors.turned_samples(&rows)));
        assert_eq!(found, (turned, samples));
    }
}
