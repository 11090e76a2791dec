//! Finds hashes near a query among many without comparing all: by pieces of the hash that differ in few bits.
//!
//! A hash that differs in at most `radius` bits differs in few bits in some of its pieces: if the sum over all pieces of
//! the bits tried in each, plus one, exceeds the radius, at least one piece is met. So nothing is missed.
//!
//! Look-ups are bound by memory. They go in steps, each over many positions that do not depend on each other, so that the
//! processor waits for all of them at once: the bounds of all lists, the lists, then the hashes.

use rayon::prelude::*;

use super::bits::Bits;

/// Positions of hashes in a sorted list, by each of their pieces.
pub(crate) struct Bands {
    count: u32,
    width: u32,
    bands: Vec<Band>,
    /// Changes that are tried on a piece: none, then one bit, then two.
    masks: Vec<u32>,
}

struct Band {
    start: u32,
    /// Index in `positions` where the list of a piece's value begins, and one more for the end of the last.
    begins: Vec<u32>,
    /// `None` for the first band: hashes are sorted, so its lists are ranges.
    positions: Option<Vec<u32>>,
}

/// Number of positions that are read at once, so that short lists need no loop. The last list may be read beyond its end.
const READ: usize = 4;

/// Number of hashes from which longer lists cost more than more lists.
const MANY: usize = 2_000_000;

/// Buffers that a thread reuses between look-ups, so that they do not allocate.
#[derive(Default)]
pub(crate) struct Scratch {
    ranges: Vec<(u32, u32)>,
    positions: Vec<u32>,
}

/// Position and distance.
pub(crate) type Hit = (u32, u32);

impl Bands {
    /// Builds bands over hashes that are sorted and distinct.
    pub(crate) fn build<const W: usize>(hashes: &[Bits<W>]) -> Self {
        let (count, width) = Self::shape::<W>(hashes.len());
        Self::shaped(hashes, count, width)
    }

    pub(super) fn shaped<const W: usize>(hashes: &[Bits<W>], count: u32, width: u32) -> Self {
        let bands = (0..count).into_par_iter().map(|nth| Band::build(hashes, nth * width, width)).collect();
        Self { count, width, bands, masks: masks(width) }
    }

    fn shape<const W: usize>(hashes: usize) -> (u32, u32) {
        const FEW_BITS: u32 = 16;
        if W < 4 || hashes < MANY {
            return (Bits::<W>::COUNT / FEW_BITS, FEW_BITS);
        }
        let width = hashes.ilog2().clamp(20, 23);
        (Bits::<W>::COUNT / 23, width)
    }

    pub(crate) fn bytes(&self) -> usize {
        let of = |band: &Band| band.begins.len() + band.positions.as_ref().map_or(0, Vec::len);
        4 * self.bands.iter().map(of).sum::<usize>()
    }

    /// Returns the number of masks to try in each band; `None` if so many bits may differ that a scan is cheaper.
    fn effort(&self, radius: u32) -> Option<impl Iterator<Item = usize>> {
        let (bands, width) = (self.count, self.width as usize);
        let (each, more) = ((radius + 1) / bands, (radius + 1) % bands);
        let by_bits = [0, 1, 1 + width, 1 + width + width * (width - 1) / 2];
        let needed = each + u32::from(more > 0);
        ((needed as usize) < by_bits.len())
            .then(|| (0..bands).map(move |nth| by_bits[(each + u32::from(nth < more)) as usize]))
    }

