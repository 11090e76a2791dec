//! Compares the decoder with itself and with zune-jpeg, sample by sample: for encoded pictures, for coefficients in unusual
//! scans, and for broken files, which must decode as in libjpeg.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

mod viewers;
mod writer;

use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
use tidegate_test_support::garbled::garbled;
use zune_core::{bytestream::ZCursor, colorspace::ColorSpace, options::DecoderOptions};
use zune_jpeg::JpegDecoder;

use self::writer::{Component, Picture, Scan};
use super::{
    decode_by_zune, decoder, header,
    pictures::{self, Draw},
    scans,
    transform::ORDER,
};
use crate::MemoryBudget;

const ALL: u64 = 1 << 30;

fn ours(bytes: &[u8]) -> Option<Vec<u8>> {
    let header = header::read(bytes).ok().filter(|header| header.is_plain)?;
    Some(decoder::decode(bytes, &header, &MemoryBudget::new(ALL)).ok()?.0.samples)
}

fn zune(bytes: &[u8]) -> Option<Vec<u8>> {
    by_zune(bytes, DecoderOptions::default())
}

fn by_zune(bytes: &[u8], options: DecoderOptions) -> Option<Vec<u8>> {
    let options = options.jpeg_set_out_colorspace(ColorSpace::Luma);
    JpegDecoder::new_with_options(ZCursor::new(bytes), options).decode().ok()
}

fn encoded(
    picture: &pictures::Picture,
    quality: u8,
    colours: ColorType,
    change: impl FnOnce(&mut Encoder<&mut Vec<u8>>),
) -> Vec<u8> {
    let step = if colours == ColorType::Luma { 3 } else { 1 };
    let samples: Vec<u8> = picture.rgb.iter().copied().step_by(step).collect();
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, quality);
    change(&mut encoder);
    encoder.encode(&samples, picture.width as u16, picture.height as u16, colours).unwrap();
    bytes
}

#[test]
fn pictures_have_nearly_the_samples_that_zune_jpeg_gives() {
    use SamplingFactor::{F_1_1, F_1_2, F_2_1, F_2_2};
    let mut draw = Draw::new(3);
    for case in 0..300 {
        let family = case % pictures::FAMILIES;
        let (width, height) = match draw.below(4) {
            0 => (200 + draw.below(100), 150 + draw.below(100)),
            _ => (1 + draw.below(70), 1 + draw.below(70)),
        };
        let mut picture = pictures::sized(family, case, width, height);
        if draw.below(3) == 0 {
            picture.rgb.fill_with(|| draw.bits() as u8);
        }
        let quality = 1 + draw.below(100) as u8;
        let sampling = [F_1_1, F_2_1, F_1_2, F_2_2][draw.below(4) as usize];
        let progressive = draw.below(2) == 0;
        let colours = if draw.below(5) == 0 { ColorType::Luma } else { ColorType::Rgb };
        let restart = [0, 0, 1, 3, 40][draw.below(5) as usize];
        // The encoder ignores restarts when it optimises codes.
        let optimised = restart == 0 && draw.below(2) == 0;
        let plain = encoded(&picture, quality, colours, |encoder| encoder.set_sampling_factor(sampling));
        let (expected, near) = (ours(&plain).unwrap(), zune(&plain).unwrap());
        let file = encoded(&picture, quality, colours, |encoder| {
            encoder.set_sampling_factor(sampling);
            encoder.set_progressive(progressive);
            encoder.set_restart_interval(restart);
            encoder.set_optimized_huffman_tables(optimised);
        });
        let name = format!("{case}: {width} x {height}, {quality}, {sampling:?}, {progressive}, {restart}");
        assert!(most_apart(&expected, &near) <= 1, "{name}, plain");
        assert!(ours(&file).is_some_and(|ours| ours == expected), "{name}");
        // zune-jpeg is wrong for vertical subsampling alone, and panics on rare scans.
        if header::read(&file).unwrap().is_common {
            assert!(zune(&file).is_some_and(|theirs| theirs == near), "{name}, by zune-jpeg");
        }
    }
}

