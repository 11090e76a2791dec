//! Selection of the hashed frames of an animation, and their agreement with players.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

use image::{DynamicImage, ImageFormat, RgbImage, RgbaImage};
use tidegate_image_decode::Reason;
use tidegate_media::{Fingerprint, Limits, PdqHash, State};

use crate::support::{
    animated_files::{Part, apng, frames, gif, lossy_part, webp, webp_of, webp_of_parts},
    fingerprints::{decoders, print, print_within},
    pictures::{self, encoded},
};

#[test]
fn first_and_evenly_spaced_frames_are_hashed() {
    let frames = frames();
    for (bytes, within) in [(gif(&frames), 10), (webp(&frames), 0)] {
        let print = print(&bytes);
        assert_eq!(print.state, State::Ok);
        assert_eq!(print.frames.iter().map(|frame| frame.at).collect::<Vec<_>>(), [0, 2, 4, 6, 8]);
        for frame in &print.frames {
            let png = encoded(&frames[frame.at as usize].clone().into(), ImageFormat::Png);
            let frame_print = self::print(&png);
            assert!(frame_print.frames[0].pdq.distance(&frame.pdq) <= within, "{}", frame.at);
            if frame.at == 0 && within == 0 {
                assert_eq!((print.gradient8, print.dct16), (frame_print.gradient8, frame_print.dct16));
            }
        }
        let first = print_within(&Limits { frames: 0, ..Limits::default() }, &bytes);
        assert_eq!(first.frames, print.frames[..1]);
    }
}

#[test]
fn disposed_frame_is_removed() {
    let half = |nth: usize, frame: &RgbImage| {
        let mut picture = DynamicImage::from(frame.clone()).to_rgba8();
        let is_shown = |x: u32| (x < 80) == nth.is_multiple_of(2);
        picture.enumerate_pixels_mut().filter(|(x, ..)| !is_shown(*x)).for_each(|(.., it)| it.0 = [0; 4]);
        DynamicImage::from(picture)
    };
    let frames: Vec<_> = frames().iter().enumerate().map(|(nth, frame)| half(nth, frame)).collect();
    let print =
        print_within(&Limits { frames: 9, ..Limits::default() }, &webp_of(frames.clone().into_iter(), 1));
    assert_eq!((print.state, print.frames.len()), (State::Ok, 9));
    for (frame, picture) in print.frames.iter().zip(&frames) {
        let frame_print = self::print(&encoded(picture, ImageFormat::Png));
        assert_eq!(frame_print.frames[0].pdq.distance(&frame.pdq), 0, "{}", frame.at);
    }
}

#[test]
fn separate_default_picture_of_apng_is_hashed() {
    let frames = frames();
    let default = pictures::sized(7, 77, 160, 120).image();
    let print_frame = |frame: &RgbImage| print(&encoded(&frame.clone().into(), ImageFormat::Png));
    let hashes = |print: &Fingerprint| -> Vec<_> { print.frames.iter().map(|it| (it.at, it.pdq)).collect() };
    let of = |at: &u32| (*at, print_frame(&frames[*at as usize]).frames[0].pdq);
    let mut expected_hashes: Vec<_> = [0, 2, 4, 6, 8].iter().map(of).collect();
    let plain = apng(&frames, None);
    assert_eq!(hashes(&print(&plain)), expected_hashes);
    // The file is cut directly after the last frame.
    assert_eq!(hashes(&print(&plain[..plain.len() - 12])), expected_hashes);

    expected_hashes.push((9, print_frame(&default).frames[0].pdq));
    let both = apng(&frames, Some(&default));
    let print = print(&both);
    assert_eq!(hashes(&print), expected_hashes);
    assert_eq!(print.gradient8, print_frame(&frames[0]).gradient8);
    assert_eq!(hashes(&self::print(&both[..both.len() - 12])), expected_hashes);
    assert_eq!(
        decoders(&Limits::default()).luma(&both).unwrap(),
        decoders(&Limits::default()).luma(&encoded(&frames[0].clone().into(), ImageFormat::Png)).unwrap()
    );
    // The default picture is hashed even if frames are broken.
    let second = both.windows(4).enumerate().filter(|(_, kind)| *kind == b"fcTL").nth(1).unwrap().0;
    let mut broken_file = both.clone();
    broken_file[second + 7] ^= 0xff;
    assert_eq!(hashes(&self::print(&broken_file)), [expected_hashes[0], expected_hashes[5]]);
    let pixels = 160 * 120 * 10;
    for (animation_pixels, why) in [(pixels, None), (pixels - 1, Some(Reason::Animation))] {
        let limits = Limits { animation_pixels, pixels: 160 * 120, ..Limits::default() };
        assert_eq!(print_within(&limits, &both).reason, why);
    }
}

