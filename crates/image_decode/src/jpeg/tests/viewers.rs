//! What viewers show of files that hardly any encoder makes: libjpeg's ways where others see another picture, or none.

use super::*;
use crate::{DecodeError, luma};

/// Each segment's place, up to the first scan.
fn segments(file: &[u8]) -> Vec<usize> {
    let (scan, mut at) = (first_scan(file).0, 2);
    let mut places = Vec::new();
    while at <= scan {
        places.push(at);
        at += 2 + usize::from(u16::from_be_bytes([file[at + 2], file[at + 3]]));
    }
    places
}

fn all_at_once(count: usize) -> Vec<Scan> {
    vec![scan(&(0..count).collect::<Vec<_>>(), (0, 63), 0, 0)]
}

#[test]
fn segment_length_below_two_is_accepted() {
    for file in one_of_each() {
        let whole = ours(&file).unwrap();
        for at in segments(&file) {
            for (marker, length) in [(0xfe, 0), (0xe0, 1), (0xe9, 0), (0xee, 1), (0xdc, 0), (0xfe, 2)] {
                let with = [&file[..at], &[0xff, marker, 0, length], &file[at..]].concat();
                assert!(ours(&with).is_some_and(|ours| ours == whole), "{at}: {marker:x}, {length}");
            }
        }
    }
}

#[test]
fn steps_have_sixteen_bits_under_any_width_but_none() {
    let mut draw = Draw::new(21);
    let file = drawn(&mut draw, SAMPLINGS[3]).write(0xc1, &all_at_once(3), 0, &mut draw);
    let whole = ours(&file).unwrap();
    assert_eq!((file[3], file[6]), (0xdb, 0x10));
    for width in 2..16 {
        let file = [&file[..6], &[width << 4], &file[7..]].concat();
        assert!(ours(&file).is_some_and(|ours| ours == whole), "{width}");
    }
}

/// The file with other names of its components, in the frame and in each scan.
fn renamed(mut file: Vec<u8>, names: &[u8]) -> Vec<u8> {
    let frame = *segments(&file).iter().find(|at| (0xc0..=0xc2).contains(&file[**at + 1])).unwrap();
    for (at, name) in names.iter().enumerate() {
        file[frame + 10 + 3 * at] = *name;
    }
    for at in (frame..file.len() - 1).filter(|at| file[*at..].starts_with(&[0xff, 0xda])).collect::<Vec<_>>()
    {
        for named in (at + 5..).step_by(2).take(file[at + 4].into()) {
            file[named] = names[usize::from(file[named]) - 1];
        }
    }
    file
}

#[test]
fn components_may_share_a_name() {
    let mut draw = Draw::new(22);
    for samplings in [SAMPLINGS[2], SAMPLINGS[3], SAMPLINGS[6]] {
        let file = drawn(&mut draw, samplings).write(0xc0, &all_at_once(3), 2, &mut draw);
        let whole = ours(&file).unwrap();
        for names in [[1, 1, 1], [0, 0, 0], [2, 2, 1], [5, 9, 5], [7, 8, 8]] {
            assert!(ours(&renamed(file.clone(), &names)).is_some_and(|ours| ours == whole), "{names:?}");
        }
    }
    // A scan of one of them is of the first that has its name.
    let picture = drawn(&mut draw, SAMPLINGS[2]);
    let scans = [scan(&[0, 1, 2], (0, 0), 0, 0), scan(&[0], (1, 63), 0, 0)];
    let file = picture.write(0xc2, &scans, 0, &mut draw);
    assert!(ours(&file).is_some() && ours(&renamed(file.clone(), &[3, 3, 3])) == ours(&file));
}

/// What is this times that step, in 16 bits.
fn over(product: i16, step: u16) -> i16 {
    let inverse =
        (0..4).fold(step, |inverse, _| inverse.wrapping_mul(2u16.wrapping_sub(step.wrapping_mul(inverse))));
    product.wrapping_mul(inverse.cast_signed())
}

fn gray_of(blocks: Vec<[i16; 64]>, steps: [u16; 64]) -> Picture {
    Picture { width: 24, height: 16, components: vec![Component { across: 1, down: 1, blocks }], steps }
}

