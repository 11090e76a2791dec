//! Scans of whole blocks: luma's are transformed as they are read, those of colours are passed over.

use std::ops::Range;

use super::{
    bits::Bits,
    frame::Plane,
    huffman::{A_FILL, END, Table},
    scan::Scan,
    transform::{ORDER, samples},
    vectors::Vectors,
};

/// Units between two restarts. Nothing if they are broken.
#[inline(always)]
pub(super) fn units(
    vectors: Vectors,
    mut bits: Bits<'_>,
    units: Range<usize>,
    scan: &Scan<'_>,
    steps: &[i32; 64],
    plane: &mut Plane,
) -> Option<()> {
    let mut level = 0;
    bits.fill();
    scan.blocks(
        units,
        #[inline(always)]
        |part, row, column| {
            let (first, others) = (scan.first(part)?, scan.others(part)?);
            if part.is_luma {
                let mut values = [0; 64];
                let last = block(&mut bits, first, others, &mut level, &mut values)?;
                plane.place(row, column, &samples(vectors, &values, steps, last));
            } else {
                pass_over(&mut bits, first, others)?;
            }
            (!bits.has_ended_early()).then_some(())
        },
    )?;
    bits.is_used_up().then_some(())
}

/// Reads a block, and says which of its coefficients is the last one that is not zero.
#[inline(always)]
pub(super) fn block(
    bits: &mut Bits<'_>,
    first: &Table,
    others: &Table,
    level: &mut i32,
    values: &mut [i16; 64],
) -> Option<u32> {
    *level += first.fill_and_next(bits)?.1;
    values[0] = i16::try_from(*level).ok()?;
    let (mut at, mut last) = (1, 0);
    loop {
        for code in 0..A_FILL {
            let (entry, value) = others.one_of_a_fill(code, bits)?;
            at += entry.run();
            if at > 63 {
                return (entry.run() == END).then_some(last);
            }
            #[allow(clippy::cast_possible_truncation, reason = "of 15 bits and a sign")]
            let value = value as i16;
            values[usize::from(ORDER[at as usize & 63])] = value;
            last = if value == 0 { last } else { at };
            if at == 63 {
                return Some(last);
            }
            at += 1;
        }
    }
}

#[inline(always)]
pub(super) fn pass_over(bits: &mut Bits<'_>, first: &Table, others: &Table) -> Option<()> {
    first.fill_and_next(bits)?;
    let mut at = 0;
    loop {
        for code in 0..A_FILL {
            let (entry, _) = others.one_of_a_fill(code, bits)?;
            at += entry.run() + 1;
            if at >= 63 {
                return (at == 63 || entry.run() == END).then_some(());
            }
        }
    }
}