/// zune-jpeg rounds its factors to one bit less.
fn most_apart(ours: &[u8], theirs: &[u8]) -> u8 {
    assert_eq!(ours.len(), theirs.len());
    ours.iter().zip(theirs).map(|(ours, theirs)| ours.abs_diff(*theirs)).max().unwrap_or(0)
}

/// Their hashes are compared by the tests of `tidegate-media`.
#[test]
fn pictures_of_rare_samplings_need_no_second_decoder() {
    use SamplingFactor::{F_1_2, F_1_4, F_4_1, F_4_2};
    for family in 0..pictures::FAMILIES {
        let picture = pictures::sized(family, family, 413, 299);
        for sampling in [F_4_1, F_1_4, F_4_2, F_1_2] {
            for progressive in [false, true] {
                let file = encoded(&picture, 90, ColorType::Rgb, |encoder| {
                    encoder.set_sampling_factor(sampling);
                    encoder.set_progressive(progressive);
                });
                assert!(ours(&file).is_some(), "{family}, {sampling:?}, {progressive}");
            }
        }
    }
}

/// As drawn coefficients as a file can have, most of them zero.
fn drawn(draw: &mut Draw, samplings: &[(usize, usize)]) -> Picture {
    let (width, height) = (1 + draw.below(70) as usize, 1 + draw.below(70) as usize);
    let across = samplings.iter().map(|(across, _)| *across).max().unwrap();
    let down = samplings.iter().map(|(_, down)| *down).max().unwrap();
    let units = width.div_ceil(8 * across) * height.div_ceil(8 * down);
    let density = [1, 3, 8, 30, 64][draw.below(5) as usize];
    let mut block = || {
        let mut block = [0; 64];
        if draw.below(6) > 0 {
            for (at, value) in block.iter_mut().enumerate() {
                let is_set = draw.below(64) < density;
                let size = draw.below(if at < 10 { 10 } else { 6 });
                let value_of = (draw.below(2 << size) as i16) - (1 << size);
                *value = if is_set { value_of } else { 0 };
            }
        }
        block[0] = draw.below(2047) as i16 - 1023;
        block
    };
    let components = samplings.iter().map(|(across, down)| Component {
        across: *across,
        down: *down,
        blocks: (0..units * across * down).map(|_| block()).collect(),
    });
    let components: Vec<_> = components.collect();
    let most = [2, 20, 255, 999][draw.below(4) as usize];
    let most_within = (2_900 / most_in_a_column(&components)).max(1);
    let steps = std::array::from_fn(|_| (1 + draw.below(most) as u16).min(most_within));
    Picture { width, height, components, steps }
}

/// Sums of up to 2,900 keep within 16 bits, beyond which zune-jpeg shows something else.
fn most_in_a_column(components: &[Component]) -> u16 {
    let columns = components.iter().flat_map(|component| &component.blocks).flat_map(|block| {
        let mut sums = [1; 8];
        for (place, value) in ORDER.iter().zip(block) {
            sums[usize::from(place % 8)] += value.unsigned_abs();
        }
        sums
    });
    columns.max().unwrap_or(1)
}

/// The same luma in one scan, which zune-jpeg reads nearly alike: the other components and the scans do not matter.
fn expected(picture: &Picture, draw: &mut Draw) -> Vec<u8> {
    let luma = &picture.components[0];
    let stride = picture.width.div_ceil(8 * luma.across) * luma.across;
    let (columns, rows) = (picture.width.div_ceil(8), picture.height.div_ceil(8));
    let block = |at: usize| luma.blocks[at / columns * stride + at % columns];
    let alone = Component { across: 1, down: 1, blocks: (0..columns * rows).map(block).collect() };
    let Picture { width, height, steps, .. } = *picture;
    let gray = Picture { width, height, components: vec![alone], steps };
    let file = gray.write(0xc1, &[scan(&[0], (0, 63), 0, 0)], 0, draw);
    let shown = ours(&file).unwrap();
    assert!(most_apart(&shown, &zune(&file).unwrap()) <= 1);
    shown
}

fn scan(components: &[usize], band: (usize, usize), high: u8, low: u8) -> Scan {
    Scan { components: components.to_vec(), band, high, low }
}