#[derive(Clone, Copy)]
struct Area(u32, u32, u32, u32);

const ALL: Area = Area(0, 0, 160, 120);

#[derive(Clone, Copy, PartialEq)]
enum After {
    Stays,
    Cleared,
    Undone,
}

fn part(seed: u64, Area(_, _, width, height): Area) -> RgbaImage {
    DynamicImage::from(pictures::sized(seed, 5, width, height).image()).to_rgba8()
}

fn with_alpha(mut picture: RgbaImage) -> RgbaImage {
    picture.enumerate_pixels_mut().filter(|(x, ..)| x % 20 < 10).for_each(|(.., pixel)| pixel.0 = [0; 4]);
    picture
}

/// Hashes of composed frames, computed pixel by pixel from area, blending and disposal of each frame.
fn compose_hashes(frames: &[(Area, bool, After, RgbaImage)]) -> Vec<PdqHash> {
    let (mut canvas, mut hashes) = (RgbaImage::new(160, 120), Vec::new());
    for (Area(x, y, width, height), is_blended, after, picture) in frames {
        let before = canvas.clone();
        for (dx, dy, pixel) in picture.enumerate_pixels() {
            if !is_blended || pixel[3] == 255 {
                canvas.put_pixel(x + dx, y + dy, *pixel);
            }
        }
        hashes.push(print(&encoded(&canvas.clone().into(), ImageFormat::Png)).frames[0].pdq);
        match after {
            After::Stays => {}
            After::Undone => canvas = before,
            After::Cleared => {
                let transparent = RgbaImage::new(*width, *height);
                image::imageops::replace(&mut canvas, &transparent, i64::from(*x), i64::from(*y));
            }
        }
    }
    hashes
}

fn all_hashes(bytes: &[u8]) -> Vec<PdqHash> {
    let print = print_within(&Limits { frames: 9, ..Limits::default() }, bytes);
    print.frames.iter().map(|frame| frame.pdq).collect()
}

#[test]
fn webp_frames_are_cleared_only_within_their_area() {
    let (left, middle, under) = (Area(10, 6, 100, 90), Area(40, 20, 90, 80), Area(0, 60, 70, 50));
    let gray = RgbaImage::from_pixel(64, 64, image::Rgba([120, 120, 120, 255]));
    let frames = [
        (ALL, true, After::Stays, part(1, ALL)),
        (middle, true, After::Cleared, part(2, middle)),
        // Only the area of the previous frame is cleared, although this frame covers the canvas.
        (ALL, true, After::Stays, with_alpha(part(3, ALL))),
        (left, true, After::Cleared, with_alpha(part(4, left))),
        // A frame without alpha, smaller than the canvas.
        (Area(90, 50, 64, 64), true, After::Stays, gray),
        (under, false, After::Cleared, with_alpha(part(5, under))),
        (left, true, After::Stays, part(6, left)),
    ];
    let file =
        frames.iter().enumerate().map(|(nth, (Area(x, y, width, height), is_blended, after, picture))| {
            if nth == 4 {
                return lossy_part();
            }
            let still_webp = encoded(&picture.clone().into(), ImageFormat::WebP);
            let disposal = u8::from(!is_blended) << 1 | u8::from(*after == After::Cleared);
            Part { at: (*x, *y), size: (*width, *height), way: disposal, chunks: still_webp[12..].to_vec() }
        });
    assert_eq!(all_hashes(&webp_of_parts(&file.collect::<Vec<_>>())), compose_hashes(&frames));
}