/// Six blocks of values that keep far from the bounds of 16 bits, none of them zero in the first column.
fn small_blocks(draw: &mut Draw) -> Vec<[i16; 64]> {
    let mut block = || {
        std::array::from_fn(|at| match (at, ORDER[at] % 8) {
            (0, _) => 1 + draw.below(1500) as i16,
            (_, 0) => 1 + draw.below(9) as i16,
            _ => draw.below(if at < 10 { 90 } else { 3 }) as i16,
        })
    };
    (0..6).map(|_| block()).collect()
}

/// Shown as other coefficients are of which each step is one. Files like these have a picture only where 16 bits wrap, as
/// in libjpeg-turbo's vectors.
fn shown_over(steps: [u16; 64], mut values: Vec<[i16; 64]>, draw: &mut Draw) -> Vec<u8> {
    for (value, place) in values.iter_mut().flat_map(|block| block.iter_mut().zip(ORDER)) {
        *value = over(*value, steps[usize::from(place)]);
    }
    ours(&gray_of(values, steps).write(0xc1, &all_at_once(1), 0, draw)).unwrap()
}

#[test]
fn products_and_sums_wrap_at_sixteen_bits() {
    let mut draw = Draw::new(23);
    for case in 0..200 {
        let mut blocks = small_blocks(&mut draw);
        let expected = shown_over([1; 64], blocks.clone(), &mut draw);
        let steps = std::array::from_fn(|_| 1 + 2 * draw.below(32_768) as u16);
        assert!(shown_over(steps, blocks.clone(), &mut draw) == expected, "{case}: products");
        // What a column's first and fifth value both have too much of is lost where they are added and subtracted.
        for block in &mut blocks {
            for place in [0, 32] {
                let at = ORDER.iter().position(|in_block| *in_block == place).unwrap();
                block[at] = block[at].wrapping_add(i16::MIN);
            }
        }
        assert!(shown_over(steps, blocks, &mut draw) == expected, "{case}: sums");
    }
}

#[test]
fn columns_of_one_value_wrap_and_others_are_cut_off() {
    let mut draw = Draw::new(24);
    for case in 0..100 {
        let mut blocks = small_blocks(&mut draw);
        for (at, value) in blocks.iter_mut().flat_map(|block| block.iter_mut().enumerate()) {
            *value *= i16::from(ORDER[at] < if case % 2 == 0 { 8 } else { 1 });
        }
        let expected = shown_over([1; 64], blocks.clone(), &mut draw);
        for block in &mut blocks {
            block[0] = block[0].wrapping_add((i16::MIN / 2).wrapping_mul(draw.below(4) as i16));
        }
        assert!(shown_over([1; 64], blocks.clone(), &mut draw) == expected, "{case}");
        for block in &mut blocks {
            *block = [0; 64];
            (block[0], block[2]) = (i16::MAX / 2 + 100, 3);
        }
        assert_eq!(shown_over([1; 64], blocks, &mut draw), [255; 24 * 16], "{case}");
    }
}

/// A column's first and fifth value of which the sum is one below and above the bound, if the factors before have a bit
/// less. What libjpeg-turbo shows of these was found once.
#[test]
fn sums_wrap_after_the_roundings_of_libjpeg() {
    let mut draw = Draw::new(31);
    let (white, black, waves) = ([255; 8], [0; 8], [0, 255, 255, 0, 0, 255, 255, 0]);
    for (values, rows) in [
        ([(0, 30), (4, 329), (16, 5995)], [white, white, black, black]),
        ([(0, 30), (4, 323), (48, -6000)], [black, waves, black, white]),
    ] {
        let mut block = [0; 64];
        for (place, value) in values {
            block[ORDER.iter().position(|in_block| *in_block == place).unwrap()] = value;
        }
        let shown =
            ours(&gray_of(vec![block; 6], [1; 64]).write(0xc1, &all_at_once(1), 0, &mut draw)).unwrap();
        let expected: Vec<u8> = rows.iter().chain(rows.iter().rev()).flatten().copied().collect();
        assert!(blocks(&shown, 24).iter().all(|block| *block == expected), "{values:?}");
    }
}

