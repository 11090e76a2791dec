//! Further data in a file neither hides nor replaces the picture that viewers show.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

use image::{DynamicImage, ImageFormat};
use tidegate_image_decode::Reason;
use tidegate_media::{Limits, State};

use crate::support::{
    animated_files::{apng, frames, gif, webp},
    fingerprints::{self, print},
    pictures::{self, encoded},
};

#[track_caller]
fn assert_same_print(bytes: &[u8], plain: &[u8]) {
    let (print, plain) = (print(bytes), print(plain));
    assert_eq!((print.state, print.reason), (State::Ok, None));
    assert_eq!((print.width, print.height, print.frames), (plain.width, plain.height, plain.frames));
}

fn picture() -> DynamicImage {
    pictures::sized(4, 11, 160, 120).image().into()
}

/// Sets the RIFF length so that it includes the whole file.
fn whole_riff(mut bytes: Vec<u8>) -> Vec<u8> {
    let length = (bytes.len() as u32 - 8).to_le_bytes();
    bytes[4..8].copy_from_slice(&length);
    bytes
}

#[test]
fn bytes_appended_to_a_webp_do_not_change_its_hash() {
    let (still, moving) = (encoded(&picture(), ImageFormat::WebP), webp(&frames()));
    let other_frames = &webp(&frames()[3..6])[12..];
    let large = b"VP8 \x0a\0\0\0\x90\x03\0\x9d\x01\x2a\xff\x3f\xff\x3f";
    for more in [other_frames, b"ANMF\0\0\0\0", b"VP8X\0\0\0\0", large] {
        assert_same_print(&[&still, more].concat(), &still);
        assert_same_print(&whole_riff([&still, more].concat()), &still);
        assert_same_print(&[&moving, more].concat(), &moving);
    }
    assert_same_print(&whole_riff([&moving[..], b"ANMF\0\0\0\0"].concat()), &moving);
}

fn chunk(kind: &[u8; 4], content: &[u8]) -> Vec<u8> {
    let all = [kind, content].concat();
    let sum = !all.iter().fold(!0u32, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| (sum >> 1) ^ (0xedb8_8320 & (sum & 1).wrapping_neg()))
    });
    [&(content.len() as u32).to_be_bytes()[..], &all, &sum.to_be_bytes()].concat()
}

/// Start of the nth chunk of a kind.
fn nth(png: &[u8], kind: &[u8; 4], nth: usize) -> usize {
    let mut positions = (4..png.len()).filter(|at| png[*at..].starts_with(kind));
    positions.nth(nth).unwrap() - 4
}

fn control(number: u32, width: u32, height: u32) -> Vec<u8> {
    let place = [number, width, height, 0, 0].map(u32::to_be_bytes).concat();
    chunk(b"fcTL", &[&place[..], &[0, 1, 0, 10, 0, 0]].concat())
}

fn with(png: &[u8], before: &[u8; 4], chunk: &[u8]) -> Vec<u8> {
    let at = nth(png, before, 0);
    [&png[..at], chunk, &png[at..]].concat()
}

#[test]
fn still_png_needs_only_the_chunks_of_its_pixels() {
    let png = encoded(&picture(), ImageFormat::Png);
    for chunk in [
        chunk(b"eXIf", &vec![b'M'; 5 << 20]),
        chunk(b"pHYs", &vec![0; 5 << 20]),
        chunk(b"PLTE", &[7; 900]),
        chunk(b"fcTL", &[0; 9]),
        control(0, 40, 40),
        control(5, 160, 120),
        chunk(b"fdAT", &[0; 30]),
        [chunk(b"acTL", &[0, 0, 0, 2, 0, 0, 0, 0]), control(0, 40, 40)].concat(),
        [chunk(b"acTL", &[0, 0, 0, 2]), control(0, 160, 120)].concat(),
    ] {
        assert_same_print(&with(&png, b"IDAT", &chunk), &png);
    }
    let moving = apng(&frames(), None);
    assert_same_print(&with(&moving, b"acTL", &chunk(b"eXIf", &vec![b'M'; 5 << 20])), &moving);
}

/// The compressed pixels.
fn stream(png: &[u8]) -> Vec<u8> {
    let (mut data, mut at) = (Vec::new(), 8);
    while at < png.len() {
        let length = u32::from_be_bytes(png[at..at + 4].try_into().unwrap()) as usize;
        if png[at + 4..].starts_with(b"IDAT") {
            data.extend(&png[at + 8..][..length]);
        }
        at += length + 12;
    }
    data
}