#[test]
fn apng_frames_apply_their_disposal() {
    let (left, middle, under) = (Area(11, 7, 99, 91), Area(41, 20, 90, 80), Area(0, 60, 71, 50));
    let frames = [
        // The first frame has no previous state to restore, so it is cleared.
        (ALL, true, After::Undone, part(1, ALL)),
        (ALL, true, After::Stays, with_alpha(part(2, ALL))),
        (middle, true, After::Cleared, part(3, middle)),
        // The restored state is the cleared one.
        (left, true, After::Undone, with_alpha(part(4, left))),
        (under, false, After::Undone, with_alpha(part(5, under))),
        (under, true, After::Stays, part(6, under)),
        (ALL, true, After::Cleared, with_alpha(part(7, ALL))),
        (middle, true, After::Stays, with_alpha(part(8, middle))),
    ];
    for deep in [false, true] {
        let depth = if deep { png::BitDepth::Sixteen } else { png::BitDepth::Eight };
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, 160, 120);
        encoder.set_color(png::ColorType::Rgba);
        encoder.set_depth(depth);
        encoder.set_animated(frames.len() as u32, 0).unwrap();
        let mut writer = encoder.write_header().unwrap();
        for (Area(x, y, width, height), is_blended, after, picture) in &frames {
            writer.reset_frame_position().unwrap();
            writer.set_frame_dimension(*width, *height).unwrap();
            writer.set_frame_position(*x, *y).unwrap();
            writer.set_blend_op(if *is_blended { png::BlendOp::Over } else { png::BlendOp::Source }).unwrap();
            let dispose = match after {
                After::Stays => png::DisposeOp::None,
                After::Cleared => png::DisposeOp::Background,
                After::Undone => png::DisposeOp::Previous,
            };
            writer.set_dispose_op(dispose).unwrap();
            let samples = picture.iter().flat_map(|sample| vec![*sample; 1 + usize::from(deep)]);
            writer.write_image_data(&samples.collect::<Vec<_>>()).unwrap();
        }
        writer.finish().unwrap();
        assert_eq!(all_hashes(&bytes), compose_hashes(&frames), "{depth:?}");
    }
}

/// Reduces a picture to the colours of one palette. The last index is transparent.
fn of_palette(picture: &RgbaImage) -> (RgbaImage, Vec<u8>) {
    let indices = picture.pixels().map(|pixel| match pixel.0 {
        [.., 0] => 255,
        [r, g, b, _] => (r / 43 * 6 + g / 43) * 6 + b / 43,
    });
    let indices: Vec<u8> = indices.collect();
    let colours = indices.iter().flat_map(|index| match index {
        255 => [0; 4],
        _ => [index / 36 * 51, index / 6 % 6 * 51, index % 6 * 51, 255],
    });
    (RgbaImage::from_raw(picture.width(), picture.height(), colours.collect()).unwrap(), indices)
}