/// Eight shifted left by 13 bits wraps to zero in 16 bits, and this zero is stored.
#[test]
fn coefficients_are_overwritten_by_values_that_wrap_to_zero() {
    let mut draw = Draw::new(32);
    for case in 0..40 {
        let mut decoy = drawn(&mut draw, SAMPLINGS[0]);
        decoy.steps = [1; 64];
        let real = drawn_as(&mut draw, &decoy);
        let mut eights = drawn_as(&mut draw, &decoy);
        for (block, like) in eights.components[0].blocks.iter_mut().zip(&decoy.components[0].blocks) {
            *block = like.map(|value| if value == 0 { 0 } else { 8 });
        }
        let [first, all] = [(0, 0), (1, 63)].map(|band| scan(&[0], band, 0, 0));
        let by_bits = [scan(&[0], (1, 63), 0, 1), scan(&[0], (1, 63), 1, 0)];
        let head = real.write(0xc2, &[first], 0, &mut draw);
        let decoy = decoy.write(0xc2, std::slice::from_ref(&all), 0, &mut draw);
        let mut zeros = eights.write(0xc2, &[all], 0, &mut draw);
        let data = first_scan(&zeros).1;
        zeros[data - 1] = 13;
        let bits = real.write(0xc2, &by_bits, 0, &mut draw);
        let scans = [scans_of(&decoy), scans_of(&zeros), scans_of(&bits)].concat();
        let file = [&head[..end_of_data(&head)], &scans, &[0xff, 0xd9]].concat();
        let expected = expected(&real, &mut draw);
        assert!(ours(&file).is_some_and(|ours| ours == expected), "{case}");
    }
}

/// libjpeg stops at an invalid marker, but skips it if a restart is due.
#[test]
fn skipped_scan_ends_as_in_libjpeg() {
    let mut draw = Draw::new(25);
    for case in 0..40 {
        let restart = [0, 2][case % 2];
        let mut picture = drawn(&mut draw, SAMPLINGS[2]);
        (picture.width, picture.height) = (24, 16);
        for component in &mut picture.components {
            component.blocks = component.blocks.iter().copied().cycle().take(6).collect();
        }
        let other = drawn_as(&mut draw, &picture);
        let alone = |at: usize| vec![scan(&[at], (0, 63), 0, 0)];
        let head = picture.write(0xc1, &alone(0), restart, &mut draw);
        let (colour, decoy) = (
            picture.write(0xc1, &alone(1), restart, &mut draw),
            other.write(0xc1, &alone(0), restart, &mut draw),
        );
        let (head, colour, decoy) = (&head[..end_of_data(&head)], scans_of(&colour), scans_of(&decoy));
        let both = ours(&[head, colour, decoy].concat()).unwrap();
        let first = ours(head).unwrap();
        assert!(both != first);
        for (marker, is_read) in
            [(&b"\xff\x02"[..], restart > 0), (b"\xff\x01", true), (b"\xff\xd8", false), (b"\xff\xde", false)]
        {
            // Position in the chroma data: before the last byte, or before the first restart.
            let first_restart = colour.windows(2).rposition(|pair| pair == [0xff, 0xd0]);
            let at = first_restart.filter(|_| restart > 0).unwrap_or(colour.len() - 1);
            let garbled = [&colour[..at], marker, &colour[at..]].concat();
            let shown = ours(&[head, &garbled, decoy].concat()).unwrap();
            assert!(shown == *if is_read { &both } else { &first }, "{case}: {marker:x?}");
        }
    }
}

/// A triangle where libjpeg has one: two to one, unless that would be across fewer than three samples.
fn stretched(small: &[u8], [width, height]: [usize; 2], [across, down]: [usize; 2], at: [usize; 2]) -> u8 {
    let [row, column] = [at[0] / down, at[1] / across];
    let beside = |own: usize, at: usize, side: usize| match at % 2 {
        0 => own.saturating_sub(1),
        _ => (own + 1).min(side - 1),
    };
    let sample = |row: usize, column: usize| usize::from(small[row * width + column]);
    let (other_row, other_column) = (beside(row, at[0], height), beside(column, at[1], width));
    let near = sample(row, column);
    let sum = match [across, down] {
        [2, 1] if width > 2 => (3 * near + sample(row, other_column) + 1 + at[1] % 2) / 4,
        [1, 2] => (3 * near + sample(other_row, column) + 1 + at[0] % 2) / 4,
        [2, 2] if width > 2 => {
            let sum = 9 * near + 3 * sample(other_row, column) + 3 * sample(row, other_column);
            (sum + sample(other_row, other_column) + 8 - at[1] % 2) / 16
        }
        _ => near,
    };
    sum as u8
}

