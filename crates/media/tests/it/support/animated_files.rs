//! Animations of every format that has some, as large as their first frame.

#![allow(dead_code, clippy::unwrap_used, clippy::cast_possible_truncation)]

use image::{DynamicImage, Frame, ImageFormat, RgbImage, codecs::gif::GifEncoder};

use super::pictures::{self, encoded};

pub(crate) fn frames() -> Vec<RgbImage> {
    (0..9).map(|seed| pictures::sized(seed, 3, 160, 120).image()).collect()
}

pub(crate) fn gif(frames: &[RgbImage]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = GifEncoder::new(&mut bytes);
    for frame in frames {
        encoder.encode_frame(Frame::new(DynamicImage::from(frame.clone()).to_rgba8())).unwrap();
    }
    drop(encoder);
    bytes
}

pub(crate) fn webp(frames: &[RgbImage]) -> Vec<u8> {
    webp_of(frames.iter().map(|frame| frame.clone().into()), 2)
}

/// `way`: 1, a frame is disposed of before the next; 2, it replaces the canvas.
pub(crate) fn webp_of(frames: impl Iterator<Item = DynamicImage>, way: u8) -> Vec<u8> {
    let part = |frame: DynamicImage| {
        let still_webp = encoded(&frame, ImageFormat::WebP);
        Part { at: (0, 0), size: (frame.width(), frame.height()), way, chunks: still_webp[12..].to_vec() }
    };
    webp_of_parts(&frames.map(part).collect::<Vec<_>>())
}

/// A frame of a WebP, at an even place.
pub(crate) struct Part {
    pub(crate) at: (u32, u32),
    pub(crate) size: (u32, u32),
    pub(crate) way: u8,
    /// Chunks of a file with this frame alone.
    pub(crate) chunks: Vec<u8>,
}

pub(crate) fn webp_of_parts(frames: &[Part]) -> Vec<u8> {
    fn chunk(kind: &[u8; 4], content: &[u8]) -> Vec<u8> {
        let length = (content.len() as u32).to_le_bytes();
        [kind.as_slice(), &length, content, &[0][..content.len() % 2]].concat()
    }
    let number = |at: u32| at.to_le_bytes()[..3].to_vec();
    let mut body = b"WEBP".to_vec();
    let (width, height) = frames[0].size;
    body.extend(chunk(b"VP8X", &[vec![0x12, 0, 0, 0], number(width - 1), number(height - 1)].concat()));
    body.extend(chunk(b"ANIM", &[0; 6]));
    for Part { at: (x, y), size: (width, height), way, chunks } in frames {
        let place = [number(x / 2), number(y / 2), number(width - 1), number(height - 1)].concat();
        body.extend(chunk(b"ANMF", &[place, vec![50, 0, 0, *way], chunks.clone()].concat()));
    }
    chunk(b"RIFF", &body)
}

/// `default` is the picture for viewers without animation. It is not a frame.
pub(crate) fn apng(frames: &[RgbImage], default: Option<&RgbImage>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let (width, height) = frames[0].dimensions();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_animated(frames.len() as u32, 0).unwrap();
    encoder.set_sep_def_img(default.is_some()).unwrap();
    let mut writer = encoder.write_header().unwrap();
    default.into_iter().chain(frames).for_each(|frame| writer.write_image_data(frame).unwrap());
    writer.finish().unwrap();
    bytes
}

/// Gray of 64 x 64 without alpha, in VP8, which is not written here.
pub(crate) fn lossy_part() -> Part {
    let chunks = vec![
        0x56, 0x50, 0x38, 0x20, 0x2c, 0x00, 0x00, 0x00, 0x90, 0x03, 0x00, 0x9d, 0x01, 0x2a, 0x40, 0x00, 0x40,
        0x00, 0x3e, 0xb5, 0x5a, 0xaa, 0x4f, 0xa7, 0x25, 0x24, 0x22, 0x22, 0x08, 0x00, 0xe0, 0x16, 0x89, 0x69,
        0x00, 0x00, 0x10, 0x37, 0x53, 0x50, 0x05, 0x78, 0x85, 0xb9, 0x00, 0x00, 0xfe, 0xba, 0x60, 0x00, 0x00,
        0x00,
    ];
    Part { at: (90, 50), size: (64, 64), way: 0, chunks }
}
