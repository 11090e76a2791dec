//! Finds hashes near a query without comparing all: by pieces of the hash that differ in few bits (multi-index hashing).
//!
//! A hash within `radius` bits of the query has at least one piece that differs in few bits (pigeonhole principle). If b
//! bits are tried in a piece, and the sum of b + 1 over all pieces exceeds the radius, the search finds every such hash.
//!
//! Look-ups are bound by memory latency. Each step reads many independent positions, so that the processor overlaps their
//! cache misses: first the bounds of all lists, then the lists, then the hashes.

use rayon::prelude::*;

use super::bits::Bits;

/// Positions of hashes in a sorted list, indexed by each piece of the hash.
pub(crate) struct Bands {
    count: u32,
    width: u32,
    bands: Vec<Band>,
    /// Bits to flip in a piece, in the order of trial: none, then one, then two.
    masks: Vec<u32>,
}

struct Band {
    start: u32,
    /// Start of the list of each piece value in `positions`, and one more element for the end of the last list.
    begins: Vec<u32>,
    /// `None` for the first band: the hashes are sorted by it, so its lists are ranges.
    positions: Option<Vec<u32>>,
}

/// Positions copied in one step, so that short lists need no loop. The copy may read beyond the last list, so the buffers
/// have this many spare elements.
const READ_AHEAD: usize = 4;

/// Table size from which wider pieces pay off: their lists are shorter, at the price of more lists to read.
const LARGE_TABLE: usize = 2_000_000;

/// Buffers of a thread, reused by its look-ups to avoid allocation.
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
        let (count, width) = Self::choose_shape::<W>(hashes.len());
        Self::with_shape(hashes, count, width)
    }

    pub(super) fn with_shape<const W: usize>(hashes: &[Bits<W>], count: u32, width: u32) -> Self {
        let bands = (0..count).into_par_iter().map(|nth| Band::build(hashes, nth * width, width)).collect();
        Self { count, width, bands, masks: masks_of_two_bits(width) }
    }

    fn choose_shape<const W: usize>(hashes: usize) -> (u32, u32) {
        const FEW_BITS: u32 = 16;
        if W < 4 || hashes < LARGE_TABLE {
            return (Bits::<W>::COUNT / FEW_BITS, FEW_BITS);
        }
        let width = hashes.ilog2().clamp(20, 23);
        (Bits::<W>::COUNT / 23, width)
    }

    pub(crate) fn bytes(&self) -> usize {
        let band_length = |band: &Band| band.begins.len() + band.positions.as_ref().map_or(0, Vec::len);
        4 * self.bands.iter().map(band_length).sum::<usize>()
    }

    /// Returns the number of masks to try in each band. `None` if the radius requires more than two bits in a band; a scan
    /// is cheaper then.
    fn masks_per_band(&self, radius: u32) -> Option<impl Iterator<Item = usize>> {
        let (bands, width) = (self.count, self.width as usize);
        // A level is the number of bits tried in a band, plus one. The levels must sum up to the radius plus one.
        let (base_level, remainder) = ((radius + 1) / bands, (radius + 1) % bands);
        let masks_by_level = [0, 1, 1 + width, 1 + width + width * (width - 1) / 2];
        let max_level = base_level + u32::from(remainder > 0);
        ((max_level as usize) < masks_by_level.len()).then(|| {
            (0..bands).map(move |nth| masks_by_level[(base_level + u32::from(nth < remainder)) as usize])
        })
    }

    /// Adds every hit within the radius once. Returns false and adds no hit if a scan is cheaper.
    #[inline(always)]
    pub(crate) fn search<const W: usize>(
        &self,
        hashes: &[Bits<W>],
        query: &Bits<W>,
        radius: u32,
        scratch: &mut Scratch,
        hits: &mut Vec<Hit>,
    ) -> bool {
        let Some(masks_per_band) = self.masks_per_band(radius) else { return false };
        let mask_counts: smallvec::SmallVec<[usize; 16]> = masks_per_band.collect();
        let Scratch { ranges, positions } = scratch;
        ranges.clear();
        for (band, mask_count) in self.bands.iter().zip(&mask_counts) {
            let piece = query.piece(band.start, self.width);
            ranges.extend(self.masks[..*mask_count].iter().map(|mask| {
                let value = (piece ^ mask) as usize;
                (band.begins[value], band.begins[value + 1])
            }));
        }
        // A read at a random position costs about as much as three sequential reads.
        let candidate_count: usize = ranges.iter().map(|(begin, end)| (end - begin) as usize).sum();
        if candidate_count * 3 > hashes.len() {
            return false;
        }
        let mut ranges = ranges.as_slice();
        for (nth, band) in self.bands.iter().enumerate() {
            let (band_ranges, later_ranges) = ranges.split_at(mask_counts[nth]);
            ranges = later_ranges;
            let first_hit = hits.len();
            match &band.positions {
                None => {
                    for (begin, end) in band_ranges {
                        let (begin, end) = (*begin as usize, *end as usize);
                        for (position, hash) in (begin..end).zip(&hashes[begin..end]) {
                            if let Some(distance) = query.distance_within(hash, radius) {
                                hits.push((u32::try_from(position).unwrap_or(u32::MAX), distance));
                            }
                        }
                    }
                }
                Some(band_positions) => {
                    let count = gather_positions(band_ranges, band_positions, positions);
                    for position in &positions[..count] {
                        if let Some(distance) = query.distance_within(&hashes[*position as usize], radius) {
                            hits.push((*position, distance));
                        }
                    }
                }
            }
            self.drop_repeated(nth, &mask_counts, hashes, query, hits, first_hit);
        }
        true
    }

    /// Drops hits that an earlier band also found. Hits are rare, so a check after each band is cheaper than one per
    /// candidate.
    fn drop_repeated<const W: usize>(
        &self,
        nth: usize,
        mask_counts: &[usize],
        hashes: &[Bits<W>],
        query: &Bits<W>,
        hits: &mut Vec<Hit>,
        first_hit: usize,
    ) {
        let mut kept_end = first_hit;
        for index in first_hit..hits.len() {
            let hit = hits[index];
            if !self.is_found_earlier(nth, mask_counts, &hashes[hit.0 as usize], query) {
                hits[kept_end] = hit;
                kept_end += 1;
            }
        }
        hits.truncate(kept_end);
    }

    /// True if an earlier band also found the hash.
    fn is_found_earlier<const W: usize>(
        &self,
        nth: usize,
        mask_counts: &[usize],
        hash: &Bits<W>,
        query: &Bits<W>,
    ) -> bool {
        let width = self.width as usize;
        self.bands[..nth].iter().zip(mask_counts).any(|(band, mask_count)| {
            let difference = hash.piece(band.start, self.width) ^ query.piece(band.start, self.width);
            // Masks are ordered by their number of bits, so a difference was tried if its count of bits was reached.
            let needed_masks = match difference.count_ones() {
                0 => 1,
                1 => 1 + width,
                2 => 1 + width + width * (width - 1) / 2,
                _ => usize::MAX,
            };
            needed_masks <= *mask_count
        })
    }
}

