//! Transforms a block's coefficients to samples with the integers of libjpeg-turbo's vectors, equal to the bit.
//!
//! What is beyond 16 bits wraps or is cut off where they do so, because files can be made that show their picture by that
//! alone; and whether it is beyond may hang on one rounding.

use super::vectors::{Rows, Samples, Vectors, sample};

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
        return [[sample((quadruple(block[0].wrapping_mul(steps[0]).into()) + 16) >> 5); 8]; 8];
    }
    let (mut rows, mut down, mut across) = ([[0; 8]; 8], [[0; 8]; 8], [[0; 8]; 8]);
    if last <= IN_CORNER {
        multiplied::<4>(block, steps, &mut rows);
        pass::<4, 11>(&rows, &mut down);
        cut_off(block, &rows, &mut down);
        pass::<4, 18>(&vectors.turned(&down), &mut across);
    } else {
        multiplied::<8>(block, steps, &mut rows);
        pass::<8, 11>(&rows, &mut down);
        cut_off(block, &rows, &mut down);
        pass::<8, 18>(&vectors.turned(&down), &mut across);
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

/// Cuts columns off at 16 bits after the first pass. Those of a block with only its first row skip the pass, and wrap.
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
fn pass<const FILLED: usize, const CUT: u32>(from: &Rows, to: &mut Rows) {
    let half = 1 << (CUT - 1);
    let times = |value: i32, factor: i32| value.wrapping_mul(factor);
    for lane in 0..8 {
        let value = |at: usize| if at < FILLED { from[at][lane] } else { 0 };
        let turned = times(value(2).wrapping_add(value(6)), 4433);
        let even = turned.wrapping_add(times(value(2), 6270));
        let odd = turned.wrapping_add(times(value(6), -15137));
        let sum = (wrapped(value(0).wrapping_add(value(4))) << 13).wrapping_add(half);
        let difference = (wrapped(value(0).wrapping_sub(value(4))) << 13).wrapping_add(half);
        let evens = [
            sum.wrapping_add(even),
            difference.wrapping_add(odd),
            difference.wrapping_sub(odd),
            sum.wrapping_sub(even),
        ];

        let (one, three, five, seven) = (value(1), value(3), value(5), value(7));
        let (outer, inner) = (seven.wrapping_add(one), five.wrapping_add(three));
        let (upper, lower) = (wrapped(seven.wrapping_add(three)), wrapped(five.wrapping_add(one)));
        let all = times(upper.wrapping_add(lower), 9633);
        let (outer, inner) = (all.wrapping_add(times(outer, -7373)), all.wrapping_add(times(inner, -20995)));
        let (upper, lower) = (times(upper, -16069), times(lower, -3196));
        let odds = [
            times(one, 12299).wrapping_add(outer.wrapping_add(lower)),
            times(three, 25172).wrapping_add(inner.wrapping_add(upper)),
            times(five, 16819).wrapping_add(inner.wrapping_add(lower)),
            times(seven, 2446).wrapping_add(outer.wrapping_add(upper)),
        ];
        for at in 0..4 {
            to[at][lane] = evens[at].wrapping_add(odds[at]) >> CUT;
            to[7 - at][lane] = evens[at].wrapping_sub(odds[at]) >> CUT;
        }
    }
}
