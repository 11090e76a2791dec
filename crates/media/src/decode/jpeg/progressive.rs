//! Scans of parts of luma's coefficients, which are kept until the last one: bands of them, and bits of bands.

use std::ops::Range;

use super::{
    bits::Bits,
    frame::{Frame, Plane},
    huffman::{END, Table},
    scan::{Band, Scan},
    transform::{ORDER, samples},
    vectors::Vectors,
};

pub(super) struct Coefficients {
    /// 64 of a block, by their place in it.
    values: Vec<i16>,
    /// Which of them are not zero, by their place in a scan.
    set: Vec<u64>,
    columns: usize,
    rows: usize,
    /// How many bits of a coefficient are still to come, by its place in a scan; nothing before its first scan.
    missing: [Option<u32>; 64],
}

impl Coefficients {
    pub(super) fn new(frame: &Frame) -> Self {
        let blocks = frame.columns * frame.rows;
        Self {
            values: vec![0; 64 * blocks],
            set: vec![0; blocks],
            columns: frame.columns,
            rows: frame.rows,
            missing: [None; 64],
        }
    }

    /// How many bytes are allocated.
    pub(super) const fn bytes(blocks: u64) -> u64 {
        blocks * (64 * 2 + 8)
    }

    /// Nothing if the bits of the band are not the next ones that are to come.
    pub(super) fn begin(&mut self, band: &Band) -> Option<()> {
        let before = (band.is_refined).then_some(band.low + 1);
        let missing = &mut self.missing[band.first as usize..=band.last as usize];
        if missing.iter().any(|missing| *missing != before) {
            return None;
        }
        missing.fill(Some(band.low));
        Some(())
    }

    pub(super) fn has_any(&self) -> bool {
        self.missing.iter().any(Option::is_some)
    }

    #[inline(always)]
    pub(super) fn units(&mut self, bits: Bits<'_>, units: Range<usize>, scan: &Scan<'_>) -> Option<()> {
        let bits = match (scan.band.first, scan.band.is_refined) {
            (0, false) => self.first(bits, units, scan),
            (0, true) => self.refine_first(bits, units, scan),
            (_, false) => self.others(bits, units, &scan.band, scan.others(scan.parts.first()?)?),
            (_, true) => self.refine_others(bits, units, &scan.band, scan.others(scan.parts.first()?)?),
        }?;
        bits.is_used_up().then_some(())
    }

    #[inline(always)]
    fn first<'b>(&mut self, mut bits: Bits<'b>, units: Range<usize>, scan: &Scan<'_>) -> Option<Bits<'b>> {
        let mut level = 0;
        scan.blocks(
            units,
            #[inline(always)]
            |part, row, column| {
                bits.fill();
                let (_, value) = scan.first(part)?.next(&mut bits)?;
                if part.is_luma {
                    level += value;
                    let value = i16::try_from(level << scan.band.low).ok()?;
                    if let Some(first) = self.first_of(row, column) {
                        *first = value;
                    }
                }
                (!bits.has_ended_early()).then_some(())
            },
        )?;
        Some(bits)
    }