#[test]
fn subsampled_luma_is_stretched_as_in_libjpeg() {
    let mut draw = Draw::new(27);
    for case in 0..240 {
        let samplings = [
            [(1, 1), (2, 2), (1, 1)],
            [(1, 1), (2, 1), (1, 1)],
            [(1, 1), (1, 2), (1, 1)],
            [(2, 1), (2, 4), (1, 1)],
            [(1, 1), (4, 1), (1, 1)],
            [(1, 2), (2, 2), (1, 1)],
            [(1, 1), (2, 4), (1, 1)],
            [(2, 1), (4, 2), (1, 1)],
        ][case % 8];
        let mut picture = drawn(&mut draw, &samplings);
        if case % 5 == 0 {
            picture.width = picture.width.min(1 + case / 5 % 7);
        }
        let most = samplings.iter().fold([0, 0], |[x, y], (across, down)| [x.max(*across), y.max(*down)]);
        let by = [most[0] / samplings[0].0, most[1] / samplings[0].1];
        let (width, height) = (picture.width.div_ceil(by[0]), picture.height.div_ceil(by[1]));
        let stride = picture.width.div_ceil(8 * most[0]) * samplings[0].0;
        let columns = width.div_ceil(8);
        let block = |at: usize| picture.components[0].blocks[at / columns * stride + at % columns];
        let blocks = (0..columns * height.div_ceil(8)).map(block).collect();
        let alone = vec![Component { across: 1, down: 1, blocks }];
        let small = Picture { width, height, components: alone, steps: picture.steps };
        let small = ours(&small.write(0xc1, &all_at_once(1), 0, &mut draw)).unwrap();
        let restart = [0, 3][case % 2];
        let scans = [all_at_once(3), progression(&mut draw, 3)];
        for (marker, scans) in [0xc0, 0xc2].iter().zip(scans) {
            let shown = ours(&picture.write(*marker, &scans, restart, &mut draw)).unwrap();
            assert_eq!(shown.len(), picture.width * picture.height);
            for (at, sample) in shown.iter().enumerate() {
                let at = [at / picture.width, at % picture.width];
                assert_eq!(*sample, stretched(&small, [width, height], by, at), "{case}: {at:?}");
            }
        }
    }
}

fn told(told: u64, samples: &[u8]) -> u64 {
    samples.iter().fold(told, |told, sample| (told ^ u64::from(*sample)).wrapping_mul(0x100_0000_01b3))
}

/// What libjpeg-turbo 3.1.2 shows of them was found once: all that it shows are equal to the bit.
#[test]
fn missing_coefficients_are_guessed_as_in_libjpeg() {
    let mut draw = Draw::new(33);
    let (mut shown, mut all) = (0, 0xcbf2_9ce4_8422_2325);
    for case in 0..300 {
        for file in cut_short(&mut draw, case) {
            if let Some(samples) = ours(&file) {
                (shown, all) = (shown + 1, told(all, &samples));
            }
        }
    }
    assert_eq!((shown, all), (1_158, 14_410_151_641_316_493_756));
}

/// A progressive file, cut in four places of its scans.
fn cut_short(draw: &mut Draw, case: usize) -> Vec<Vec<u8>> {
    let samplings = SAMPLINGS[case % 8];
    let picture = drawn(draw, samplings);
    let restart = [0, 0, 1, 2, 5, 200][draw.below(6) as usize];
    let scans = progression(draw, samplings.len());
    let file = picture.write(0xc2, &scans, restart, draw);
    let begin = first_scan(&file).1;
    (0..4).map(|_| file[..begin + draw.below((file.len() - begin) as u32) as usize].to_vec()).collect()
}

