//! Scans of parts of a component's coefficients, which are kept until the last one: bands of them, bits of bands, and whole
//! blocks that come again.

use std::ops::Range;

use super::{
    bits::Bits,
    frame::{Frame, Plane},
    huffman::{A_FILL, END, Table},
    places::list,
    scan::{Band, Scan, WHOLE},
    sequential::{self, truncated},
    smooth::Guess,
    transform::{ORDER, samples},
    vectors::Vectors,
};

pub(super) struct Coefficients {
    /// The first one of each block, apart, because scans of them have no others. With those below the picture's edge, by
    /// which others are guessed.
    firsts: Vec<i16>,
    /// 64 of a block, by their place in it; the first one is not there before all are transformed.
    values: Vec<i16>,
    /// Masks of the values that are not zero, by their place in a scan.
    set: Vec<u64>,
    frame: Frame,
    has_any: bool,
}

impl Coefficients {
    pub(super) fn new(frame: Frame) -> Self {
        let blocks = frame.columns * frame.rows;
        Self {
            firsts: vec![0; frame.columns * frame.down * frame.units],
            values: vec![0; 64 * blocks],
            set: vec![0; blocks],
            frame,
            has_any: false,
        }
    }

    /// Returns the number of bytes that are allocated.
    pub(super) const fn bytes(frame: &Frame) -> u64 {
        (frame.columns * (2 * frame.down * frame.units + (64 * 2 + 8) * frame.rows)) as u64
    }

    pub(super) fn has_any(&self) -> bool {
        self.has_any
    }

    /// Units between two restarts. Those that the data is too short for stay as they are; the first of them, of which a
    /// part may have come, is told.
    #[inline(always)]
    pub(super) fn units(
        &mut self,
        mut bits: Bits<'_>,
        units: Range<usize>,
        scan: &Scan<'_>,
    ) -> Option<usize> {
        self.has_any = true;
        let bits = &mut bits;
        bits.fill();
        let missing = match (scan.band.first, scan.band.is_refined) {
            _ if scan.band == WHOLE => self.whole(bits, units, scan),
            (0, false) => self.first(bits, units, scan),
            (0, true) => self.refine_first(bits, units, scan),
            (_, is_refined) => {
                let table = scan.parts.first().and_then(|part| scan.others(part))?;
                return if is_refined {
                    self.refine_others(bits, units, &scan.band, table)
                } else {
                    self.others(bits, units, &scan.band, table)
                };
            }
        };
        bits.has_ended_early().then(|| missing.start - 1)
    }

    /// Reads a scan of whole blocks. Its zeros do not overwrite earlier values, as in libjpeg.
    fn whole(&mut self, bits: &mut Bits<'_>, units: Range<usize>, scan: &Scan<'_>) -> Range<usize> {
        let mut level = 0;
        scan.blocks(bits, units, |bits, part, row, column| {
            let (Some(first), Some(others)) = (scan.first(part), scan.others(part)) else { return };
            if part.is_wanted {
                let mut block = [0; 64];
                sequential::block(bits, first, others, &mut level, &mut block);
                if let Some(first) = self.first_of(row, column) {
                    *first = block[0];
                    let at = row * self.frame.columns + column;
                    let values = self.values.as_chunks_mut::<64>().0.get_mut(at);
                    let Some((values, set)) = values.zip(self.set.get_mut(at)) else { return };
                    for (nth, place) in ORDER.iter().map(|place| usize::from(*place)).enumerate().skip(1) {
                        if block[place] != 0 {
                            values[place] = block[place];
                            *set |= 1 << nth;
                        }
                    }
                }
            } else {
                sequential::pass_over(bits, first, others);
            }
        })
    }

    #[inline(always)]
    fn first(&mut self, bits: &mut Bits<'_>, units: Range<usize>, scan: &Scan<'_>) -> Range<usize> {
        let mut level = 0i32;
        scan.blocks(
            bits,
            units,
            #[inline(always)]
            |bits, part, row, column| {
                let Some(table) = scan.first(part) else { return };
                let (_, value) = table.fill_and_next(bits);
                if part.is_wanted {
                    level = level.wrapping_add(value);
                    if let Some(first) = self.first_of(row, column) {
                        *first = truncated(level << scan.band.low);
                    }
                }
            },
        )
    }

    #[inline(always)]
    fn refine_first(&mut self, bits: &mut Bits<'_>, units: Range<usize>, scan: &Scan<'_>) -> Range<usize> {
        scan.blocks(
            bits,
            units,
            #[inline(always)]
            |bits, part, row, column| {
                bits.fill();
                #[allow(clippy::cast_possible_truncation, reason = "one bit, moved by 13 at most")]
                let bit = (bits.take(1) << scan.band.low) as i16;
                if part.is_wanted
                    && let Some(first) = self.first_of(row, column)
                {
                    *first |= bit;
                }
            },
        )
    }

    /// Blocks beyond the picture's right edge are not kept.
    #[inline(always)]
    fn first_of(&mut self, row: usize, column: usize) -> Option<&mut i16> {
        if column >= self.frame.columns {
            return None;
        }
        self.firsts.get_mut(row * self.frame.columns + column)
    }