    #[inline(always)]
    fn refine_first<'b>(
        &mut self,
        mut bits: Bits<'b>,
        units: Range<usize>,
        scan: &Scan<'_>,
    ) -> Option<Bits<'b>> {
        scan.blocks(
            units,
            #[inline(always)]
            |part, row, column| {
                bits.fill();
                #[allow(clippy::cast_possible_truncation, reason = "one bit, moved by 13 at most")]
                let bit = (bits.take(1) << scan.band.low) as i16;
                if part.is_luma
                    && let Some(first) = self.first_of(row, column)
                {
                    *first |= bit;
                }
                (!bits.has_ended_early()).then_some(())
            },
        )?;
        Some(bits)
    }

    /// Blocks beyond the picture's edge are not kept.
    #[inline(always)]
    fn first_of(&mut self, row: usize, column: usize) -> Option<&mut i16> {
        if row >= self.rows || column >= self.columns {
            return None;
        }
        self.values.get_mut(64 * (row * self.columns + column))
    }

    #[inline(always)]
    fn others<'b>(
        &mut self,
        mut bits: Bits<'b>,
        units: Range<usize>,
        band: &Band,
        table: &Table,
    ) -> Option<Bits<'b>> {
        let blocks = self.values.as_chunks_mut::<64>().0.get_mut(units.clone())?;
        let sets = self.set.get_mut(units)?;
        let mut left = blocks.iter_mut().zip(sets);
        while let Some((values, set)) = left.next() {
            let mut at = band.first;
            while at <= band.last {
                bits.fill();
                let (entry, value) = table.next(&mut bits)?;
                if entry.run() >= END {
                    let size = entry.run() - END;
                    let empty = (1 << size) - 1 + bits.take(size) as usize;
                    if empty > left.len() {
                        return None;
                    }
                    if empty > 0 {
                        left.nth(empty - 1);
                    }
                    break;
                }
                at += entry.run();
                if at > band.last {
                    return None;
                }
                values[usize::from(ORDER[at as usize & 63])] = i16::try_from(value << band.low).ok()?;
                *set |= u64::from(value != 0) << at;
                at += 1;
            }
            if bits.has_ended_early() {
                return None;
            }
        }
        Some(bits)
    }

    #[inline(always)]
    fn refine_others<'b>(
        &mut self,
        mut bits: Bits<'b>,
        units: Range<usize>,
        band: &Band,
        table: &Table,
    ) -> Option<Bits<'b>> {
        let blocks = self.values.as_chunks_mut::<64>().0.get_mut(units.clone())?;
        let sets = self.set.get_mut(units)?;
        let in_band = (!0 << band.first) & (!0 >> (63 - band.last));
        // How many blocks get nothing new, this one included.
        let mut ended = 0;
        for (values, set) in blocks.iter_mut().zip(sets) {
            let before = *set & in_band;
            let (mut left, mut more) = (in_band, 0);
            while ended == 0 && left != 0 {
                bits.fill();
                let (entry, value) = table.next(&mut bits)?;
                if entry.run() >= END {
                    let size = entry.run() - END;
                    ended = (1 << size) + bits.take(size);
                    break;
                }
                if value.abs() > 1 {
                    return None;
                }
                let mut zeros = left & !before;
                for _ in 0..entry.run() {
                    zeros &= zeros.wrapping_sub(1);
                }
                if zeros == 0 {
                    return None;
                }
                let at = zeros.trailing_zeros();
                let passed = left & before & !(!0 << at);
                more = more << passed.count_ones() | bits.take_many(passed.count_ones());
                if value != 0 {
                    #[allow(
                        clippy::cast_possible_truncation,
                        reason = "one bit and its sign, moved by 13 at most"
                    )]
                    let value = (value << band.low) as i16;
                    values[usize::from(ORDER[at as usize & 63])] = value;
                    *set |= 1 << at;
                }
                left &= !1 << at;
            }
            if ended > 0 {
                let rest = (left & before).count_ones();
                bits.fill();
                more = more << rest | bits.take_many(rest);
                ended -= 1;
            }
            refine(values, before, more, band.low);
            if bits.has_ended_early() {
                return None;
            }
        }
        (ended == 0).then_some(bits)
    }

    #[inline(always)]
    pub(super) fn transform(&self, vectors: Vectors, steps: &[i32; 64], plane: &mut Plane) {
        for (at, (values, set)) in self.values.as_chunks::<64>().0.iter().zip(&self.set).enumerate() {
            let last = (set | 1).ilog2();
            plane.place(at / self.columns, at % self.columns, &samples(vectors, values, steps, last));
        }
    }
}

/// One more bit for each of the coefficients, all of which are other than zero.
#[inline(always)]
fn refine(values: &mut [i16; 64], mut which: u64, more: u64, low: u32) {
    if more == 0 {
        return;
    }
    let mut more = more << (64 - which.count_ones());
    while more != 0 {
        let value = &mut values[usize::from(ORDER[which.trailing_zeros() as usize & 63])];
        let sign = (*value >> 15) | 1;
        let bit = i16::from(more >> 63 != 0) << low;
        *value = value.wrapping_add(sign * bit);
        more <<= 1;
        which &= which - 1;
    }
}