/// The file has only the mean of each block, and the picture must have no steps between blocks.
#[test]
fn slope_is_guessed_from_first_coefficients() {
    let mut draw = Draw::new(34);
    for (across, down) in [(40, 0), (0, 40)] {
        let first = |at: i16| (at % 6) * across + (at / 6) * down - 100;
        let blocks = (0..36).map(|at| std::array::from_fn(|nth| if nth == 0 { first(at) } else { 0 }));
        let components = vec![Component { across: 1, down: 1, blocks: blocks.collect() }];
        let picture = Picture { width: 48, height: 48, components, steps: [8; 64] };
        let means = picture.write(0xc2, &[scan(&[0], (0, 0), 0, 0)], 0, &mut draw);
        let shown = ours(&means).unwrap();
        for row in 20..28 {
            for column in 20..28 {
                let at = row * 48 + column;
                for (step, other) in [(across, shown[at + 1]), (down, shown[at + 48])] {
                    let apart = i32::from(other) - i32::from(shown[at]);
                    assert!(
                        (8 * apart - i32::from(step)).abs() <= 24,
                        "{across}, {down}: {row}, {column}: {apart}"
                    );
                }
            }
        }
        // What is known, if only as zero, is not guessed.
        let known = picture.write(0xc2, &[scan(&[0], (0, 0), 0, 0), scan(&[0], (1, 63), 0, 0)], 0, &mut draw);
        let known = blocks_of(&ours(&known).unwrap());
        assert!(known.iter().all(|block| block.iter().all(|sample| *sample == block[0])));
    }
}

fn blocks_of(samples: &[u8]) -> Vec<Vec<u8>> {
    blocks(samples, 48)
}

/// Below the end of a truncated chroma scan, luma is guessed from the bits known before its own last scan.
#[test]
fn truncated_chroma_scan_limits_luma_guesses() {
    let mut draw = Draw::new(35);
    let mut unlike = 0;
    for _ in 0..40 {
        let mut picture = drawn(&mut draw, SAMPLINGS[3]);
        (picture.width, picture.height) = (64, 64);
        for component in &mut picture.components {
            component.blocks = component.blocks.iter().copied().cycle().take(64).collect();
        }
        let scans = [scan(&[0, 1, 2], (0, 0), 0, 0), scan(&[0], (1, 5), 0, 0), scan(&[1], (1, 63), 0, 0)];
        let whole = picture.write(0xc2, &scans, 0, &mut draw);
        let colours = whole.windows(2).rposition(|pair| pair == [0xff, 0xda]).unwrap();
        let end = colours + 10 + (end_of_data(&whole) - colours - 10) / 2;
        let [all, cut] = [&whole[..], &whole[..end]].map(|file| ours(file).unwrap());
        assert_eq!(all[..8 * 64], cut[..8 * 64]);
        unlike += usize::from(all[48 * 64..] != cut[48 * 64..]);
    }
    assert!(unlike > 30, "{unlike}");
}

/// libjpeg decodes these files. No decoder is tried for a file that costs more than a hundred scans of 17 million pixels.
#[test]
fn scan_limit_depends_on_the_picture_size() {
    let mut draw = Draw::new(36);
    let picture = drawn(&mut draw, SAMPLINGS[0]);
    let expected = expected(&picture, &mut draw);
    let bits = (0..=10).rev().flat_map(|low| (1..64).map(move |at| (at, low)));
    let bits = bits.map(|(at, low)| scan(&[0], (at, at), if low == 10 { 0 } else { low + 1 }, low));
    let scans: Vec<_> = std::iter::once(scan(&[0], (0, 0), 0, 0)).chain(bits).collect();
    let file = picture.write(0xc2, &scans, 0, &mut draw);
    assert!(scans.len() > 690 && ours(&file).is_some_and(|ours| ours == expected));

    let start = picture.write(0xc2, &scans[..1], 0, &mut draw);
    let sized = |side: u16, scans: usize| {
        let frame = segments(&start).into_iter().find(|at| start[at + 1] == 0xc2).unwrap();
        let side = [side.to_be_bytes(), side.to_be_bytes()].concat();
        let empty = segment(0xda, &[1, 1, 0x12, 1, 63, 0]).repeat(scans - 1);
        let parts =
            [&start[..frame + 5], &side, &start[frame + 9..end_of_data(&start)], &empty, &[0xff, 0xd9]];
        parts.concat()
    };
    let done = |file: &[u8]| {
        let header = header::read(file).unwrap();
        super::super::decode(file, &header, &MemoryBudget::new(ALL)).is_ok()
    };
    assert_eq!([100, 101].map(|scans| done(&sized(4_104, scans))), [true, false]);
    assert_eq!([1_575, 1_576].map(|scans| done(&sized(1_024, scans))), [true, false]);
}

