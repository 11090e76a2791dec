//! Scans of whole blocks: those of the component that is read are transformed, others are passed over.

use std::ops::Range;

use super::{
    bits::Bits,
    frame::Plane,
    huffman::{A_FILL, Table},
    scan::Scan,
    transform::{ORDER, samples},
    vectors::Vectors,
};

/// Units between two restarts. Those that the data is too short for are gray. Whether there are any.
#[inline(always)]
pub(super) fn units(
    vectors: Vectors,
    mut bits: Bits<'_>,
    units: Range<usize>,
    scan: &Scan<'_>,
    steps: &[i16; 64],
    plane: &mut Plane,
) -> bool {
    let mut level = 0;
    bits.fill();
    let missing = scan.blocks(
        &mut bits,
        units,
        #[inline(always)]
        |bits, part, row, column| {
            let (Some(first), Some(others)) = (scan.first(part), scan.others(part)) else { return };
            if part.is_wanted {
                let mut values = [0; 64];
                let last = block(bits, first, others, &mut level, &mut values);
                plane.place(row, column, &samples(vectors, &values, steps, last));
            } else {
                pass_over(bits, first, others);
            }
        },
    );
    gray(missing, scan, plane);
    bits.has_ended_early()
}

/// Fills missing units with gray.
pub(super) fn gray(units: Range<usize>, scan: &Scan<'_>, plane: &mut Plane) {
    if units.is_empty() {
        return;
    }
    let mut bits = Bits::NONE;
    scan.blocks(&mut bits, units, |_, part, row, column| {
        if part.is_wanted {
            plane.place(row, column, &[[128; 8]; 8]);
        }
    });
}

/// Reads a block, and says which of its coefficients is the last one that is not zero. One beyond the last one is taken
/// for that one, as in libjpeg.
#[inline(always)]
pub(super) fn block(
    bits: &mut Bits<'_>,
    first: &Table,
    others: &Table,
    level: &mut i32,
    values: &mut [i16; 64],
) -> u32 {
    *level = level.wrapping_add(first.fill_and_next(bits).1);
    values[0] = truncated(*level);
    let (mut at, mut last) = (1, 0);
    loop {
        for code in 0..A_FILL {
            let (entry, value) = others.one_of_a_fill(code, bits);
            let value = truncated(value);
            at += entry.run();
            if at > 63 {
                if value != 0 {
                    (values[63], last) = (value, 63);
                }
                return last;
            }
            values[usize::from(ORDER[at as usize & 63])] = value;
            last = if value == 0 { last } else { at };
            if at == 63 {
                return last;
            }
            at += 1;
        }
    }
}

#[inline(always)]
pub(super) fn pass_over(bits: &mut Bits<'_>, first: &Table, others: &Table) {
    first.fill_and_next(bits);
    let mut at = 0;
    loop {
        for code in 0..A_FILL {
            let (entry, _) = others.one_of_a_fill(code, bits);
            at += entry.run() + 1;
            if at >= 63 {
                return;
            }
        }
    }
}

/// Truncates a coefficient that is too large, as libjpeg does.
#[inline(always)]
pub(super) const fn truncated(value: i32) -> i16 {
    #[allow(clippy::cast_possible_truncation, reason = "as it says")]
    return value as i16;
}
