//! Runs the fuzz target of pictures from seeds: a file of every format and path, cut, joined and garbled.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

#[path = "../../../../fuzz/src/media.rs"]
#[allow(unreachable_pub, reason = "a crate of its own elsewhere")]
mod targets;

use image::{DynamicImage, Frame, ImageFormat, codecs::gif::GifEncoder};
use jpeg_encoder::{ColorType, Encoder};
use tidegate_test_support::garbled::run;

use crate::support::{
    animated_files,
    bombs::lossless,
    pictures::{self, encoded},
};

fn jpeg(image: &DynamicImage, colours: ColorType, progressive: bool) -> Vec<u8> {
    let (samples, mut bytes) = (image.to_rgba8().into_raw(), Vec::new());
    let mut encoder = Encoder::new(&mut bytes, 85);
    encoder.set_progressive(progressive);
    encoder.encode(&samples, image.width() as u16, image.height() as u16, colours).unwrap();
    bytes
}

/// Three groups behind all transforms.
fn of_many_codes() -> Vec<u8> {
    let content = lossless::vp8l(lossless::Before::Transforms, 3, lossless::Codes::Cache);
    let chunks = [b"VP8L", &(content.len() as u32).to_le_bytes()[..], &content].concat();
    animated_files::webp_of_parts(&[animated_files::Part { chunks, ..animated_files::lossy_part() }])
}

#[test]
fn garbled_file_has_a_state_and_no_decoder_panics() {
    let image = DynamicImage::from(pictures::sized(3, 9, 60, 40).image());
    let mut moving = Vec::new();
    let mut encoder = GifEncoder::new(&mut moving);
    for seed in 0..3 {
        let frame = DynamicImage::from(pictures::sized(seed, 9, 60, 40).image()).to_rgba8();
        encoder.encode_frame(Frame::new(frame)).unwrap();
    }
    drop(encoder);
    let mut seeds = vec![moving, jpeg(&image, ColorType::Rgba, false), jpeg(&image, ColorType::Rgba, true)];
    seeds.push(jpeg(&image, ColorType::CmykAsYcck, false));
    for format in [ImageFormat::Png, ImageFormat::WebP, ImageFormat::Bmp, ImageFormat::Tiff, ImageFormat::Gif]
    {
        seeds.push(encoded(&image, format));
    }
    seeds.push(encoded(&image.to_luma16().into(), ImageFormat::Png));
    let (few, lossy) = (&animated_files::frames()[..3], animated_files::lossy_part());
    seeds.extend([
        animated_files::apng(few, Some(&few[0])),
        animated_files::webp(few),
        animated_files::webp_of_parts(&[lossy]),
    ]);
    seeds.push(of_many_codes());
    let inks = seeds[3].clone();
    let mark = inks.windows(5).position(|five| five == b"Adobe").unwrap() + 11;
    seeds.push([&inks[..mark], &[9], &inks[mark + 1..]].concat());
    let seeds: Vec<&[u8]> = seeds.iter().map(Vec::as_slice).collect();
    let pieces: &[&[u8]] = &[
        b"\xff\xd8",
        b"\xff\xda",
        b"\xff\xc2",
        b"\xff\xff",
        b"\0\0\0\0",
        b"IDAT",
        b"VP8L",
        b"ANMF",
        b"\x7f\xff\xff\xff",
        b"GIF89a",
        b"IEND",
        b"fdAT",
        b"ALPH",
        b"Adobe",
    ];
    run(600, &seeds, pieces, targets::file);
}