    #[inline(always)]
    fn others(
        &mut self,
        bits: &mut Bits<'_>,
        units: Range<usize>,
        band: &Band,
        table: &Table,
    ) -> Option<usize> {
        let (blocks, sets) = self.blocks(units.clone())?;
        let mut left = blocks.iter_mut().zip(sets);
        while let Some((values, set)) = left.next() {
            let after = left.len();
            let (mut at, mut now) = (band.first, *set);
            'block: loop {
                for code in 0..A_FILL {
                    let (entry, value) = table.one_of_a_fill(code, bits);
                    if entry.run() >= END {
                        let size = entry.run() - END;
                        let empty = (1 << size) - 1 + bits.take(size) as usize;
                        if empty > 0 {
                            left.nth(empty - 1);
                            bits.fill();
                        }
                        break 'block;
                    }
                    at += entry.run();
                    // One beyond the band is taken for what it says, and one beyond the last one for that one, as in
                    // libjpeg, which also keeps the zero that is left of a value of too many bits.
                    let place = at.min(63);
                    if value != 0 {
                        let value = truncated(value << band.low);
                        values[usize::from(ORDER[place as usize])] = value;
                        now = now & !(1 << place) | u64::from(value != 0) << place;
                    }
                    at += 1;
                    if at > band.last {
                        break 'block;
                    }
                }
            }
            *set = now;
            if bits.has_ended_early() {
                return Some(units.end - 1 - after);
            }
        }
        None
    }

    fn blocks(&mut self, units: Range<usize>) -> Option<(&mut [[i16; 64]], &mut [u64])> {
        let blocks = self.values.as_chunks_mut::<64>().0.get_mut(units.clone())?;
        Some((blocks, self.set.get_mut(units)?))
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
        let in_band = (!0 << band.first) & (!0 >> (63 - band.last));
        // How many blocks get nothing new, this one included.
        let mut ended = 0u32;
        // Of this block's coefficients that are zero, and the next one's: made before they are waited for.
        let mut lists = [[0; 64]; 2];
        list(in_band & !sets.first().unwrap_or(&0), &mut lists[0]);
        for (number, values) in blocks.iter_mut().enumerate() {
            if ended <= 1 {
                list(in_band & !sets.get(number + 1).unwrap_or(&0), &mut lists[(number + 1) % 2]);
            }
            let set = sets.get_mut(number)?;
            let before = *set & in_band;
            // Bits that these get, and how many of them they are.
            let (mut more, mut count, mut beyond) = (0, 0, 0);
            if ended == 0 {
                let (zeros, places) = ((in_band & !before).count_ones(), &lists[number % 2]);
                let mut zero = 0;
                loop {
                    let (entry, value) = table.fill_and_next(bits);
                    if entry.run() >= END {
                        let size = entry.run() - END;
                        ended = (1 << size) + bits.take(size);
                        break;
                    }
                    let value = truncated(value << band.low);
                    zero += entry.run();
                    if zero >= zeros {
                        beyond = value;
                        break;
                    }
                    let at = u32::from(places[zero as usize & 63]);
                    // Those that are passed are the ones before that are not zero.
                    let passed = at - (band.first + zero) - count;
                    more = more << passed | bits.take_many(passed);
                    count += passed;
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
            let rest = before.count_ones() - count;
            bits.fill();
            more = more << rest | bits.take_many(rest);
            ended = ended.saturating_sub(1);
            refine(values, before, more, band.low);
            if beyond != 0 {
                // As libjpeg does with one for which there is no place.
                let at = (band.last + 1).min(63);
                values[usize::from(ORDER[at as usize])] = beyond;
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
        let kept = self.firsts.chunks(columns).zip(self.set.chunks(columns));
        for (row, (blocks, (firsts, sets))) in blocks.zip(kept).enumerate() {
            for (column, (values, (first, set))) in blocks.iter_mut().zip(firsts.iter().zip(sets)).enumerate()
            {
                values[0] = *first;
                plane.place(row, column, &samples(vectors, values, steps, (set | 1).ilog2()));
            }
        }
    }

    /// Puts in what is guessed of coefficients that did not come.
    pub(super) fn fill(&mut self, guess: &Guess, steps: &[i16; 64]) {
        let columns = self.frame.columns;
        let blocks = self.values.as_chunks_mut::<64>().0;
        for (at, (values, set)) in blocks.iter_mut().zip(&mut self.set).enumerate() {
            let (row, column) = (at / columns, at % columns);
            let around = self.frame.rows_around(row).map(|row| {
                let beside =
                    [column.saturating_sub(2), column.saturating_sub(1), column, column + 1, column + 2];
                beside.map(|column| self.firsts[row * columns + column.min(columns - 1)])
            });
            values[0] = around[2][2];
            guess.fill(values, row / self.frame.down, &around, steps);
            let places = ORDER.iter().enumerate().skip(1);
            *set = places.fold(0, |set, (nth, at)| set | u64::from(values[usize::from(*at)] != 0) << nth);
        }
        // Others were guessed by what they were.
        for (first, values) in self.firsts.iter_mut().zip(blocks) {
            *first = values[0];
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
            // Where it is set already, it was said before.
            let bit = i16::from(more >> 63 != 0) << low & !*value;
            *value = value.wrapping_add(sign * bit);
            more <<= 1;
            which &= which.wrapping_sub(1);
        }
    }
}

/// Bits handled per round, so that the number of rounds is predicted more often.
const AT_ONCE: usize = 4;
