//! Reads scans with parts of a component's coefficients: bands, bits of bands, and repeated whole blocks. Coefficients are
//! buffered until the last scan.

use std::ops::Range;

use super::{
    bits::Bits,
    frame::{Frame, Plane},
    huffman::{BLOCK_END, CODES_PER_FILL, Table},
    places::list_places,
    scan::{Band, FULL_BAND, Scan},
    sequential::{self, truncate},
    smooth::Guess,
    transform::{ORDER, block_to_samples},
    vectors::Vectors,
};

pub(super) struct Coefficients {
    /// First coefficient (DC) of each block, stored separately because its scans contain no others. Includes blocks below
    /// the picture's edge, which are needed for guesses.
    firsts: Vec<i16>,
    /// 64 coefficients of each block, by place. The first one is inserted before the transform.
    values: Vec<i16>,
    /// Mask of the nonzero coefficients of each block, in the order of a scan.
    nonzero_masks: Vec<u64>,
    frame: Frame,
    has_any: bool,
}

impl Coefficients {
    pub(super) fn new(frame: Frame) -> Self {
        let blocks = frame.columns * frame.rows;
        Self {
            firsts: vec![0; frame.columns * frame.unit_rows * frame.units],
            values: vec![0; 64 * blocks],
            nonzero_masks: vec![0; blocks],
            frame,
            has_any: false,
        }
    }

    /// Returns the number of allocated bytes.
    pub(super) const fn bytes(frame: &Frame) -> u64 {
        (frame.columns * (2 * frame.unit_rows * frame.units + (64 * 2 + 8) * frame.rows)) as u64
    }

    pub(super) fn has_any(&self) -> bool {
        self.has_any
    }

    /// Reads the units between two restarts. If the data is too short, the missing units stay unchanged, and the first
    /// incomplete unit is returned.
    #[inline(always)]
    pub(super) fn read_units(
        &mut self,
        mut bits: Bits<'_>,
        units: Range<usize>,
        scan: &Scan<'_>,
    ) -> Option<usize> {
        self.has_any = true;
        let bits = &mut bits;
        bits.fill();
        let missing_units = match (scan.band.first, scan.band.is_refined) {
            _ if scan.band == FULL_BAND => self.read_whole_blocks(bits, units, scan),
            (0, false) => self.read_first(bits, units, scan),
            (0, true) => self.refine_first(bits, units, scan),
            (_, is_refined) => {
                let table = scan.parts.first().and_then(|part| scan.others_table(part))?;
                return if is_refined {
                    self.refine_others(bits, units, &scan.band, table)
                } else {
                    self.read_others(bits, units, &scan.band, table)
                };
            }
        };
        bits.has_ended_early().then(|| missing_units.start - 1)
    }

    /// Reads a scan of whole blocks. Its zeros do not overwrite earlier values, as in libjpeg.
    fn read_whole_blocks(
        &mut self,
        bits: &mut Bits<'_>,
        units: Range<usize>,
        scan: &Scan<'_>,
    ) -> Range<usize> {
        let mut level = 0;
        scan.for_each_block(bits, units, |bits, part, row, column| {
            let (Some(first), Some(others)) = (scan.first_table(part), scan.others_table(part)) else {
                return;
            };
            if part.is_wanted {
                let mut block = [0; 64];
                sequential::read_block(bits, first, others, &mut level, &mut block);
                if let Some(first) = self.first_coefficient(row, column) {
                    *first = block[0];
                    let at = row * self.frame.columns + column;
                    let values = self.values.as_chunks_mut::<64>().0.get_mut(at);
                    let Some((values, set)) = values.zip(self.nonzero_masks.get_mut(at)) else { return };
                    for (nth, place) in ORDER.iter().map(|place| usize::from(*place)).enumerate().skip(1) {
                        if block[place] != 0 {
                            values[place] = block[place];
                            *set |= 1 << nth;
                        }
                    }
                }
            } else {
                sequential::skip_block(bits, first, others);
            }
        })
    }

    #[inline(always)]
    fn read_first(&mut self, bits: &mut Bits<'_>, units: Range<usize>, scan: &Scan<'_>) -> Range<usize> {
        let mut level = 0i32;
        scan.for_each_block(
            bits,
            units,
            #[inline(always)]
            |bits, part, row, column| {
                let Some(table) = scan.first_table(part) else { return };
                let (_, value) = table.fill_and_next(bits);
                if part.is_wanted {
                    level = level.wrapping_add(value);
                    if let Some(first) = self.first_coefficient(row, column) {
                        *first = truncate(level << scan.band.low);
                    }
                }
            },
        )
    }