fn gif_of(frames: &[(Area, bool, After, RgbaImage)]) -> Vec<u8> {
    let mut palette: Vec<u8> =
        (0..216).flat_map(|at: u8| [at / 36 * 51, at / 6 % 6 * 51, at % 6 * 51]).collect();
    palette.resize(3 * 255, 9);
    // The colour of a transparent pixel must not be visible.
    palette.extend([250, 10, 120]);
    let mut bytes = Vec::new();
    let mut encoder = gif::Encoder::new(&mut bytes, 160, 120, &palette).unwrap();
    for (nth, (Area(x, y, width, height), _, after, picture)) in frames.iter().enumerate() {
        let (_, pixels) = of_palette(picture);
        let mut frame =
            gif::Frame::from_indexed_pixels(*width as u16, *height as u16, pixels.clone(), Some(255));
        (frame.left, frame.top) = (*x as u16, *y as u16);
        frame.dispose = match after {
            After::Stays => [gif::DisposalMethod::Keep, gif::DisposalMethod::Any][nth % 2],
            After::Cleared => gif::DisposalMethod::Background,
            After::Undone => gif::DisposalMethod::Previous,
        };
        if nth % 3 == 1 {
            let rows = [(0, 8), (4, 8), (2, 4), (1, 2)];
            let rows = rows.into_iter().flat_map(|(from, step)| (from..*height).step_by(step));
            let row = |at: u32| &pixels[(at * width) as usize..][..*width as usize];
            frame.buffer = rows.flat_map(row).copied().collect::<Vec<_>>().into();
            frame.interlaced = true;
        }
        encoder.write_frame(&frame).unwrap();
    }
    drop(encoder);
    bytes
}

fn frames_of_gif() -> Vec<(Area, bool, After, RgbaImage)> {
    let (left, middle, beyond) = (Area(11, 7, 99, 91), Area(41, 20, 90, 80), Area(100, 60, 60, 60));
    let frames = [
        (ALL, After::Stays, part(1, ALL)),
        (middle, After::Cleared, part(3, middle)),
        (ALL, After::Stays, with_alpha(part(2, ALL))),
        (left, After::Undone, with_alpha(part(4, left))),
        (beyond, After::Undone, part(5, beyond)),
        (middle, After::Cleared, with_alpha(part(6, middle))),
        (left, After::Stays, with_alpha(part(7, left))),
    ];
    frames.into_iter().map(|(area, after, picture)| (area, true, after, of_palette(&picture).0)).collect()
}

#[test]
fn gif_frames_apply_their_disposal() {
    let mut frames = frames_of_gif();
    assert_eq!(all_hashes(&gif_of(&frames)), compose_hashes(&frames));
    // The first frame has no previous state to restore.
    frames[0].2 = After::Undone;
    assert_eq!(all_hashes(&gif_of(&frames)), compose_hashes(&frames));
    // Pixels beyond the screen are not shown.
    let full_picture = part(8, Area(0, 0, 90, 80));
    let visible_part = image::imageops::crop_imm(&full_picture, 0, 0, 60, 60).to_image();
    let area = Area(100, 60, 90, 80);
    let mut file = frames.clone();
    file[3] = (area, true, After::Cleared, of_palette(&full_picture).0);
    frames[3] = (Area(100, 60, 60, 60), true, After::Cleared, of_palette(&visible_part).0);
    assert_eq!(all_hashes(&gif_of(&file)), compose_hashes(&frames));
}

/// Firefox ends a frame at the end of its blocks and continues.
#[test]
fn gif_continues_after_a_frame_with_short_data() {
    let mut frames = frames_of_gif();
    let bytes = gif_of(&frames);
    let starts: Vec<_> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(&[0x21, 0xf9, 4])).collect();
    assert_eq!(starts.len(), 7);
    let blocks = |nth: usize| starts[nth] + 8 + 11;
    for has_rows in [true, false] {
        let (mut short, mut remaining) = (bytes[..blocks(3)].to_vec(), if has_rows { 600 } else { 3 });
        let mut at = blocks(3);
        while remaining > 0 {
            let length = remaining.min(usize::from(bytes[at]));
            assert_ne!(length, 0);
            short.push(length as u8);
            short.extend(&bytes[at + 1..=at + length]);
            (remaining, at) = (remaining - length, at + 1 + usize::from(bytes[at]));
        }
        short.push(0);
        short.extend(&bytes[starts[4]..]);
        let print = print_within(&Limits { frames: 9, ..Limits::default() }, &short);
        let places: Vec<_> = print.frames.iter().map(|frame| frame.at).collect();
        let expected_places = (0..7).filter(|nth| has_rows || *nth != 3);
        assert_eq!(places, expected_places.collect::<Vec<_>>());
        // The previous state is restored even if the frame is incomplete.
        frames[3].3 = RgbaImage::new(99, 91);
        let expected_hashes = compose_hashes(&frames);
        for frame in print.frames.iter().filter(|frame| frame.at != 3) {
            assert_eq!(frame.pdq, expected_hashes[frame.at as usize], "{}", frame.at);
        }
    }
}

