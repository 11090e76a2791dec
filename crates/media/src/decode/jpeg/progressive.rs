//! Scans of parts of luma's coefficients, which are kept until the last one: bands of them, bits of bands, and whole
//! blocks that come again.

use std::ops::Range;

use super::{
    bits::Bits,
    frame::{Frame, Plane},
    huffman::{A_FILL, END, Table},
    places::list,
    scan::{Band, Scan, WHOLE},
    sequential,
    transform::{ORDER, samples},
    vectors::Vectors,
};

pub(super) struct Coefficients {
    /// The first one of each block, apart, because scans of them have no others.
    firsts: Vec<i16>,
    /// 64 of a block, by their place in it; the first one is not there before all are transformed.
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
            firsts: vec![0; blocks],
            values: vec![0; 64 * blocks],
            set: vec![0; blocks],
            columns: frame.columns,
            rows: frame.rows,
            missing: [None; 64],
        }
    }

    /// How many bytes are allocated.
    pub(super) const fn bytes(blocks: u64) -> u64 {
        blocks * (2 + 64 * 2 + 8)
    }

    /// Nothing if the bits of the band are not the next ones that are to come.
    pub(super) fn begin(&mut self, band: &Band) -> Option<()> {
        if *band == WHOLE {
            self.missing.fill(Some(0));
            return Some(());
        }
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
            _ if scan.band == WHOLE => self.whole(bits, units, scan),
            (0, false) => self.first(bits, units, scan),
            (0, true) => self.refine_first(bits, units, scan),
            (_, false) => self.others(bits, units, &scan.band, scan.others(scan.parts.first()?)?),
            (_, true) => self.refine_others(bits, units, &scan.band, scan.others(scan.parts.first()?)?),
        }?;
        bits.is_used_up().then_some(())
    }

    /// Where a scan has zeros, what an earlier one said stays, as in libjpeg.
    fn whole<'b>(&mut self, mut bits: Bits<'b>, units: Range<usize>, scan: &Scan<'_>) -> Option<Bits<'b>> {
        let mut level = 0;
        bits.fill();
        scan.blocks(units, |part, row, column| {
            let (first, others) = (scan.first(part)?, scan.others(part)?);
            if part.is_luma {
                let mut block = [0; 64];
                sequential::block(&mut bits, first, others, &mut level, &mut block)?;
                if let Some(first) = self.first_of(row, column) {
                    *first = block[0];
                    let at = row * self.columns + column;
                    let (values, set) =
                        (self.values.as_chunks_mut::<64>().0.get_mut(at)?, self.set.get_mut(at)?);
                    for (nth, place) in ORDER.iter().map(|place| usize::from(*place)).enumerate().skip(1) {
                        if block[place] != 0 {
                            values[place] = block[place];
                            *set |= 1 << nth;
                        }
                    }
                }
            } else {
                sequential::pass_over(&mut bits, first, others)?;
            }
            (!bits.has_ended_early()).then_some(())
        })?;
        Some(bits)
    }

    #[inline(always)]
    fn first<'b>(&mut self, mut bits: Bits<'b>, units: Range<usize>, scan: &Scan<'_>) -> Option<Bits<'b>> {
        let mut level = 0;
        bits.fill();
        scan.blocks(
            units,
            #[inline(always)]
            |part, row, column| {
                let (_, value) = scan.first(part)?.fill_and_next(&mut bits)?;
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
        self.firsts.get_mut(row * self.columns + column)
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
        bits.fill();
        while let Some((values, set)) = left.next() {
            let (mut at, mut new) = (band.first, 0);
            'block: loop {
                for code in 0..A_FILL {
                    let (entry, value) = table.one_of_a_fill(code, &mut bits)?;
                    if entry.run() >= END {
                        let size = entry.run() - END;
                        let empty = (1 << size) - 1 + bits.take(size) as usize;
                        if empty > left.len() {
                            return None;
                        }
                        if empty > 0 {
                            left.nth(empty - 1);
                            bits.fill();
                        }
                        break 'block;
                    }
                    at += entry.run();
                    if at > band.last {
                        return None;
                    }
                    values[usize::from(ORDER[at as usize & 63])] = i16::try_from(value << band.low).ok()?;
                    new |= u64::from(value != 0) << at;
                    at += 1;
                    if at > band.last {
                        break 'block;
                    }
                }
            }
            *set |= new;
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
        let mut ended = 0u32;
        // Of this block's coefficients that are zero, and the next one's: made before they are waited for.
        let mut lists = [[0; 64]; 2];
        list(in_band & !*sets.first()?, &mut lists[0]);
        bits.fill();
        for (number, values) in blocks.iter_mut().enumerate() {
            if ended <= 1 {
                list(in_band & !sets.get(number + 1).unwrap_or(&0), &mut lists[(number + 1) % 2]);
            }
            let set = sets.get_mut(number)?;
            let before = *set & in_band;
            // Bits that these get, and how many of them they are.
            let (mut more, mut count) = (0, 0);
            if ended == 0 {
                let (zeros, places) = ((in_band & !before).count_ones(), &lists[number % 2]);
                let mut zero = 0;
                loop {
                    let (entry, value) = table.fill_and_next(&mut bits)?;
                    if entry.run() >= END {
                        let size = entry.run() - END;
                        ended = (1 << size) + bits.take(size);
                        break;
                    }
                    zero += entry.run();
                    if value.abs() > 1 || zero >= zeros {
                        return None;
                    }
                    let at = u32::from(places[zero as usize & 63]);
                    // Those that are passed are the ones before that are not zero.
                    let passed = at - (band.first + zero) - count;
                    more = more << passed | bits.take_many(passed);
                    count += passed;
                    if value != 0 {
                        #[allow(
                            clippy::cast_possible_truncation,
                            reason = "one bit and its sign, moved by 13 at most"
                        )]
                        let value = (value << band.low) as i16;
                        values[usize::from(ORDER[at as usize & 63])] = value;
                        *set |= 1 << at;
                    }
                    if at == band.last {
                        break;
                    }
                    zero += 1;
                }
            }
            let rest = before.count_ones() - count;
            bits.fill();
            more = more << rest | bits.take_many(rest);
            ended = ended.saturating_sub(1);
            refine(values, before, more, band.low);
            if bits.has_ended_early() {
                return None;
            }
        }
        (ended == 0).then_some(bits)
    }

    #[inline(always)]
    pub(super) fn transform(mut self, vectors: Vectors, steps: &[i32; 64], plane: &mut Plane) {
        let blocks = self.values.as_chunks_mut::<64>().0.chunks_mut(self.columns);
        let kept = self.firsts.chunks(self.columns).zip(self.set.chunks(self.columns));
        for (row, (blocks, (firsts, sets))) in blocks.zip(kept).enumerate() {
            for (column, (values, (first, set))) in blocks.iter_mut().zip(firsts.iter().zip(sets)).enumerate()
            {
                values[0] = *first;
                plane.place(row, column, &samples(vectors, values, steps, (set | 1).ilog2()));
            }
        }
    }
}

/// One more bit for each of the coefficients, all of which are other than zero.
#[inline(always)]
fn refine(values: &mut [i16; 64], mut which: u64, more: u64, low: u32) {
    let mut more = more << 1 << (63 - which.count_ones());
    while more != 0 {
        // Beyond the last one, nothing is added to the first coefficient.
        for _ in 0..AT_ONCE {
            let value = &mut values[usize::from(ORDER[which.trailing_zeros() as usize & 63])];
            let sign = (*value >> 15) | 1;
            let bit = i16::from(more >> 63 != 0) << low;
            *value = value.wrapping_add(sign * bit);
            more <<= 1;
            which &= which.wrapping_sub(1);
        }
    }
}

/// So that the number of rounds is foreseen more often.
const AT_ONCE: usize = 4;
