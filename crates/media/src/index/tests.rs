#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::unwrap_used
)]

use std::collections::{BTreeMap, BTreeSet};

use super::*;

/// Deterministic random generator without dependencies.
pub(crate) struct Draw(pub(crate) u64);

impl Draw {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn hash(&mut self) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes.chunks_exact_mut(8).for_each(|chunk| chunk.copy_from_slice(&self.next().to_be_bytes()));
        bytes
    }

    /// Some of its bits turned over.
    fn beside(&mut self, hash: &[u8; 32], bits: u64, of: u64) -> [u8; 32] {
        let mut hash = *hash;
        for _ in 0..bits {
            let bit = self.below(of) as usize;
            hash[bit / 8] ^= 1 << (bit % 8);
        }
        hash
    }
}

/// Distribution of the hashes of a bank.
#[derive(Clone, Copy, Debug)]
enum Lie {
    Random,
    /// Around few of them.
    Clustered,
    /// Like crops of few pictures: near each other in steps, so that pieces repeat.
    Walks,
    /// Equal in the first half of the bits, so that most pieces do not discriminate.
    Alike,
}

fn hashes(draw: &mut Draw, lie: Lie, count: usize, bits: u64) -> Vec<[u8; 32]> {
    let centres: Vec<_> = (0..8).map(|_| draw.hash()).collect();
    let mut walk = draw.hash();
    let mut all = Vec::with_capacity(count);
    for nth in 0..count {
        all.push(match lie {
            Lie::Random => draw.hash(),
            Lie::Clustered => {
                let flips = draw.below(bits / 6);
                draw.beside(&centres[nth % 8], flips, bits)
            }
            Lie::Walks => {
                walk = if nth % 500 == 0 { draw.hash() } else { draw.beside(&walk, 3, bits) };
                walk
            }
            Lie::Alike => {
                let mut hash = draw.hash();
                hash[..(bits / 16) as usize].fill(0x5a);
                hash
            }
        });
    }
    all
}

fn plainly(rows: &BTreeMap<(Vec<u8>, u32), ()>, query: &[u8], radius: u32) -> BTreeSet<(Vec<u8>, u32, u32)> {
    let distance = |hash: &[u8]| hash.iter().zip(query).map(|(a, b)| (a ^ b).count_ones()).sum::<u32>();
    let all = rows.keys().map(|(hash, tag)| (hash.clone(), distance(hash), *tag));
    all.filter(|(_, distance, _)| *distance <= radius).collect()
}

/// Matches of the index; panics if a row is reported twice.
fn told<const W: usize>(
    index: &Index<W>,
    query: &[u8],
    radius: u32,
    way: SearchMode,
    bytes: usize,
) -> BTreeSet<(Vec<u8>, u32, u32)> {
    let mut all = BTreeSet::new();
    index.find_near(&Bits::of(query), radius, way, |bits, distance, tag| {
        assert!(all.insert((bits.bytes()[..bytes].to_vec(), distance, tag)), "a row is told twice");
    });
    all
}

fn compare<const W: usize>(lie: Lie, count: usize, radii: impl Iterator<Item = u32>, queries: usize) {
    let mut draw = Draw(count as u64 * 31 + W as u64);
    let bits = 64 * W as u64;
    let bytes = 8 * W;
    let all = hashes(&mut draw, lie, count, bits);
    let rows: Vec<_> =
        (0..).zip(&all).map(|(tag, hash)| Row { bits: Bits::of(&hash[..bytes]), tag }).collect();
    let plain: BTreeMap<_, _> =
        (0..).zip(&all).map(|(tag, hash)| ((hash[..bytes].to_vec(), tag), ())).collect();
    let index = Index::<W>::build(rows, true);
    assert_eq!(index.len(), count);
    let mut met = 0;
    for radius in radii {
        for nth in 0..queries {
            let query = match all.get(draw.below(count.max(1) as u64) as usize) {
                Some(hash) if nth % 4 > 0 => {
                    let flips = draw.below(u64::from(radius) + 4);
                    draw.beside(hash, flips, bits)
                }
                _ => draw.hash(),
            };
            let query = &query[..bytes];
            let expected = plainly(&plain, query, radius);
            met += expected.len();
            assert_eq!(
                told(&index, query, radius, SearchMode::Index, bytes),
                expected,
                "{lie:?} {count} {radius}"
            );
            assert_eq!(
                told(&index, query, radius, SearchMode::Scan, bytes),
                expected,
                "{lie:?} {count} {radius}"
            );
        }
    }
    assert!(count == 0 || met > 0, "nothing was ever near");
}

