//! Reads scans of whole blocks: transforms the blocks of one component and skips the others.

use std::ops::Range;

use super::{
    bits::Bits,
    frame::Plane,
    huffman::{CODES_PER_FILL, Table},
    scan::Scan,
    transform::{ORDER, block_to_samples},
    vectors::Vectors,
};

/// Reads the units between two restarts. Missing units are gray. Returns true if the data is too short.
#[inline(always)]
pub(super) fn read_units(
    vectors: Vectors,
    mut bits: Bits<'_>,
    units: Range<usize>,
    scan: &Scan<'_>,
    steps: &[i16; 64],
    plane: &mut Plane,
) -> bool {
    let mut level = 0;
    bits.fill();
    let missing_units = scan.for_each_block(
        &mut bits,
        units,
        #[inline(always)]
        |bits, part, row, column| {
            let (Some(first), Some(others)) = (scan.first_table(part), scan.others_table(part)) else {
                return;
            };
            if part.is_wanted {
                let mut values = [0; 64];
                let last = read_block(bits, first, others, &mut level, &mut values);
                plane.place(row, column, &block_to_samples(vectors, &values, steps, last));
            } else {
                skip_block(bits, first, others);
            }
        },
    );
    fill_gray(missing_units, scan, plane);
    bits.has_ended_early()
}

/// Fills missing units with gray.
pub(super) fn fill_gray(units: Range<usize>, scan: &Scan<'_>, plane: &mut Plane) {
    if units.is_empty() {
        return;
    }
    let mut bits = Bits::NONE;
    scan.for_each_block(&mut bits, units, |_, part, row, column| {
        if part.is_wanted {
            plane.place(row, column, &[[128; 8]; 8]);
        }
    });
}

/// Reads a block, and returns the place of its last nonzero coefficient. Like in libjpeg, a place beyond the block counts
/// as the last one.
#[inline(always)]
pub(super) fn read_block(
    bits: &mut Bits<'_>,
    first: &Table,
    others: &Table,
    level: &mut i32,
    values: &mut [i16; 64],
) -> u32 {
    *level = level.wrapping_add(first.fill_and_next(bits).1);
    values[0] = truncate(*level);
    let (mut at, mut last) = (1, 0);
    loop {
        for code in 0..CODES_PER_FILL {
            let (entry, value) = others.one_of_a_fill(code, bits);
            let value = truncate(value);
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
pub(super) fn skip_block(bits: &mut Bits<'_>, first: &Table, others: &Table) {
    first.fill_and_next(bits);
    let mut at = 0;
    loop {
        for code in 0..CODES_PER_FILL {
            let (entry, _) = others.one_of_a_fill(code, bits);
            at += entry.run() + 1;
            if at >= 63 {
                return;
            }
        }
    }
}

/// Truncates an oversized coefficient like libjpeg.
#[inline(always)]
pub(super) const fn truncate(value: i32) -> i16 {
    #[allow(clippy::cast_possible_truncation, reason = "truncation is intended")]
    return value as i16;
}
