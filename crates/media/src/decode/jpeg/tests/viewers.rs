//! What viewers show of files that hardly any encoder makes: libjpeg's ways where others see another picture, or none.

use super::*;

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
fn a_segment_may_be_shorter_than_its_length() {
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
