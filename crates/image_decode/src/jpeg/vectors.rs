//! Detects vector instructions at run time, and transposes blocks with them, because compilers do not vectorize a
//! transposition.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::__m256i;

#[cfg(target_arch = "x86_64")]
use pulp::{cast, x86::V3};

pub(super) type Rows = [[i32; 8]; 8];

pub(super) type Samples = [[u8; 8]; 8];

#[derive(Clone, Copy)]
pub(super) struct Vectors {
    #[cfg(target_arch = "x86_64")]
    avx: Option<V3>,
}

impl Vectors {
    /// Runs `work` with the detected instructions. Only inlined code is compiled for them, and only a closure that moves
    /// its captures is inlined completely.
    pub(super) fn dispatch<R>(work: impl FnOnce(Self) -> R) -> R {
        #[cfg(target_arch = "x86_64")]
        if let Some(avx) = V3::try_new() {
            return avx.vectorize(
                #[inline(always)]
                move || work(Self { avx: Some(avx) }),
            );
        }
        work(Self::PLAIN)
    }

    pub(super) const PLAIN: Self = Self {
        #[cfg(target_arch = "x86_64")]
        avx: None,
    };

    #[inline(always)]
    pub(super) fn transpose(self, rows: &Rows) -> Rows {
        #[cfg(target_arch = "x86_64")]
        if let Some(avx) = self.avx {
            return transpose_with_avx(avx, rows);
        }
        let mut transposed = [[0; 8]; 8];
        for (at, row) in rows.iter().enumerate() {
            for (across, value) in row.iter().enumerate() {
                transposed[across][at] = *value;
            }
        }
        transposed
    }

    /// Transposes the rows and converts each value with `sample`.
    #[inline(always)]
    pub(super) fn transpose_to_samples(self, rows: &Rows) -> Samples {
        #[cfg(target_arch = "x86_64")]
        if let Some(avx) = self.avx {
            return transpose_to_samples_with_avx(avx, rows);
        }
        let mut transposed = [[0; 8]; 8];
        for (at, row) in rows.iter().enumerate() {
            for (across, value) in row.iter().enumerate() {
                transposed[across][at] = sample(*value);
            }
        }
        transposed
    }
}

/// Converts a value around zero to a byte: adds 128 and clamps.
#[inline(always)]
pub(super) fn sample(value: i32) -> u8 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
    return (value.clamp(-128, 127) + 128) as u8;
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn transpose_with_avx(avx: V3, rows: &Rows) -> Rows {
    let avx2 = avx.avx2;
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
    let mut transposed = [[0; 8]; 8];
    for at in 0..4 {
        transposed[at] = cast(avx2._mm256_permute2x128_si256::<0x20>(fours[at], fours[at + 4]));
        transposed[at + 4] = cast(avx2._mm256_permute2x128_si256::<0x31>(fours[at], fours[at + 4]));
    }
    transposed
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn transpose_to_samples_with_avx(avx: V3, rows: &Rows) -> Samples {
    const TURNS_FOURS: [u8; 16] = [0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15];
    let avx2 = avx.avx2;
    let order = cast([TURNS_FOURS; 2]);
    let pair = |at: usize| avx2._mm256_packs_epi32(cast(rows[at]), cast(rows[at + 1]));
    let four = |at: usize| -> __m256i {
        let around_zero = avx2._mm256_packs_epi16(pair(at), pair(at + 2));
        avx2._mm256_xor_si256(around_zero, cast([128u8; 32]))
    };
    // In each half: the first, then the last four values of four rows, transposed.
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
    fn vectors_transpose_like_plain_code() {
        let mut rows = [[0; 8]; 8];
        for (at, value) in rows.as_flattened_mut().iter_mut().enumerate() {
            *value =
                [1, 17, -40_000, 100, 70_000, 127, -128, -1][at % 8] + i32::try_from(at).unwrap_or_default();
        }
        let (transposed, samples) =
            (Vectors::PLAIN.transpose(&rows), Vectors::PLAIN.transpose_to_samples(&rows));
        for at in 0..64 {
            assert_eq!(transposed[at % 8][at / 8], rows[at / 8][at % 8]);
            assert_eq!(i32::from(samples[at % 8][at / 8]), (rows[at / 8][at % 8] + 128).clamp(0, 255));
        }
        let found =
            Vectors::dispatch(|vectors| (vectors.transpose(&rows), vectors.transpose_to_samples(&rows)));
        assert_eq!(found, (transposed, samples));
    }
}