    /// Adds the hits within the radius, each once. Returns false without adding any if a scan is cheaper.
    #[inline(always)]
    pub(crate) fn search<const W: usize>(
        &self,
        hashes: &[Bits<W>],
        query: &Bits<W>,
        radius: u32,
        scratch: &mut Scratch,
        hits: &mut Vec<Hit>,
    ) -> bool {
        let Some(effort) = self.effort(radius) else { return false };
        let efforts: smallvec::SmallVec<[usize; 16]> = effort.collect();
        let Scratch { ranges, positions } = scratch;
        ranges.clear();
        for (band, masks) in self.bands.iter().zip(&efforts) {
            let piece = query.piece(band.start, self.width);
            ranges.extend(self.masks[..*masks].iter().map(|mask| {
                let value = (piece ^ mask) as usize;
                (band.begins[value], band.begins[value + 1])
            }));
        }
        // Reading a hash at a random position costs about as much as three in a row.
        let near: usize = ranges.iter().map(|(begin, end)| (end - begin) as usize).sum();
        if near * 3 > hashes.len() {
            return false;
        }
        let mut ranges = ranges.as_slice();
        for (nth, band) in self.bands.iter().enumerate() {
            let (own, others) = ranges.split_at(efforts[nth]);
            ranges = others;
            let before = hits.len();
            match &band.positions {
                None => {
                    for (begin, end) in own {
                        let (begin, end) = (*begin as usize, *end as usize);
                        for (position, hash) in (begin..end).zip(&hashes[begin..end]) {
                            if let Some(distance) = query.within(hash, radius) {
                                hits.push((u32::try_from(position).unwrap_or(u32::MAX), distance));
                            }
                        }
                    }
                }
                Some(all) => {
                    let count = gather(own, all, positions);
                    for position in &positions[..count] {
                        if let Some(distance) = query.within(&hashes[*position as usize], radius) {
                            hits.push((*position, distance));
                        }
                    }
                }
            }
            self.drop_repeated(nth, &efforts, hashes, query, hits, before);
        }
        true
    }

    /// Drops hits that an earlier band found, too. Hits are few, so this is a separate step.
    fn drop_repeated<const W: usize>(
        &self,
        nth: usize,
        efforts: &[usize],
        hashes: &[Bits<W>],
        query: &Bits<W>,
        hits: &mut Vec<Hit>,
        before: usize,
    ) {
        let mut kept = before;
        for at in before..hits.len() {
            let hit = hits[at];
            if !self.is_found_earlier(nth, efforts, &hashes[hit.0 as usize], query) {
                hits[kept] = hit;
                kept += 1;
            }
        }
        hits.truncate(kept);
    }

    /// True if an earlier band found the hash, too.
    fn is_found_earlier<const W: usize>(
        &self,
        nth: usize,
        efforts: &[usize],
        hash: &Bits<W>,
        query: &Bits<W>,
    ) -> bool {
        let width = self.width as usize;
        self.bands[..nth].iter().zip(efforts).any(|(band, masks)| {
            let differing = hash.piece(band.start, self.width) ^ query.piece(band.start, self.width);
            let tried = match differing.count_ones() {
                0 => 1,
                1 => 1 + width,
                2 => 1 + width + width * (width - 1) / 2,
                _ => usize::MAX,
            };
            tried <= *masks
        })
    }
}

/// Concatenates lists.
#[inline(always)]
fn gather(ranges: &[(u32, u32)], all: &[u32], positions: &mut Vec<u32>) -> usize {
    let most: usize = ranges.iter().map(|(begin, end)| (end - begin) as usize).sum::<usize>() + READ;
    if positions.len() < most {
        positions.resize(most, 0);
    }
    let mut count = 0;
    for (begin, end) in ranges {
        let (begin, end) = (*begin as usize, *end as usize);
        positions[count..count + READ].copy_from_slice(&all[begin..begin + READ]);
        let length = end - begin;
        if length > READ {
            positions[count + READ..count + length].copy_from_slice(&all[begin + READ..end]);
        }
        count += length;
    }
    count
}

impl Band {
    fn build<const W: usize>(hashes: &[Bits<W>], start: u32, width: u32) -> Self {
        let mut begins = vec![0_u32; (1 << width) + 1];
        for hash in hashes {
            begins[hash.piece(start, width) as usize + 1] += 1;
        }
        let mut before = 0;
        for begin in &mut begins {
            before += *begin;
            *begin = before;
        }
        if start == 0 {
            return Self { start, begins, positions: None };
        }
        let mut positions = vec![0; hashes.len() + READ];
        // Each list is filled from its end, so that its end index becomes its begin index.
        for (position, hash) in (0_u32..).zip(hashes) {
            let end = &mut begins[hash.piece(start, width) as usize + 1];
            *end -= 1;
            positions[*end as usize] = position;
        }
        begins.remove(0);
        begins.push(u32::try_from(hashes.len()).unwrap_or(u32::MAX));
        Self { start, begins, positions: Some(positions) }
    }
}

fn masks(width: u32) -> Vec<u32> {
    let one = |bit: u32| 1_u32 << bit;
    let ones = (0..width).map(one);
    let twos = (0..width).flat_map(|high| (0..high).map(move |low| one(high) | one(low)));
    std::iter::once(0).chain(ones).chain(twos).collect()
}
