//! Compares PDQ with an independent implementation and with the reference from PyPI, and checks its documented properties.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, clippy::cast_sign_loss)]

use std::{
    fmt::Write as _,
    io::Write as _,
    process::{Command, Stdio},
    sync::Mutex,
};

use image::{DynamicImage, imageops::FilterType};
use tidegate_media::{
    Orientation, PdqHash,
    hashes::pdq::{self, MATCH_DISTANCE, MIN_QUALITY, MIN_QUALITY_SIDE, PdqResult},
};
use tidegate_test_support::servers;

use crate::support::{
    pdq_oracle,
    pictures::{self, FAMILIES, Picture, picture},
};

const EACH: usize = 100;

fn hashed(luma: &[u8], width: u32, height: u32) -> PdqResult {
    pdq::hash(luma, width, height).unwrap()
}

/// Pictures with enough detail by the oracle's measure, with their luma and the oracle's result.
fn pictures_of(family: u64, count: usize) -> Vec<(Picture, Vec<u8>, String, u32)> {
    let all = (0..).map(|seed| {
        let picture = picture(family, seed);
        let luma = picture.luma();
        let (digits, quality) = pdq_oracle::pdq(&luma, picture.width as usize, picture.height as usize);
        (picture, luma, digits, quality)
    });
    all.take(count * 3).filter(|(.., quality)| *quality >= 50).take(count).collect()
}

#[test]
fn thousand_pictures_hash_as_the_oracle_does() {
    let distances = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for part in 0..2 {
            let distances = &distances;
            scope.spawn(move || {
                for family in (0..FAMILIES).filter(|family| family % 2 == part) {
                    let all = pictures_of(family, EACH);
                    assert_eq!(all.len(), EACH, "family {family} draws too little");
                    for (picture, luma, digits, quality) in all {
                        let ours = hashed(&luma, picture.width, picture.height);
                        let theirs: PdqHash = digits.parse().unwrap();
                        assert_eq!(ours.hash.weight(), 128);
                        assert!(u32::from(ours.quality).abs_diff(quality) <= 1, "family {family}");
                        distances.lock().unwrap().push(ours.hash.distance(&theirs));
                    }
                }
            });
        }
    });
    let distances = distances.into_inner().unwrap();
    assert_eq!(distances.len(), EACH * FAMILIES as usize);
    let equal = distances.iter().filter(|distance| **distance == 0).count();
    assert!(equal >= 990, "{equal} of 1000 equal");
    assert!(distances.iter().all(|distance| *distance <= 4), "{:?}", distances.iter().max());
}

#[test]
fn every_window_and_border_hashes_as_the_oracle_does() {
    for (seed, (width, height)) in (0..).zip([
        (5, 7),
        (63, 64),
        (64, 65),
        (128, 129),
        (130, 257),
        (385, 511),
        (641, 90),
        (77, 1153),
        (2049, 70),
    ]) {
        let picture = pictures::sized(seed % FAMILIES, seed, width, height);
        let luma = picture.luma();
        let (digits, _) = pdq_oracle::pdq(&luma, width as usize, height as usize);
        assert_eq!(hashed(&luma, width, height).hash.to_string(), digits, "{width} x {height}");
    }
}

fn reorient(luma: &[u8], (width, height): (usize, usize), turn: Orientation) -> (Vec<u8>, usize, usize) {
    let at = |x: usize, y: usize| luma[y * width + x];
    let (right, bottom) = (width - 1, height - 1);
    let source = |x: usize, y: usize| match turn {
        Orientation::Left => at(right - y, x),
        Orientation::Around => at(right - x, bottom - y),
        Orientation::Right => at(y, bottom - x),
        Orientation::MirrorLeftRight => at(right - x, y),
        Orientation::MirrorTopBottom => at(x, bottom - y),
        Orientation::MirrorDiagonal => at(y, x),
        Orientation::MirrorAntiDiagonal => at(right - y, bottom - x),
    };
    let (width, height) = match turn {
        Orientation::Around | Orientation::MirrorLeftRight | Orientation::MirrorTopBottom => (width, height),
        _ => (height, width),
    };
    let luma = (0..width * height).map(|place| source(place % width, place / width)).collect();
    (luma, width, height)
}

#[test]
fn orientation_hashes_match_the_oracle() {
    let sizes = [
        (96, 72),
        (128, 96),
        (128, 256),
        (130, 129),
        (150, 200),
        (160, 120),
        (192, 256),
        (224, 224),
        (240, 180),
        (256, 192),
        (300, 385),
        (400, 301),
        (640, 427),
        (640, 256),
    ];
    let mut far = Vec::new();
    for (seed, (width, height)) in (0..).zip(sizes) {
        let picture = pictures::sized(seed % FAMILIES, seed, width, height);
        let luma = picture.luma();
        let (own, hashes) = pdq::hash_all_orientations(&luma, width, height).unwrap();
        let plain = hashed(&luma, width, height);
        assert_eq!((own.hash, own.quality), (plain.hash, plain.quality));
        for (turn, hash) in Orientation::ALL.into_iter().zip(hashes) {
            let (luma, width, height) = reorient(&luma, (width as usize, height as usize), turn);
            let (digits, _) = pdq_oracle::pdq(&luma, width, height);
            let distance = hash.distance(&digits.parse().unwrap());
            if distance > 0 {
                far.push((width, height, turn, distance));
            }
        }
    }
    assert_eq!(far, []);
}

