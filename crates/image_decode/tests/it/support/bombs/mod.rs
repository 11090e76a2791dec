//! Small files with headers of very large pictures, for which no memory must be allocated.

#![allow(dead_code, clippy::unwrap_used, clippy::cast_possible_truncation)]

pub(crate) mod lossless;

use std::io::Cursor;

use image::{DynamicImage, ImageFormat, RgbImage};
use jpeg_encoder::{ColorType, Encoder};
use tidegate_image_decode::Reason;

use self::lossless::{Before, Codes};

/// Returns every bomb with a name and its reason of refusal.
pub(crate) fn all() -> Vec<(&'static str, Vec<u8>, Reason)> {
    vec![
        ("JPEG", jpeg_bomb(0xc0), Reason::Pixels),
        ("progressive JPEG", jpeg_bomb(0xc2), Reason::Pixels),
        ("PNG", png_bomb(30_000), Reason::Pixels),
        ("PNG of the longest side", png_bomb(u32::MAX / 2), Reason::Side),
        ("WebP", riff(&vp8(16_383)), Reason::Pixels),
        ("WebP of a small canvas", webp_with_a_large_picture_inside(false), Reason::Pixels),
        ("animated WebP of a small canvas", webp_with_a_large_picture_inside(true), Reason::Pixels),
        ("WebP of many codes", riff(&many_codes(9_000)), Reason::Memory),
        ("animated WebP of many codes", animated_codes(&[many_codes(9_000)]), Reason::Memory),
        (
            "animated WebP of frames of many codes",
            animated_codes(&vec![many_codes(500); 40]),
            Reason::Animation,
        ),
        ("GIF", gif(2_000, &[2_000; 400]), Reason::Animation),
        ("GIF of very many tiny frames", gif(8, &[1; 61_036]), Reason::Animation),
        ("GIF with a large frame", gif(64, &[64, 65_535]), Reason::Pixels),
        ("GIF of one large frame", gif(64, &[65_535]), Reason::Side),
        ("BMP", bmp_bomb(), Reason::Pixels),
        ("TIFF", tiff_bomb(20_000), Reason::Pixels),
        ("TIFF of a long side", tiff_bomb(100_000), Reason::Side),
    ]
}

fn encoded(image: &DynamicImage, format: ImageFormat) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    image.write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

/// A JPEG of one gray block's worth of data that says it has 16,384 x 16,384 pixels.
fn jpeg_bomb(marker: u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    Encoder::new(&mut bytes, 80).encode(&[90; 256], 16, 16, ColorType::Luma).expect("a JPEG");
    let frame = bytes.windows(2).position(|pair| pair == [0xff, 0xc0]).unwrap();
    bytes[frame + 1] = marker;
    bytes[frame + 5..frame + 9].copy_from_slice(&[0x40, 0, 0x40, 0]);
    bytes
}

fn png_bomb(side: u32) -> Vec<u8> {
    let mut bytes = encoded(&RgbImage::new(8, 8).into(), ImageFormat::Png);
    bytes[16..20].copy_from_slice(&side.to_be_bytes());
    bytes[20..24].copy_from_slice(&side.to_be_bytes());
    bytes
}

pub(crate) fn riff(content: &[u8]) -> Vec<u8> {
    [b"RIFF", (content.len() as u32 + 4).to_le_bytes().as_slice(), b"WEBP", content].concat()
}

pub(crate) fn chunk(kind: &[u8; 4], content: &[u8]) -> Vec<u8> {
    [kind.as_slice(), &(content.len() as u32).to_le_bytes(), content, &[0][..content.len() % 2]].concat()
}

fn vp8(side: u16) -> Vec<u8> {
    let side = side.to_le_bytes();
    chunk(b"VP8 ", &[&[0x10, 0, 0, 0x9d, 1, 0x2a], &side[..], &side, &[0; 64]].concat())
}

/// A canvas of 64 x 64 around a picture that says it has 16,383 x 16,383 pixels.
pub(crate) fn webp_with_a_large_picture_inside(animated: bool) -> Vec<u8> {
    let canvas = [u8::from(animated) * 2, 0, 0, 0, 63, 0, 0, 63, 0, 0];
    let picture = vp8(16_383);
    let content = if animated {
        let frame = [&[0; 6], &[63, 0, 0, 63, 0, 0, 50, 0, 0, 0][..], &picture].concat();
        [chunk(b"ANIM", &[0; 6]), chunk(b"ANMF", &frame), chunk(b"ANMF", &frame)].concat()
    } else {
        picture
    };
    riff(&[chunk(b"VP8X", &canvas), content].concat())
}

fn many_codes(groups: u32) -> Vec<u8> {
    chunk(b"VP8L", &lossless::vp8l(Before::Nothing, groups, Codes::Cache))
}

/// An animation of frames of 64 x 64.
pub(crate) fn animated_codes(frames: &[Vec<u8>]) -> Vec<u8> {
    let frame = |picture: &Vec<u8>| {
        chunk(b"ANMF", &[&[0; 6], &[63, 0, 0, 63, 0, 0, 50, 0, 0, 0][..], picture].concat())
    };
    let frames: Vec<u8> = frames.iter().flat_map(frame).collect();
    let canvas = [2, 0, 0, 0, 63, 0, 0, 63, 0, 0];
    riff(&[chunk(b"VP8X", &canvas), chunk(b"ANIM", &[0; 6]), frames].concat())
}

fn gif(screen: u16, frames: &[u16]) -> Vec<u8> {
    let mut bytes =
        [b"GIF89a".as_slice(), &screen.to_le_bytes(), &screen.to_le_bytes(), &[0x80, 0, 0]].concat();
    bytes.extend([0, 0, 0, 255, 255, 255]);
    for side in frames {
        bytes.extend([0x2c, 0, 0, 0, 0]);
        bytes.extend(side.to_le_bytes());
        bytes.extend(side.to_le_bytes());
        bytes.extend([0, 2, 1, 0x2c, 0]);
    }
    bytes.push(0x3b);
    bytes
}

fn bmp_bomb() -> Vec<u8> {
    let mut bytes = encoded(&RgbImage::new(8, 8).into(), ImageFormat::Bmp);
    bytes[18..22].copy_from_slice(&20_000i32.to_le_bytes());
    bytes[22..26].copy_from_slice(&(-20_000i32).to_le_bytes());
    bytes
}

/// Position of the value of an entry in the first directory.
fn tiff_value(bytes: &[u8], tag: u16) -> usize {
    let directory = u32::from_le_bytes(bytes[4..8].try_into().unwrap()) as usize;
    let entries = bytes[directory + 2..].chunks_exact(12);
    directory + 2 + 12 * entries.into_iter().position(|entry| entry[..2] == tag.to_le_bytes()).unwrap() + 8
}

fn tiff_bomb(side: u32) -> Vec<u8> {
    let mut bytes = encoded(&DynamicImage::new_luma8(8, 8), ImageFormat::Tiff);
    for tag in [256, 257] {
        let at = tiff_value(&bytes, tag);
        bytes[at..at + 4].copy_from_slice(&side.to_le_bytes());
    }
    bytes
}
