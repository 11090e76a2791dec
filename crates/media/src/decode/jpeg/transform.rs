//! From a block's coefficients to its samples, by the whole numbers that zune-jpeg uses: they are equal to the bit.
//!
//! What is beyond 16 bits wraps or is cut off where libjpeg-turbo's vectors do so, because files can be made that show
//! their picture by that alone.
//!
//! Where a block lies in the picture is its caller's matter.

use super::vectors::{Rows, Samples, Vectors};

/// Coefficients as they follow each other in a scan, by their place in the block.
pub(super) const ORDER: [u8; 64] = [
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7,
    14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39,
    46, 53, 60, 61, 54, 47, 55, 62, 63,
];

/// Coefficients up to this one in a scan lie within the first four rows and columns.
const IN_CORNER: u32 = 9;

/// The samples of a block, whose last coefficient that is not zero is told by its place in a scan.
#[inline(always)]
pub(super) fn samples(vectors: Vectors, block: &[i16; 64], steps: &[i16; 64], last: u32) -> Samples {
    if last == 0 {
        let level = (quadruple(block[0].wrapping_mul(steps[0]).into()) + 16 + 4096) >> 5;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
        return [[level.clamp(0, 255) as u8; 8]; 8];
    }
    // Half of what is cut off, and 128 in the middle of what is left.
    const HALF: i32 = 512 + 65536 + (128 << 17);
    let (mut rows, mut down, mut across) = ([[0; 8]; 8], [[0; 8]; 8], [[0; 8]; 8]);
    if last <= IN_CORNER {
        multiplied::<4>(block, steps, &mut rows);
        pass::<4, 10>(&rows, &mut down, 512);
        cut_off(block, &rows, &mut down);
        pass::<4, 17>(&vectors.turned(&down), &mut across, HALF);
    } else {
        multiplied::<8>(block, steps, &mut rows);
        pass::<8, 10>(&rows, &mut down, 512);
        cut_off(block, &rows, &mut down);
        pass::<8, 17>(&vectors.turned(&down), &mut across, HALF);
    }
    vectors.turned_samples(&across)
}

#[inline(always)]
fn multiplied<const FILLED: usize>(block: &[i16; 64], steps: &[i16; 64], rows: &mut Rows) {
    for (at, row) in rows.iter_mut().take(FILLED).enumerate() {
        for (across, value) in row.iter_mut().enumerate() {
            *value = block[8 * at + across].wrapping_mul(steps[8 * at + across]).into();
        }
    }
}

/// To 16 bits after the first pass. Columns of a block that has but its first row are not passed through, and wrap.
#[inline(always)]
fn cut_off(block: &[i16; 64], rows: &Rows, down: &mut Rows) {
    const LARGEST: i32 = i16::MAX as i32 >> 2;
    if rows[0].iter().any(|value| value.abs() > LARGEST) && block[8..].iter().all(|value| *value == 0) {
        *down = [rows[0].map(quadruple); 8];
    }
    for value in down.as_flattened_mut() {
        *value = (*value).clamp(i16::MIN.into(), i16::MAX.into());
    }
}

const fn quadruple(value: i32) -> i32 {
    wrapped(value << 2)
}

#[inline(always)]
const fn wrapped(value: i32) -> i32 {
    value << 16 >> 16
}

/// Eight transforms side by side of eight values each, of which the first ones may be other than zero.
#[inline(always)]
fn pass<const FILLED: usize, const CUT: u32>(from: &Rows, to: &mut Rows, half: i32) {
    let times = |value: i32, factor: i32| value.wrapping_mul(factor);
    for lane in 0..8 {
        let value = |at: usize| if at < FILLED { from[at][lane] } else { 0 };
        let turned = times(value(2).wrapping_add(value(6)), 2217);
        let even = turned.wrapping_add(times(value(2), 3135));
        let odd = turned.wrapping_add(times(value(6), -7567));
        let sum = (wrapped(value(0).wrapping_add(value(4))) << 12).wrapping_add(half);
        let difference = (wrapped(value(0).wrapping_sub(value(4))) << 12).wrapping_add(half);
        let evens = [
            sum.wrapping_add(even),
            difference.wrapping_add(odd),
            difference.wrapping_sub(odd),
            sum.wrapping_sub(even),
        ];

        let (one, three, five, seven) = (value(1), value(3), value(5), value(7));
        let (outer, inner) = (seven.wrapping_add(one), five.wrapping_add(three));
        let (upper, lower) = (wrapped(seven.wrapping_add(three)), wrapped(five.wrapping_add(one)));
        let all = times(upper.wrapping_add(lower), 4816);
        let (outer, inner) = (all.wrapping_add(times(outer, -3685)), all.wrapping_add(times(inner, -10497)));
        let (upper, lower) = (times(upper, -8034), times(lower, -1597));
        let odds = [
            times(one, 6149).wrapping_add(outer.wrapping_add(lower)),
            times(three, 12586).wrapping_add(inner.wrapping_add(upper)),
            times(five, 8410).wrapping_add(inner.wrapping_add(lower)),
            times(seven, 1223).wrapping_add(outer.wrapping_add(upper)),
        ];
        for at in 0..4 {
            to[at][lane] = evens[at].wrapping_add(odds[at]) >> CUT;
            to[7 - at][lane] = evens[at].wrapping_sub(odds[at]) >> CUT;
        }
    }
}