#[test]
fn code_of_the_reference_agrees() {
    let Some(python) = servers::python("TIDEGATE_TEST_PDQHASH", "the hashes of `pdqhash`") else { return };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/support/pdqhash_of.py");
    let mut child =
        Command::new(python).arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || {
        let mut ours = Vec::new();
        for family in 0..FAMILIES {
            for (picture, luma, ..) in pictures_of(family, 30) {
                input.write_all(&picture.width.to_le_bytes()).unwrap();
                input.write_all(&picture.height.to_le_bytes()).unwrap();
                input.write_all(&picture.rgb).unwrap();
                ours.push(hashed(&luma, picture.width, picture.height));
            }
        }
        ours
    });
    let output = child.wait_with_output().unwrap();
    let ours = writer.join().unwrap();
    assert!(output.status.success());
    let theirs = String::from_utf8(output.stdout).unwrap();
    let (mut close, mut report) = (0, String::new());
    for (ours, line) in ours.iter().zip(theirs.lines()) {
        let (digits, quality) = line.split_once(' ').unwrap();
        let distance = ours.hash.distance(&digits.parse().unwrap());
        close += usize::from(distance <= 2);
        if distance > 10 || u32::from(ours.quality).abs_diff(quality.parse().unwrap()) > 2 {
            writeln!(report, "{distance} bits, quality {} and {quality}", ours.quality).unwrap();
        }
    }
    assert_eq!((ours.len(), theirs.lines().count()), (300, 300));
    assert_eq!(report, "");
    assert!(close >= 270, "{close} of 300 within two bits");
}

/// Number of pictures in a hundred with a changed form within the match distance.
fn count_matches(change: impl Fn(&Picture) -> DynamicImage) -> usize {
    let mut match_count = 0;
    for family in 0..FAMILIES {
        for (picture, luma, ..) in pictures_of(family, 10) {
            let changed_luma = change(&picture).to_luma8();
            let before = hashed(&luma, picture.width, picture.height).hash;
            let after = hashed(changed_luma.as_raw(), changed_luma.width(), changed_luma.height()).hash;
            match_count += usize::from(before.distance(&after) <= MATCH_DISTANCE);
        }
    }
    match_count
}

#[test]
fn edited_picture_stays_within_the_match_distance() {
    let image = |picture: &Picture| DynamicImage::ImageRgb8(picture.image());
    let resized = count_matches(|picture| {
        image(picture).resize_exact(picture.width * 4 / 5, picture.height * 4 / 5, FilterType::Triangle)
    });
    assert!(resized >= 85, "{resized} of 100 resized");
    let coarser = count_matches(|picture| {
        let mut bytes = Vec::new();
        let encoder = image::codecs::jpeg::JpegEncoder::new_with_quality(&mut bytes, 50);
        picture.image().write_with_encoder(encoder).unwrap();
        image::load_from_memory(&bytes).unwrap()
    });
    assert!(coarser >= 95, "{coarser} of 100 encoded anew");
    let gray = count_matches(|picture| DynamicImage::ImageLuma8(image(picture).to_luma8()));
    assert!(gray >= 95, "{gray} of 100 gray");
    let blurred = count_matches(|picture| image(picture).fast_blur(0.8));
    assert!(blurred >= 90, "{blurred} of 100 blurred");
}

#[test]
fn one_colour_and_soft_shading_have_low_quality() {
    for (width, height) in [(5, 5), (300, 200)] {
        assert_eq!(hashed(&vec![90; (width * height) as usize], width, height).quality, 0);
    }
    let shade: Vec<u8> = (0..300 * 200).map(|at| ((at % 300) * 255 / 300) as u8).collect();
    assert!(hashed(&shade, 300, 200).quality < MIN_QUALITY);
}

#[test]
fn tiny_pictures_have_quality_zero() {
    for family in 0..FAMILIES {
        for side in 5..40 {
            for (width, height) in [(side, side), (side, 300), (300, side)] {
                let luma = pictures::sized(family, 7, width, height).luma();
                let (_, seen) = pdq_oracle::pdq(&luma, width as usize, height as usize);
                let (own, _) = pdq::hash_all_orientations(&luma, width, height).unwrap();
                assert_eq!(own.quality, hashed(&luma, width, height).quality);
                if side < MIN_QUALITY_SIDE {
                    assert_eq!(own.quality, 0, "{width} x {height}");
                } else {
                    assert!(u32::from(own.quality).abs_diff(seen) <= 1, "{width} x {height}");
                }
            }
        }
    }
}
