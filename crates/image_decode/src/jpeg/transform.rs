//! Transforms the coefficients of a block to samples (inverse DCT), bit-identical to the vector code of libjpeg-turbo.
//!
//! Values beyond 16 bits wrap or saturate at the same steps. A hostile file can encode a picture that is visible only
//! through these overflows, and a single rounding decides whether a value overflows.

use super::vectors::{Rows, Samples, Vectors, sample};

/// Place in the block of each coefficient, in the order of a scan (zigzag).
pub(super) const ORDER: [u8; 64] = [
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7,
    14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39,
    46, 53, 60, 61, 54, 47, 55, 62, 63,
];

/// Last coefficient of a scan up to which all are within the first four rows and columns.
const LAST_IN_CORNER: u32 = 9;

/// Returns the samples of a block. `last` is the place of its last nonzero coefficient in a scan.
#[inline(always)]
pub(super) fn block_to_samples(vectors: Vectors, block: &[i16; 64], steps: &[i16; 64], last: u32) -> Samples {
    if last == 0 {
        return [[sample((quadruple(block[0].wrapping_mul(steps[0]).into()) + 16) >> 5); 8]; 8];
    }
    let (mut rows, mut columns_done, mut rows_done) = ([[0; 8]; 8], [[0; 8]; 8], [[0; 8]; 8]);
    if last <= LAST_IN_CORNER {
        // The other rows and columns are zero, so half of the multiplications can be left out.
        multiply::<4>(block, steps, &mut rows);
        transform_lanes::<4, 11>(&rows, &mut columns_done);
        saturate(block, &rows, &mut columns_done);
        transform_lanes::<4, 18>(&vectors.transpose(&columns_done), &mut rows_done);
    } else {
        multiply::<8>(block, steps, &mut rows);
        transform_lanes::<8, 11>(&rows, &mut columns_done);
        saturate(block, &rows, &mut columns_done);
        transform_lanes::<8, 18>(&vectors.transpose(&columns_done), &mut rows_done);
    }
    vectors.transpose_to_samples(&rows_done)
}

#[inline(always)]
fn multiply<const FILLED: usize>(block: &[i16; 64], steps: &[i16; 64], rows: &mut Rows) {
    for (at, row) in rows.iter_mut().take(FILLED).enumerate() {
        for (across, value) in row.iter_mut().enumerate() {
            *value = block[8 * at + across].wrapping_mul(steps[8 * at + across]).into();
        }
    }
}

/// Saturates columns at 16 bits after the first pass. libjpeg-turbo skips the pass for a block with only its first row;
/// these values wrap.
#[inline(always)]
fn saturate(block: &[i16; 64], rows: &Rows, down: &mut Rows) {
    const LARGEST: i32 = i16::MAX as i32 >> 2;
    if rows[0].iter().any(|value| value.abs() > LARGEST) && block[8..].iter().all(|value| *value == 0) {
        *down = [rows[0].map(quadruple); 8];
    }
    for value in down.as_flattened_mut() {
        *value = (*value).clamp(i16::MIN.into(), i16::MAX.into());
    }
}

const fn quadruple(value: i32) -> i32 {
    wrap(value << 2)
}

#[inline(always)]
const fn wrap(value: i32) -> i32 {
    value << 16 >> 16
}

/// Computes eight parallel transforms of eight values each. Only the first `FILLED` values are nonzero.
#[inline(always)]
fn transform_lanes<const FILLED: usize, const CUT: u32>(source: &Rows, target: &mut Rows) {
    let half = 1 << (CUT - 1);
    let times = |value: i32, factor: i32| value.wrapping_mul(factor);
    for lane in 0..8 {
        let value = |at: usize| if at < FILLED { source[at][lane] } else { 0 };
        let rotation = times(value(2).wrapping_add(value(6)), 4433);
        let even = rotation.wrapping_add(times(value(2), 6270));
        let odd = rotation.wrapping_add(times(value(6), -15137));
        let sum = (wrap(value(0).wrapping_add(value(4))) << 13).wrapping_add(half);
        let difference = (wrap(value(0).wrapping_sub(value(4))) << 13).wrapping_add(half);
        let evens = [
            sum.wrapping_add(even),
            difference.wrapping_add(odd),
            difference.wrapping_sub(odd),
            sum.wrapping_sub(even),
        ];

        let (one, three, five, seven) = (value(1), value(3), value(5), value(7));
        let (outer, inner) = (seven.wrapping_add(one), five.wrapping_add(three));
        let (upper, lower) = (wrap(seven.wrapping_add(three)), wrap(five.wrapping_add(one)));
        let common_term = times(upper.wrapping_add(lower), 9633);
        let (outer, inner) =
            (common_term.wrapping_add(times(outer, -7373)), common_term.wrapping_add(times(inner, -20995)));
        let (upper, lower) = (times(upper, -16069), times(lower, -3196));
        let odds = [
            times(one, 12299).wrapping_add(outer.wrapping_add(lower)),
            times(three, 25172).wrapping_add(inner.wrapping_add(upper)),
            times(five, 16819).wrapping_add(inner.wrapping_add(lower)),
            times(seven, 2446).wrapping_add(outer.wrapping_add(upper)),
        ];
        for at in 0..4 {
            target[at][lane] = evens[at].wrapping_add(odds[at]) >> CUT;
            target[7 - at][lane] = evens[at].wrapping_sub(odds[at]) >> CUT;
        }
    }
}