/// libjpeg shows it, and browsers do not. That there are no hashes is seen.
#[test]
fn arithmetic_codes_are_not_taken_for_others() {
    for file in one_of_each() {
        for marker in [0xc9, 0xca, 0xcb, 0xcd] {
            let mut file = file.clone();
            let frame = segments(&file).into_iter().find(|at| (0xc0..=0xc2).contains(&file[at + 1])).unwrap();
            file[frame + 1] = marker;
            let header = header::read(&file).unwrap();
            let refused =
                super::super::decode(&file, &header, &MemoryBudget::new(ALL)).map(drop).unwrap_err();
            assert_eq!(refused, DecodeError::UNSUPPORTED);
        }
    }
}

fn adobe(mark: u8) -> Vec<u8> {
    segment(0xee, &[b"Adobe\0\x64\0\0\0\0".as_slice(), &[mark]].concat())
}

/// Of a picture, with restarts: all components at once, one after the other, and progressive.
fn of_each_kind(draw: &mut Draw, components: usize) -> Vec<Vec<u8>> {
    let mut picture = drawn(draw, &vec![(1, 1); components]);
    (picture.width, picture.height) = (40, 32);
    for component in &mut picture.components {
        component.blocks = component.blocks.iter().copied().cycle().take(20).collect();
    }
    let each: Vec<_> = (0..components).map(|at| scan(&[at], (0, 63), 0, 0)).collect();
    let scans = progression(draw, components);
    let kinds = [(0xc1, all_at_once(components)), (0xc1, each), (0xc2, scans)];
    kinds.iter().map(|(marker, scans)| picture.write(*marker, scans, 3, draw)).collect()
}

/// Plane of a single component: without an Adobe or JFIF segment, the first component of the frame is luma.
fn plane_of(head: &[u8], tail: &[u8], component: usize) -> Option<Vec<u8>> {
    let frame =
        *segments(&[head, tail].concat()).iter().find(|at| (0xc0..=0xc2).contains(&head[**at + 1]))?;
    let mut head = head.to_vec();
    head[frame + 10..frame + 19].rotate_left(3 * component);
    ours(&[&head, tail].concat())
}

#[test]
fn broken_rgb_file_shows_each_component_as_alone() {
    let mut draw = Draw::new(28);
    let pieces: &[&[u8]] = &[b"\xff\xd9", b"\xff\xd1", b"\xff\0", b"\0", b"\xff\x02", b"\xff\xd6"];
    let mut shown = 0;
    for file in of_each_kind(&mut draw, 3) {
        let (head, tail) = file.split_at(first_scan(&file).1);
        for number in 0..150 {
            let tail = garbled(number, &[tail], pieces);
            let planes: Vec<_> = (0..3).map(|component| plane_of(head, &tail, component)).collect();
            let planes = planes.iter().any(Option::is_some).then(|| {
                planes
                    .into_iter()
                    .map(|plane| plane.unwrap_or_else(|| vec![128; 40 * 32]))
                    .collect::<Vec<_>>()
            });
            let expected: Option<Vec<u8>> = planes.map(|planes| {
                (0..40 * 32).map(|at| luma::of_rgb(planes[0][at], planes[1][at], planes[2][at])).collect()
            });
            let marked = [&head[..2], &adobe(0), &head[2..], &tail].concat();
            shown += usize::from(expected.is_some());
            assert!(ours(&marked) == expected, "{number}");
        }
    }
    assert!(shown > 400, "{shown}");
}

#[test]
fn late_restart_does_not_change_inks() {
    let mut draw = Draw::new(29);
    for mark in [0, 2] {
        for file in of_each_kind(&mut draw, 4) {
            let marked = [&file[..2], &adobe(mark), &file[2..]].concat();
            let whole = ours(&marked).unwrap();
            let read = header::read(&marked).unwrap();
            if read.is_common {
                let other = decode_by_zune(&marked, &read, &MemoryBudget::new(ALL)).unwrap().0.samples;
                assert!(whole.iter().zip(&other).all(|(ours, other)| ours.abs_diff(*other) <= 3));
            }
            let end = scans::end_of_scan(&marked, first_scan(&marked).1);
            for at in restarts(&marked).into_iter().filter(|at| *at < end) {
                for stray in [&b"\0\0"[..], b"\xff\x02", b"\xff\xff"] {
                    let file = [&marked[..at], stray, &marked[at..]].concat();
                    assert!(ours(&file).is_some_and(|ours| ours == whole), "{mark}: {at}");
                }
            }
        }
    }
}