#[test]
fn index_finds_the_same_as_a_full_scan() {
    for lie in [Lie::Random, Lie::Clustered, Lie::Walks, Lie::Alike] {
        compare::<4>(lie, 20_500, 0..=31, 2);
        compare::<1>(lie, 20_500, 0..=7, 4);
    }
    for count in [0, 1, 300] {
        compare::<4>(Lie::Random, count, 0..=31, 8);
    }
    compare::<4>(Lie::Random, 100_000, [0, 15, 16, 31].into_iter(), 4);
}

/// Crops of drawn pictures, each hashed, and each a few bits away from itself again and again.
fn crops(draw: &mut Draw, count: usize) -> Vec<[u8; 32]> {
    const SIDE: u64 = 128;
    let mut found = Vec::new();
    for _ in 0..20 {
        let waves: Vec<_> = (0..6)
            .map(|_| {
                [draw.below(40) as f64 / 128.0, draw.below(40) as f64 / 128.0, draw.below(628) as f64 / 100.0]
            })
            .collect();
        let light = |x: u64, y: u64| {
            let sum: f64 = waves.iter().map(|[a, b, c]| (a * x as f64 + b * y as f64 + c).sin()).sum();
            sum.mul_add(20.0, 128.0) as u8
        };
        for _ in 0..10 {
            let (left, top, side) = (draw.below(16), draw.below(16), SIDE - draw.below(24));
            let luma: Vec<u8> = (top..top + side)
                .flat_map(|y| (left..left + side).map(move |x| (x, y)))
                .map(|(x, y)| light(x, y))
                .collect();
            found.push(crate::hashes::pdq::hash(&luma, side as u32, side as u32).unwrap().hash.0);
        }
    }
    (0..count)
        .map(|nth| {
            let flips = draw.below(6);
            draw.beside(&found[nth % found.len()], flips, 256)
        })
        .collect()
}

/// Few queries with all radii: the matches of the largest radius include those of each smaller one.
#[test]
fn large_clustered_banks_are_searched_without_a_miss() {
    const MOST: usize = 100_000;
    let mut draw = Draw(41);
    let banks = [
        ("clusters", hashes(&mut draw, Lie::Clustered, MOST, 256)),
        ("walks", hashes(&mut draw, Lie::Walks, MOST, 256)),
        ("crops", crops(&mut draw, MOST)),
    ];
    for (name, all) in banks {
        let rows: Vec<_> =
            (0..).zip(&all).map(|(tag, hash)| Row { bits: Bits::<4>::of(hash), tag }).collect();
        let index = Index::build(rows.clone(), true);
        let mut met = [0; 32];
        for _ in 0..6 {
            let near = all[draw.below(MOST as u64) as usize];
            let flips = draw.below(20);
            let query = Bits::<4>::of(&draw.beside(&near, flips, 256));
            let mut plain: Vec<_> = rows
                .iter()
                .map(|row| (query.distance_within(&row.bits, 256).unwrap(), row.tag))
                .filter(|(distance, _)| *distance <= 31)
                .collect();
            plain.sort_unstable();
            for radius in 0..=31 {
                let mut found = Vec::new();
                index.find_near(&query, radius, SearchMode::Index, |_, distance, tag| {
                    found.push((distance, tag));
                });
                found.sort_unstable();
                let end = plain.partition_point(|(distance, _)| *distance <= radius);
                assert_eq!(found, plain[..end], "{name}, radius {radius}");
                met[radius as usize] += found.len();
            }
        }
        assert!(met[31] > met[20] && met[20] > 0, "{name}: {met:?}");
        // Worst case: the differing bits are spread evenly over all pieces.
        for (radius, start) in (0..=31).flat_map(|radius| (0..8).map(move |nth| (radius, nth * 32 + radius)))
        {
            let tag = draw.below(MOST as u64) as u32;
            let mut hash = all[tag as usize];
            for nth in 0..radius {
                let bit = ((start + nth * 256 / radius) % 256) as usize;
                hash[bit / 8] ^= 1 << (bit % 8);
            }
            let (query, mut is_found) = (Bits::<4>::of(&hash), false);
            index.find_near(&query, radius, SearchMode::Index, |_, distance, found| {
                is_found |= (distance, found) == (radius, tag);
            });
            assert!(is_found, "{name}, radius {radius}");
        }
    }
}