/// Viewers show the available rows regardless of later chunks.
#[test]
fn chunks_behind_a_stream_that_is_cut_hide_none_of_its_rows() {
    let luma = |bytes: &[u8]| fingerprints::decoders(&Limits::default()).luma(bytes).unwrap().samples;
    let text = [chunk(b"tEXt", b"a\0b"), chunk(b"IEND", b"")].concat();
    for side in [128, 256, 512] {
        let picture = DynamicImage::from(pictures::sized(0, 11, side, side).image());
        for picture in [picture.to_luma8().into(), picture] {
            let png = encoded(&picture, ImageFormat::Png);
            let (head, data, whole) = (&png[..nth(&png, b"IDAT", 0)], stream(&png), luma(&png));
            for byte_count in [data.len() / 2, data.len() * 9 / 10, data.len() - 20] {
                let length = (data.len() as u32).to_be_bytes();
                let truncated_png = [head, &length, b"IDAT", &data[..byte_count]].concat();
                let expected_luma = luma(&truncated_png);
                let rows = whole.iter().zip(&expected_luma).take_while(|(one, other)| one == other).count();
                assert!(rows * 5 > whole.len() * 2, "{side}: {rows} of {}", whole.len());
                for piece in [byte_count, byte_count / 5 + 1] {
                    let data: Vec<u8> =
                        data[..byte_count].chunks(piece).flat_map(|piece| chunk(b"IDAT", piece)).collect();
                    let mut faulty = [&data[..], &chunk(b"IDAT", &[0; 9])].concat();
                    faulty[data.len() - 1] ^= 1;
                    for more in [&b""[..], &chunk(b"IEND", b""), &text] {
                        assert!(
                            luma(&[head, &data, more].concat()) == expected_luma,
                            "{side}: {byte_count} by {piece}"
                        );
                    }
                    assert!(
                        luma(&[head, &faulty].concat()) == expected_luma,
                        "{side}: {byte_count} by {piece}"
                    );
                }
            }
        }
    }
}

#[test]
fn truncated_apng_keeps_its_frames() {
    let moving = apng(&frames(), None);
    assert_same_print(&[&moving[..], &control(0, 1, 1).repeat(400)].concat(), &moving);
    // `acTL` gives the number of frames.
    assert_same_print(&with(&moving, b"IEND", &control(17, 160, 120).repeat(30)), &moving);
    let three = print(&apng(&frames()[..3], None));
    let at = nth(&moving, b"fcTL", 3);
    for length in 8..38 {
        let print = print(&moving[..at + length]);
        assert_eq!((print.state, print.reason), (State::Ok, None), "{length}");
        assert_eq!(print.frames, three.frames, "{length}");
    }
}

#[test]
fn gif_canvas_includes_a_larger_first_frame() {
    for gif in [gif(&frames()[..1]), gif(&frames())] {
        for [width, height] in [[0, 0], [1, 1], [64, 64], [159, 119], [160, 0]] {
            assert_same_print(&[&gif[..6], &[width, 0, height, 0], &gif[10..]].concat(), &gif);
        }
    }
}

#[test]
fn bmp_without_offset_has_pixels_behind_its_header() {
    let picture = picture();
    for picture in [picture.to_rgb8().into(), picture.to_rgba8().into(), picture.to_luma8().into()] {
        let bmp = encoded(&picture, ImageFormat::Bmp);
        let at = |at: u8| [&bmp[..10], &[at, 0, 0, 0], &bmp[14..]].concat();
        assert_same_print(&at(0), &bmp);
        assert_eq!(print(&at(20)).reason, Some(Reason::Broken));
    }
}

/// Covers old and new headers.
#[test]
fn planes_of_a_bmp_are_not_counted() {
    let bmp = encoded(&picture(), ImageFormat::Bmp);
    let pixels = u32::from_le_bytes(bmp[10..14].try_into().unwrap()) as usize;
    let old =
        [&bmp[..10], &[26, 0, 0, 0, 12, 0, 0, 0], &[160, 0, 120, 0, 1, 0, 24, 0], &bmp[pixels..]].concat();
    let long = [&bmp[..14], &[64, 0, 0, 0], &bmp[18..54], &[7; 24], &bmp[54..]].concat();
    let long = [&long[..10], &(pixels as u32 + 24).to_le_bytes(), &long[14..]].concat();
    for (file, at) in [(&bmp, 26), (&old, 22), (&long, 26)] {
        assert_same_print(file, &bmp);
        for planes in [0u16, 2, 3, 0xffff] {
            assert_same_print(&[&file[..at], &planes.to_le_bytes(), &file[at + 2..]].concat(), &bmp);
        }
    }
}