#[test]
fn frames_hashed_before_a_fault_are_kept() {
    // The last frame of the GIF is incomplete, and its rows are shown.
    for (bytes, is_cut) in [(webp(&frames()), true), (gif(&frames()), false)] {
        let print = print(&bytes[..bytes.len() * 3 / 4]);
        assert_eq!((print.state, print.reason), (State::Ok, None));
        assert!(if is_cut { (1..5).contains(&print.frames.len()) } else { print.frames.len() == 5 });
    }
}

#[test]
fn unknown_extensions_do_not_hide_an_animation() {
    let gif = gif(&frames()[..3]);
    let first = gif.windows(2).position(|pair| pair == [0x21, 0xf9]).unwrap();
    let second = gif.windows(3).rposition(|three| three == [0x21, 0xf9, 4]).unwrap();
    for at in [first, second] {
        let with = [&gif[..at], b"!\x77\x01a\0", &gif[at..]].concat();
        assert_eq!(print(&with).frames, print(&gif).frames);
    }
}

/// libwebp decodes the file, and alpha is not hashed in any case.
#[test]
fn webp_without_its_declared_alpha_is_decoded() {
    let picture = lossy_part().chunks;
    let file = |flags: u8, alpha: &[u8]| {
        let head = [b"WEBPVP8X\x0a\0\0\0", &[flags, 0, 0, 0, 63, 0, 0, 63, 0, 0][..]].concat();
        let body = [&head, alpha, &picture].concat();
        [b"RIFF", &(body.len() as u32).to_le_bytes()[..], &body].concat()
    };
    let luma = |bytes: &[u8]| decoders(&Limits::default()).luma(bytes);
    let plain = luma(&file(0, b""));
    assert!(plain.is_some());
    assert_eq!(luma(&file(0x10, b"")), plain);
    assert_eq!(luma(&file(0x10, b"ALPH\x02\0\0\0\x01\xff")), plain);
}

#[test]
fn total_pixels_of_all_frames_are_limited() {
    let limits = |animation_pixels| Limits { animation_pixels, pixels: 160 * 120, ..Limits::default() };
    for bytes in [gif(&frames()), webp(&frames()), apng(&frames(), None)] {
        let print = print_within(&limits(160 * 120 * 9 - 1), &bytes);
        assert_eq!((print.state, print.reason), (State::TooLarge, Some(Reason::Animation)));
        assert_eq!(print_within(&limits(160 * 120 * 9), &bytes).state, State::Ok);
    }
}

#[test]
fn tiny_frame_counts_as_64_by_64_pixels() {
    let limits = |animation_pixels| Limits { animation_pixels, ..Limits::default() };
    let tiny: Vec<_> = (0..3).map(|seed| pictures::sized(seed, 3, 20, 16).image()).collect();
    // The codes of a WebP without loss take as long as more pixels.
    for (bytes, enough) in [(gif(&tiny), 1), (apng(&tiny, None), 1), (webp(&tiny), 2)] {
        let refused_print = print_within(&limits(3 * 64 * 64 - 1), &bytes);
        assert_eq!((refused_print.state, refused_print.reason), (State::TooLarge, Some(Reason::Animation)));
        assert_eq!(print_within(&limits(3 * 64 * 64 * enough), &bytes).frames.len(), 3);
    }
}