    #[inline(always)]
    fn refine_first(&mut self, bits: &mut Bits<'_>, units: Range<usize>, scan: &Scan<'_>) -> Range<usize> {
        scan.for_each_block(
            bits,
            units,
            #[inline(always)]
            |bits, part, row, column| {
                bits.fill();
                #[allow(clippy::cast_possible_truncation, reason = "one bit, moved by 13 at most")]
                let bit = (bits.take(1) << scan.band.low) as i16;
                if part.is_wanted
                    && let Some(first) = self.first_coefficient(row, column)
                {
                    *first |= bit;
                }
            },
        )
    }

    /// Returns the first coefficient of a block; `None` beyond the right edge.
    #[inline(always)]
    fn first_coefficient(&mut self, row: usize, column: usize) -> Option<&mut i16> {
        if column >= self.frame.columns {
            return None;
        }
        self.firsts.get_mut(row * self.frame.columns + column)
    }

    #[inline(always)]
    fn read_others(
        &mut self,
        bits: &mut Bits<'_>,
        units: Range<usize>,
        band: &Band,
        table: &Table,
    ) -> Option<usize> {
        let (blocks, sets) = self.blocks(units.clone())?;
        let mut remaining_blocks = blocks.iter_mut().zip(sets);
        while let Some((values, set)) = remaining_blocks.next() {
            let later_blocks = remaining_blocks.len();
            let (mut at, mut mask) = (band.first, *set);
            'block: loop {
                for code in 0..CODES_PER_FILL {
                    let (entry, value) = table.one_of_a_fill(code, bits);
                    if entry.run() >= BLOCK_END {
                        let size = entry.run() - BLOCK_END;
                        let empty_blocks = (1 << size) - 1 + bits.take(size) as usize;
                        if empty_blocks > 0 {
                            remaining_blocks.nth(empty_blocks - 1);
                            bits.fill();
                        }
                        break 'block;
                    }
                    at += entry.run();
                    // Like libjpeg: a place beyond the band is accepted, a place beyond the block counts as the last one,
                    // and a value that overflows to zero is stored.
                    let place = at.min(63);
                    if value != 0 {
                        let value = truncate(value << band.low);
                        values[usize::from(ORDER[place as usize])] = value;
                        mask = mask & !(1 << place) | u64::from(value != 0) << place;
                    }
                    at += 1;
                    if at > band.last {
                        break 'block;
                    }
                }
            }
            *set = mask;
            if bits.has_ended_early() {
                return Some(units.end - 1 - later_blocks);
            }
        }
        None
    }

    fn blocks(&mut self, units: Range<usize>) -> Option<(&mut [[i16; 64]], &mut [u64])> {
        let blocks = self.values.as_chunks_mut::<64>().0.get_mut(units.clone())?;
        Some((blocks, self.nonzero_masks.get_mut(units)?))
    }

    #[inline(always)]
    fn refine_others(
        &mut self,
        bits: &mut Bits<'_>,
        units: Range<usize>,
        band: &Band,
        table: &Table,
    ) -> Option<usize> {
        let (blocks, sets) = self.blocks(units.clone())?;
        let band_mask = (!0 << band.first) & (!0 >> (63 - band.last));
        // Number of blocks without new coefficients, including the current one.
        let mut ended_blocks = 0u32;
        // Places of the zero coefficients of the current and the next block. Computed one block ahead to hide the latency.
        let mut lists = [[0; 64]; 2];
        list_places(band_mask & !sets.first().unwrap_or(&0), &mut lists[0]);
        for (number, values) in blocks.iter_mut().enumerate() {
            if ended_blocks <= 1 {
                list_places(band_mask & !sets.get(number + 1).unwrap_or(&0), &mut lists[(number + 1) % 2]);
            }
            let set = sets.get_mut(number)?;
            let earlier_mask = *set & band_mask;
            // Correction bits of the nonzero coefficients, the number of these bits, and a value beyond the band.
            let (mut correction_bits, mut count, mut value_beyond) = (0, 0, 0);
            if ended_blocks == 0 {
                let (zeros, places) = ((band_mask & !earlier_mask).count_ones(), &lists[number % 2]);
                let mut zero = 0;
                loop {
                    let (entry, value) = table.fill_and_next(bits);
                    if entry.run() >= BLOCK_END {
                        let size = entry.run() - BLOCK_END;
                        ended_blocks = (1 << size) + bits.take(size);
                        break;
                    }
                    let value = truncate(value << band.low);
                    zero += entry.run();
                    if zero >= zeros {
                        value_beyond = value;
                        break;
                    }
                    let at = u32::from(places[zero as usize & 63]);
                    // Nonzero coefficients before this place: each has a correction bit in the data.
                    let passed_values = at - (band.first + zero) - count;
                    correction_bits = correction_bits << passed_values | bits.take_many(passed_values);
                    count += passed_values;
                    if value != 0 {
                        values[usize::from(ORDER[at as usize & 63])] = value;
                        *set |= 1 << at;
                    }
                    if at == band.last {
                        break;
                    }
                    zero += 1;
                }
            }
            let remaining_values = earlier_mask.count_ones() - count;
            bits.fill();
            correction_bits = correction_bits << remaining_values | bits.take_many(remaining_values);
            ended_blocks = ended_blocks.saturating_sub(1);
            refine(values, earlier_mask, correction_bits, band.low);
            if value_beyond != 0 {
                // Like libjpeg, which stores such a value after the band.
                let at = (band.last + 1).min(63);
                values[usize::from(ORDER[at as usize])] = value_beyond;
                *set |= 1 << at;
            }
            if bits.has_ended_early() {
                return Some(units.start + number);
            }
        }
        None
    }

    #[inline(always)]
    pub(super) fn transform(mut self, vectors: Vectors, steps: &[i16; 64], plane: &mut Plane) {
        let columns = self.frame.columns;
        let blocks = self.values.as_chunks_mut::<64>().0.chunks_mut(columns);
        let masked_firsts = self.firsts.chunks(columns).zip(self.nonzero_masks.chunks(columns));
        for (row, (blocks, (firsts, sets))) in blocks.zip(masked_firsts).enumerate() {
            for (column, (values, (first, set))) in blocks.iter_mut().zip(firsts.iter().zip(sets)).enumerate()
            {
                values[0] = *first;
                plane.place(row, column, &block_to_samples(vectors, values, steps, (set | 1).ilog2()));
            }
        }
    }

    /// Fills in guesses of missing coefficients.
    pub(super) fn fill(&mut self, guess: &Guess, steps: &[i16; 64]) {
        let columns = self.frame.columns;
        let blocks = self.values.as_chunks_mut::<64>().0;
        for (at, (values, set)) in blocks.iter_mut().zip(&mut self.nonzero_masks).enumerate() {
            let (row, column) = (at / columns, at % columns);
            let around = self.frame.rows_around(row).map(|row| {
                let columns_around =
                    [column.saturating_sub(2), column.saturating_sub(1), column, column + 1, column + 2];
                columns_around.map(|column| self.firsts[row * columns + column.min(columns - 1)])
            });
            values[0] = around[2][2];
            guess.fill(values, row / self.frame.unit_rows, &around, steps);
            let places = ORDER.iter().enumerate().skip(1);
            *set = places.fold(0, |set, (nth, at)| set | u64::from(values[usize::from(*at)] != 0) << nth);
        }
        // Written last: the guesses of all blocks depend on the original values.
        for (first, values) in self.firsts.iter_mut().zip(blocks) {
            *first = values[0];
        }
    }
}

/// Adds one bit to each coefficient in `mask`. All of them are nonzero.
#[inline(always)]
fn refine(values: &mut [i16; 64], mut mask: u64, correction_bits: u64, low: u32) {
    let mut shifted_bits = correction_bits << 1 << (63 - mask.count_ones());
    while shifted_bits != 0 {
        // After the last coefficient, the remaining rounds add 0 to the first one.
        for _ in 0..VALUES_PER_ROUND {
            let value = &mut values[usize::from(ORDER[mask.trailing_zeros() as usize & 63])];
            let sign = (*value >> 15) | 1;
            // A bit that is already set was added by an earlier, repeated scan.
            let bit = i16::from(shifted_bits >> 63 != 0) << low & !*value;
            *value = value.wrapping_add(sign * bit);
            shifted_bits <<= 1;
            mask &= mask.wrapping_sub(1);
        }
    }
}

/// Coefficients per round. Fewer rounds mean fewer branch mispredictions.
const VALUES_PER_ROUND: usize = 4;