/// Concatenates the lists of `ranges` in `positions` and returns their total length.
#[inline(always)]
fn gather_positions(ranges: &[(u32, u32)], band_positions: &[u32], positions: &mut Vec<u32>) -> usize {
    let max_count: usize =
        ranges.iter().map(|(begin, end)| (end - begin) as usize).sum::<usize>() + READ_AHEAD;
    if positions.len() < max_count {
        positions.resize(max_count, 0);
    }
    let mut count = 0;
    for (begin, end) in ranges {
        let (begin, end) = (*begin as usize, *end as usize);
        positions[count..count + READ_AHEAD].copy_from_slice(&band_positions[begin..begin + READ_AHEAD]);
        let length = end - begin;
        // Most lists are short, so this branch is rarely taken.
        if length > READ_AHEAD {
            positions[count + READ_AHEAD..count + length]
                .copy_from_slice(&band_positions[begin + READ_AHEAD..end]);
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
        let mut list_end = 0;
        for begin in &mut begins {
            list_end += *begin;
            *begin = list_end;
        }
        if start == 0 {
            return Self { start, begins, positions: None };
        }
        let mut positions = vec![0; hashes.len() + READ_AHEAD];
        // Each list is filled from its end, so that its end index turns into its start index.
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

fn masks_of_two_bits(width: u32) -> Vec<u32> {
    let single_bit = |bit: u32| 1_u32 << bit;
    let one_bit_masks = (0..width).map(single_bit);
    let two_bit_masks =
        (0..width).flat_map(|high| (0..high).map(move |low| single_bit(high) | single_bit(low)));
    std::iter::once(0).chain(one_bit_masks).chain(two_bit_masks).collect()
}