/// First coefficients, bands of the others, and their lower bits afterwards.
fn progression(draw: &mut Draw, components: usize) -> Vec<Scan> {
    let all: Vec<usize> = (0..components).collect();
    let low = draw.below(4) as u8;
    let mut scans = match draw.below(2) {
        0 => vec![scan(&all, (0, 0), 0, low)],
        _ => all.iter().rev().map(|at| scan(&[*at], (0, 0), 0, low)).collect(),
    };
    scans.extend((0..low).rev().map(|low| scan(&all, (0, 0), low + 1, low)));
    for component in all.iter().rev() {
        let split = 1 + draw.below(62) as usize;
        let bands = if draw.below(3) == 0 { vec![(1, 63)] } else { vec![(1, split), (split + 1, 63)] };
        for band in bands {
            let low = draw.below(5) as u8;
            scans.push(scan(&[*component], band, 0, low));
            scans.extend((0..low).rev().map(|low| scan(&[*component], band, low + 1, low)));
        }
    }
    scans
}

const SAMPLINGS: [&[(usize, usize)]; 8] = [
    &[(1, 1)],
    &[(2, 2)],
    &[(1, 1), (1, 1), (1, 1)],
    &[(2, 2), (1, 1), (1, 1)],
    &[(2, 1), (1, 1), (2, 1)],
    &[(1, 2), (1, 1), (1, 1)],
    &[(4, 1), (1, 1), (2, 1)],
    &[(4, 2), (2, 1), (1, 2)],
];

#[test]
fn luma_does_not_depend_on_scans_and_sampling() {
    let mut draw = Draw::new(9);
    for case in 0..600 {
        let samplings = SAMPLINGS[draw.below(8) as usize];
        let picture = drawn(&mut draw, samplings);
        let expected = expected(&picture, &mut draw);
        let restart = [0, 0, 1, 2, 5, 200][draw.below(6) as usize];
        let all: Vec<usize> = (0..samplings.len()).collect();
        let (marker, scans) = match draw.below(4) {
            0 => (0xc0, vec![scan(&all, (0, 63), 0, 0)]),
            1 => (0xc1, all.iter().rev().map(|at| scan(&[*at], (0, 63), 0, 0)).collect()),
            _ => (0xc2, progression(&mut draw, samplings.len())),
        };
        let file = picture.write(marker, &scans, restart, &mut draw);
        let name = format!("{case}: {} x {}, {samplings:?}, {scans:?}", picture.width, picture.height);
        assert!(ours(&file).is_some_and(|ours| ours == expected), "{name}");
        let is_common = header::read(&file).unwrap().is_common;
        if is_common && samplings.len() > 1 {
            let theirs = zune(&file).unwrap();
            assert!(most_apart(&expected, &theirs) <= 1, "{name}: the writer is wrong");
        }
    }
}

/// A file of every way through the decoder.
fn one_of_each() -> Vec<Vec<u8>> {
    let picture = pictures::sized(3, 9, 60, 40);
    let mut draw = Draw::new(5);
    let mut files = Vec::new();
    for (progressive, restart) in [(false, 0), (true, 0), (false, 3)] {
        files.push(encoded(&picture, 85, ColorType::Rgb, |encoder| {
            encoder.set_progressive(progressive);
            encoder.set_restart_interval(restart);
        }));
    }
    for restart in [0, 2] {
        let drawn = drawn(&mut draw, SAMPLINGS[3]);
        let scans = progression(&mut draw, 3);
        files.push(drawn.write(0xc2, &scans, restart, &mut draw));
        let scans: Vec<_> = [0, 1, 2].iter().map(|at| scan(&[*at], (0, 63), 0, 0)).collect();
        files.push(drawn.write(0xc1, &scans, restart, &mut draw));
    }
    files
}