#[test]
fn equal_hashes_are_one_place_with_all_their_rows() {
    let mut draw = Draw(7);
    let hash = draw.hash();
    for others in [0, 30_000] {
        let mut rows: Vec<_> = (0..5).map(|tag| Row { bits: Bits::<4>::of(&hash), tag }).collect();
        rows.extend((5..5 + others).map(|tag| Row { bits: Bits::of(&draw.hash()), tag }));
        let index = Index::build(rows, true);
        let near = draw.beside(&hash, 3, 256);
        let tags = |query: &[u8], radius| {
            told(&index, query, radius, SearchMode::Index, 32)
                .into_iter()
                .map(|(_, _, tag)| tag)
                .collect::<Vec<_>>()
        };
        assert_eq!(tags(&hash, 0), [0, 1, 2, 3, 4]);
        assert_eq!(tags(&near, 31), [0, 1, 2, 3, 4]);
    }
}

/// Wide bands are used for millions of hashes. Their lists are built in the same way, so a small bank suffices here.
#[test]
fn wide_pieces_find_all_hashes() {
    let mut draw = Draw(23);
    let mut all: Vec<_> =
        hashes(&mut draw, Lie::Walks, 30_000, 256).iter().map(|hash| Bits::<4>::of(hash)).collect();
    all.sort_unstable();
    all.dedup();
    let bands = bands::Bands::with_shape(&all, 11, 20);
    let mut scratch = bands::Scratch::default();
    for nth in 0..300_u32 {
        let radius = nth % 32;
        let near = all[draw.below(all.len() as u64) as usize].bytes();
        let flips = draw.below(u64::from(radius) + 2);
        let query = Bits::<4>::of(&draw.beside(&near, flips, 256));
        let mut hits = Vec::new();
        assert!(bands.search(&all, &query, radius, &mut scratch, &mut hits));
        hits.sort_unstable();
        let scanned: Vec<_> = (0..)
            .zip(&all)
            .filter_map(|(place, hash)| query.distance_within(hash, radius).map(|distance| (place, distance)))
            .collect();
        assert_eq!(hits, scanned, "radius {radius}");
    }
}

#[test]
fn rows_change_as_in_a_plain_map() {
    let mut draw = Draw(99);
    let pool = hashes(&mut draw, Lie::Walks, 30_000, 256);
    // Even tags are one owner's, odd ones the other's; both have half of the hashes.
    let mut plain: BTreeMap<(usize, u32), u32> =
        (0..30_000).map(|nth| ((nth, nth as u32 % 2), nth as u32 % 2)).collect();
    let row = |((hash, _), tag): (&(usize, u32), &u32)| Row { bits: Bits::<4>::of(&pool[*hash]), tag: *tag };
    let mut index = Index::build(plain.iter().map(row).collect(), true);
    for round in 0..40_u32 {
        let owner = round % 2;
        let mut changes = BTreeMap::new();
        for _ in 0..draw.below(900) {
            let hash = draw.below(30_000) as usize;
            changes.insert(hash, (draw.below(3) > 0).then_some(owner + 2 * round));
        }
        for (hash, tag) in &changes {
            match tag {
                Some(tag) => drop(plain.insert((*hash, owner), *tag)),
                None => drop(plain.remove(&(*hash, owner))),
            }
        }
        let changes = changes.into_iter().map(|(hash, tag)| (Bits::of(&pool[hash]), tag)).collect();
        index = index.with_changes(changes, |tag| tag % 2 == owner);
        if round % 13 == 12 {
            index = Index::build(index.rows(), true);
        }
        assert_eq!(index.len(), plain.len());
        let expected: BTreeMap<_, _> =
            plain.iter().map(|((hash, _), tag)| ((pool[*hash].to_vec(), *tag), ())).collect();
        let there: BTreeMap<_, _> =
            index.rows().iter().map(|row| ((row.bits.bytes().to_vec(), row.tag), ())).collect();
        assert!(there == expected, "round {round}");
        for _ in 0..5 {
            let near = pool[draw.below(30_000) as usize];
            let query = draw.beside(&near, 9, 256);
            assert_eq!(told(&index, &query, 31, SearchMode::Index, 32), plainly(&expected, &query, 31));
        }
    }
}