/// As in libjpeg: missing bits of a block are zeros, and missing blocks are gray.
#[test]
fn truncated_file_is_gray_after_its_end() {
    let mut draw = Draw::new(17);
    for case in 0..12 {
        let picture = drawn(&mut draw, SAMPLINGS[0]);
        let file = picture.write(0xc0, &[scan(&[0], (0, 63), 0, 0)], [0, 3][case % 2], &mut draw);
        let whole = ours(&file).unwrap();
        let begin = first_scan(&file).1;
        for end in (begin..file.len() - 2).step_by(5) {
            for cut in
                [&file[..end], &[&file[..end], b"\xff\xd9"].concat(), &[&file[..end], b"\xff"].concat()]
            {
                let shown = blocks(&ours(cut).unwrap(), picture.width);
                let same =
                    shown.iter().zip(blocks(&whole, picture.width)).take_while(|(one, two)| *one == two);
                let same = same.count();
                assert!(shown[shown.len().min(same + 1)..].iter().flatten().all(|sample| *sample == 128));
            }
        }
    }
    for file in one_of_each() {
        let first = (0..file.len()).find(|end| ours(&file[..*end]).is_some()).unwrap();
        assert!((first..file.len()).step_by(7).all(|end| ours(&file[..end]).is_some()));
        assert_eq!(ours(&file[..file.len() - 2]), ours(&file));
    }
}

/// The samples of each block.
fn blocks(samples: &[u8], width: usize) -> Vec<Vec<u8>> {
    let rows: Vec<_> = samples.chunks(8 * width).collect();
    let columns = |rows: &&[u8]| -> Vec<Vec<u8>> {
        let block =
            |at: usize| rows.chunks(width).flat_map(|row| &row[at..width.min(at + 8)]).copied().collect();
        (0..width).step_by(8).map(block).collect()
    };
    rows.iter().flat_map(columns).collect()
}

/// The output of libjpeg-turbo was recorded once. The 1,931 files that Pillow decodes with version 3 are bit-identical,
/// except for gray files without luma data.
#[test]
fn broken_files_decode_as_in_libjpeg() {
    let seeds = broken_seeds();
    let seeds: Vec<&[u8]> = seeds.iter().map(Vec::as_slice).collect();
    let pieces: &[&[u8]] = &[
        b"\xff\xd9",
        b"\xff\xda",
        b"\xff\xd0",
        b"\xff\0",
        b"\xff\xff",
        b"\xff\xc2",
        b"\0",
        b"\x7f\xff",
        b"\xff\x02",
        b"\xff\xd5",
    ];
    let (mut shown, mut told) = (0, 0xcbf2_9ce4_8422_2325);
    for samples in (0..3_000).filter_map(|number| ours(&garbled(number, &seeds, pieces))) {
        shown += 1;
        told = samples
            .iter()
            .fold(told, |told: u64, sample| (told ^ u64::from(*sample)).wrapping_mul(0x100_0000_01b3));
    }
    assert_eq!((shown, told), (2_329, 12_972_224_911_190_076_165));
}

fn broken_seeds() -> Vec<Vec<u8>> {
    let mut draw = Draw::new(18);
    let mut files = Vec::new();
    for restart in [0, 2, 5] {
        for samplings in [SAMPLINGS[0], SAMPLINGS[3]] {
            let mut picture = drawn(&mut draw, samplings);
            (picture.width, picture.height) = (72, 56);
            let count = picture.components[0].blocks.len();
            for component in &mut picture.components {
                let blocks = 9 * 7 * 4 + 64;
                component.blocks = component.blocks.iter().copied().cycle().take(blocks.max(count)).collect();
            }
            picture.steps = std::array::from_fn(|at| 2 + at as u16 / 8);
            let all: Vec<usize> = (0..samplings.len()).collect();
            let each: Vec<_> = all.iter().map(|at| scan(&[*at], (0, 63), 0, 0)).collect();
            files.push(picture.write(0xc0, &[scan(&all, (0, 63), 0, 0)], restart, &mut draw));
            files.push(picture.write(0xc1, &each, restart, &mut draw));
            let scans = progression(&mut draw, samplings.len());
            files.push(picture.write(0xc2, &scans, restart, &mut draw));
        }
    }
    files
}

/// The place after the data of a file's last scan.
fn end_of_data(file: &[u8]) -> usize {
    file.windows(2).rposition(|pair| pair == [0xff, 0xd9]).unwrap()
}

/// Where a file's first scan begins, and where its data does.
fn first_scan(file: &[u8]) -> (usize, usize) {
    let mut at = 2;
    loop {
        let end = at + 2 + usize::from(u16::from_be_bytes([file[at + 2], file[at + 3]]));
        if file[at + 1] == 0xda {
            return (at, end);
        }
        at = end;
    }
}

/// The places of a file's restarts.
fn restarts(file: &[u8]) -> Vec<usize> {
    let is_restart = |at: &usize| file[*at] == 0xff && (0xd0..=0xd7).contains(&file[at + 1]);
    (first_scan(file).1..file.len() - 1).filter(is_restart).collect()
}

/// One restart after each block.
fn restarting(draw: &mut Draw, marker: u8) -> Vec<u8> {
    let mut picture = drawn(draw, SAMPLINGS[0]);
    (picture.width, picture.height) = (40, 48);
    picture.components[0].blocks = picture.components[0].blocks.iter().copied().cycle().take(30).collect();
    let scans = match marker {
        0xc2 => vec![scan(&[0], (0, 0), 0, 0), scan(&[0], (1, 63), 0, 0)],
        _ => vec![scan(&[0], (0, 63), 0, 0)],
    };
    picture.write(marker, &scans, 1, draw)
}

#[test]
fn restarts_are_found_by_their_number() {
    let mut draw = Draw::new(11);
    for case in 0..40 {
        let file = restarting(&mut draw, [0xc0, 0xc2][case % 2]);
        let whole = blocks(&ours(&file).unwrap(), 40);
        let unlike = |changed: &[u8]| {
            let shown = blocks(&ours(changed).unwrap(), 40);
            (0..whole.len()).filter(|at| shown[*at] != whole[*at]).collect::<Vec<_>>()
        };
        let end = end_of_data(&file);
        assert_eq!(unlike(&[&file[..end], &[0, 0], &file[end..]].concat()), [0; 0]);
        let found = restarts(&file);
        for nth in [0, 5, 14, 20] {
            let at = found[nth];
            let with = |with: &[u8], skipped: usize| [&file[..at], with, &file[at + skipped..]].concat();
            let number = file[at + 1] - 0xd0;
            let other = |by: u8| [0xff, 0xd0 + (number + by) % 8];
            // An inserted marker loses no data.
            for marker in [
                &b"\xff\x02"[..],
                b"\xff\x02\x09\x09\xff\xbf",
                b"\xff\xff",
                b"\x55\x55",
                &other(7),
                &other(6),
            ] {
                assert_eq!(unlike(&with(marker, 0)), [0; 0], "{case}: {nth}, {marker:x?}");
            }
            // A lost restart loses the data after it, which may be read as the next interval.
            let lost = unlike(&with(&[], 2));
            assert!(lost.iter().all(|at| *at == nth + 1), "{case}: {nth}, {lost:?}");
            assert!(unlike(&with(&other(4), 2)).is_empty());
            for by in [1, 2, 6, 7] {
                let lost = unlike(&with(&other(by), 2));
                assert!(
                    lost.iter().all(|at| (nth + 1..=nth + 3).contains(at)),
                    "{case}: {nth}, {by}, {lost:?}"
                );
            }
            // With any other marker the scan is over; with the picture's end, all of it is.
            let lost = unlike(&with(b"\xff\xfe\0\x04ab", 0));
            assert!(lost.iter().all(|at| *at > nth), "{case}: {nth}, {lost:?}");
            assert_eq!(ours(&with(b"\xff\xd9", 0)), ours(&file[..at]), "{case}: {nth}");
        }
    }
}

#[test]
fn fill_bytes_before_a_stuffed_byte_are_skipped() {
    let mut draw = Draw::new(19);
    let mut filled = 0;
    for case in 0..20 {
        let file = restarting(&mut draw, [0xc0, 0xc2][case % 2]);
        let begin = first_scan(&file).1;
        for at in (begin..file.len() - 1).filter(|at| file[*at..].starts_with(&[0xff, 0])) {
            assert_eq!(ours(&[&file[..at], b"\xff\xff", &file[at..]].concat()), ours(&file));
            filled += 1;
        }
    }
    assert!(filled > 10, "{filled}");
}

/// The encoder writes standard codes by default.
#[test]
fn file_without_codes_uses_the_standard_ones() {
    let file = encoded(&pictures::sized(3, 9, 60, 40), 85, ColorType::Rgb, |_| {});
    let (scan, mut at) = (first_scan(&file).0, 2);
    let mut without = file[..2].to_vec();
    while at < scan {
        let end = at + 2 + usize::from(u16::from_be_bytes([file[at + 2], file[at + 3]]));
        if file[at + 1] != 0xc4 {
            without.extend(&file[at..end]);
        }
        at = end;
    }
    without.extend(&file[scan..]);
    assert!(without.len() + 400 < file.len());
    let beside = [&file[..scan], &segment(0xcc, &[0, 16]), &file[scan..]].concat();
    let whole = ours(&file).unwrap();
    assert!(ours(&without).is_some_and(|ours| ours == whole));
    assert!(ours(&beside).is_some_and(|ours| ours == whole));
}

#[test]
fn many_coefficients_in_a_row_get_their_next_bit() {
    let mut draw = Draw::new(13);
    for last in [2, 1] {
        let mut picture = drawn(&mut draw, SAMPLINGS[0]);
        for block in &mut picture.components[0].blocks {
            block.fill_with(|| [2, 3, -2, -3][draw.below(4) as usize]);
            (block[40], block[63]) = (last, last);
        }
        picture.steps = picture.steps.map(|step| step.min(99));
        let expected = expected(&picture, &mut draw);
        let scans = [scan(&[0], (0, 0), 0, 0), scan(&[0], (1, 63), 0, 1), scan(&[0], (1, 63), 1, 0)];
        let file = picture.write(0xc2, &scans, 0, &mut draw);
        assert!(ours(&file).is_some_and(|ours| ours == expected), "{last}");
    }
}

#[test]
fn long_runs_of_empty_blocks_are_refined() {
    let mut draw = Draw::new(14);
    for rare in [1, 3, 20, 300, 3_000] {
        let mut block = || {
            let mut block = [0; 64];
            for _ in 0..draw.below(3) * draw.below(9) {
                block[draw.below(64) as usize] = [2, 3, -2, -3][draw.below(4) as usize];
            }
            if draw.below(rare) == 0 {
                block[draw.below(64) as usize] = [1, -1][draw.below(2) as usize];
            }
            block
        };
        let blocks = (0..40 * 40).map(|_| block()).collect();
        let components = vec![Component { across: 1, down: 1, blocks }];
        let picture = Picture { width: 320, height: 320, components, steps: [9; 64] };
        let expected = expected(&picture, &mut draw);
        let first = [scan(&[0], (0, 0), 0, 0), scan(&[0], (1, 63), 0, 1)];
        for bands in [&[(1, 63)][..], &[(1, 5), (6, 63)]] {
            let next = bands.iter().map(|band| scan(&[0], *band, 1, 0));
            let scans: Vec<_> = first.iter().cloned().chain(next).collect();
            let file = picture.write(0xc2, &scans, 0, &mut draw);
            assert!(ours(&file).is_some_and(|ours| ours == expected), "{rare}, {bands:?}");
        }
    }
}

/// As libjpeg, which warns.
#[test]
fn scans_count_in_any_order() {
    let mut draw = Draw::new(12);
    for case in 0..30 {
        let mut picture = drawn(&mut draw, SAMPLINGS[0]);
        // Nothing that appears only with the last bit.
        for value in picture.components[0].blocks.iter_mut().flatten() {
            *value += i16::from(value.abs() == 1) * *value;
        }
        let expected = expected(&picture, &mut draw);
        let [first, coarse, next] = [(0, 0), (0, 1), (1, 0)].map(|(high, low)| scan(&[0], (0, 0), high, low));
        let [others, early, late] =
            [(0, 0), (0, 1), (1, 0)].map(|(high, low)| scan(&[0], (1, 63), high, low));
        for scans in [
            vec![&others, &first],
            vec![&early, &coarse, &late, &next],
            vec![&next, &first, &others],
            vec![&first, &first, &others, &others],
            vec![&early, &late, &late, &coarse, &next, &next],
        ] {
            let scans: Vec<_> = scans.into_iter().cloned().collect();
            let file = picture.write(0xc2, &scans, [0, 3][case % 2], &mut draw);
            assert!(ours(&file).is_some_and(|ours| ours == expected), "{case}: {scans:?}");
        }
        // Bands in the scan header of a sequential file are ignored.
        let mut file = picture.write(0xc1, &[scan(&[0], (0, 63), 0, 0)], 0, &mut draw);
        let head = first_scan(&file).0;
        for said in [[0, 63, 0x01], [0, 63, 0x10], [0, 63, 0xff], [0, 0, 0], [9, 5, 0], [255, 255, 0]] {
            file[head + 7..head + 10].copy_from_slice(&said);
            assert!(ours(&file).is_some_and(|ours| ours == expected), "{case}: {said:?}");
        }
    }
}

#[test]
fn scans_before_a_faulty_scan_are_kept() {
    let mut draw = Draw::new(12);
    let picture = drawn(&mut draw, SAMPLINGS[0]);
    let mut shown = |scans: &[Scan]| ours(&picture.write(0xc2, scans, 0, &mut draw));
    let first = scan(&[0], (0, 0), 0, 0);
    let each = |high, low| (1..=49).map(move |at| scan(&[0], (at, at), high, low));
    let mut scans: Vec<_> = each(0, 1).chain(each(1, 0)).collect();
    scans.extend([first.clone(), scan(&[0], (50, 50), 0, 0)]);
    let before = shown(&scans[..99]);
    assert!(before.is_some());
    scans[99].low = 14;
    assert_eq!(shown(&scans), before);
    assert_eq!(shown(&scans[99..]), None);
}

/// The scans of a file with their codes, without the segments around them.
fn scans_of(file: &[u8]) -> &[u8] {
    let begin = file.windows(2).position(|pair| pair == [0xff, 0xc4]).unwrap();
    &file[begin..end_of_data(file)]
}

/// As in libjpeg: later scans replace the first coefficient and every coefficient that is nonzero in them.
#[test]
fn repeated_component_uses_its_last_scans() {
    let mut draw = Draw::new(15);
    for case in 0..60 {
        let samplings = SAMPLINGS[[2, 3, 5, 6][case % 4]];
        let mut decoy = drawn(&mut draw, samplings);
        decoy.steps = [1; 64];
        let real = drawn_as(&mut draw, &decoy);
        let blocks = decoy.components[0].blocks.iter().zip(&real.components[0].blocks);
        let merged = blocks.map(|(decoy, real)| {
            std::array::from_fn(|at| if at == 0 || real[at] != 0 { real[at] } else { decoy[at] })
        });
        let Component { across, down, .. } = decoy.components[0];
        let luma = Component { across, down, blocks: merged.collect() };
        let Picture { width, height, steps, .. } = decoy;
        let shown = Picture { width, height, components: vec![luma], steps };
        let expected = expected(&shown, &mut draw);
        let restart = [0, 3][case % 2];
        let mut part = |picture: &Picture, named: &[usize]| {
            picture.write(0xc0, &[scan(named, (0, 63), 0, 0)], restart, &mut draw)
        };
        let (first, again) = (part(&decoy, &[0]), part(&real, &[0]));
        let colours = part(&real, &[1, 2]);
        let head = &first[..end_of_data(&first)];
        let (again, colours) = (scans_of(&again), scans_of(&colours));
        for scans in [[colours, again, b""], [again, colours, b""], [again, again, colours]] {
            let file = [head, &scans.concat(), &[0xff, 0xd9]].concat();
            assert!(ours(&file).is_some_and(|ours| ours == expected), "{case}");
        }
    }
}

fn segment(marker: u8, content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len() + 2).unwrap().to_be_bytes();
    [&[0xff, marker], &length[..], content].concat()
}

/// Another one of the same size.
fn drawn_as(draw: &mut Draw, picture: &Picture) -> Picture {
    let samplings: Vec<_> = picture.components.iter().map(|it| (it.across, it.down)).collect();
    let mut other = drawn(draw, &samplings);
    (other.width, other.height, other.steps) = (picture.width, picture.height, picture.steps);
    for (other, like) in other.components.iter_mut().zip(&picture.components) {
        let blocks = other.blocks.iter().copied().cycle().take(like.blocks.len()).collect();
        other.blocks = blocks;
    }
    other
}
