//! Which frames of an animation are hashed, and that they show what players show.

#![allow(clippy::unwrap_used)]

mod moving;
mod pictures;

use image::{DynamicImage, ImageFormat, RgbImage, RgbaImage};
use tidegate_media::{Decoders, Digests, Fingerprint, Limits, State, fingerprint::reason};

use self::moving::{Part, apng, encoded, frames, gif, lossy_part, webp, webp_of, webp_of_parts};

fn decoders(limits: &Limits) -> Decoders {
    Decoders::new(Limits { threads: 1, ..limits.clone() }).unwrap()
}

fn print(bytes: &[u8]) -> Fingerprint {
    print_within(&Limits::default(), bytes)
}

fn print_within(limits: &Limits, bytes: &[u8]) -> Fingerprint {
    decoders(limits).fingerprint(bytes, Digests::of(bytes))
}

#[test]
fn the_first_and_evenly_spaced_frames_of_an_animation_are_hashed() {
    let frames = frames();
    for (bytes, within) in [(gif(&frames), 10), (webp(&frames), 0)] {
        let print = print(&bytes);
        assert_eq!(print.state, State::Ok);
        assert_eq!(print.frames.iter().map(|frame| frame.at).collect::<Vec<_>>(), [0, 2, 4, 6, 8]);
        for frame in &print.frames {
            let alone = encoded(&frames[frame.at as usize].clone().into(), ImageFormat::Png);
            let alone = self::print(&alone);
            assert!(alone.frames[0].pdq.distance(&frame.pdq) <= within, "{}", frame.at);
            if frame.at == 0 && within == 0 {
                assert_eq!((print.gradient8, print.dct16), (alone.gradient8, alone.dct16));
            }
        }
        let first = print_within(&Limits { frames: 0, ..Limits::default() }, &bytes);
        assert_eq!(first.frames, print.frames[..1]);
    }
}

#[test]
fn nothing_is_left_of_a_frame_that_is_disposed_of() {
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
    for (frame, alone) in print.frames.iter().zip(&frames) {
        let alone = self::print(&encoded(alone, ImageFormat::Png));
        assert_eq!(alone.frames[0].pdq.distance(&frame.pdq), 0, "{}", frame.at);
    }
}

#[test]
fn what_an_apng_shows_to_those_who_do_not_play_it_is_hashed_beside_its_frames() {
    let frames = frames();
    let default = pictures::sized(7, 77, 160, 120).image();
    let alone = |frame: &RgbImage| print(&encoded(&frame.clone().into(), ImageFormat::Png));
    let hashes = |print: &Fingerprint| -> Vec<_> { print.frames.iter().map(|it| (it.at, it.pdq)).collect() };
    let of = |at: &u32| (*at, alone(&frames[*at as usize]).frames[0].pdq);
    let mut expected: Vec<_> = [0, 2, 4, 6, 8].iter().map(of).collect();
    let plain = apng(&frames, None);
    assert_eq!(hashes(&print(&plain)), expected);
    // The last frame came, and nothing after it.
    assert_eq!(hashes(&print(&plain[..plain.len() - 12])), expected);

    expected.push((9, alone(&default).frames[0].pdq));
    let both = apng(&frames, Some(&default));
    let print = print(&both);
    assert_eq!(hashes(&print), expected);
    assert_eq!(print.gradient8, alone(&frames[0]).gradient8);
    assert_eq!(hashes(&self::print(&both[..both.len() - 12])), expected);
    assert_eq!(
        decoders(&Limits::default()).luma(&both).unwrap(),
        decoders(&Limits::default()).luma(&encoded(&frames[0].clone().into(), ImageFormat::Png)).unwrap()
    );
    // However the frames break, it is there.
    let second = both.windows(4).enumerate().filter(|(_, kind)| *kind == b"fdAT").nth(1).unwrap().0;
    let mut broken = both.clone();
    broken[second + 20] ^= 0xff;
    assert_eq!(hashes(&self::print(&broken)), [expected[0], expected[5]]);
    let pixels = 160 * 120 * 10;
    for (animation_pixels, why) in [(pixels, None), (pixels - 1, Some(reason::ANIMATION))] {
        let limits = Limits { animation_pixels, pixels: 160 * 120, ..Limits::default() };
        assert_eq!(print_within(&limits, &both).reason, why);
    }
}

/// What frames leave on the canvas, told pixel by pixel.
#[test]
fn frames_of_a_webp_are_disposed_of_where_they_were_and_nowhere_else() {
    let part = |seed: u64, width, height| {
        DynamicImage::from(pictures::sized(seed, 5, width, height).image()).to_rgba8()
    };
    let with_alpha = |mut picture: RgbaImage| {
        picture.enumerate_pixels_mut().filter(|(x, ..)| x % 20 < 10).for_each(|(.., pixel)| pixel.0 = [0; 4]);
        picture
    };
    let all = Area(0, 0, 160, 120);
    let picture = |area: Area, way, picture: RgbaImage| (area, way, picture, None);
    let gray = RgbaImage::from_pixel(64, 64, image::Rgba([120, 120, 120, 255]));
    let frames = [
        picture(all, KEPT, part(1, 160, 120)),
        picture(Area(40, 20, 90, 80), DISPOSED, part(2, 90, 80)),
        // Only the place of the last one is cleared, although this one covers all.
        picture(all, KEPT, with_alpha(part(3, 160, 120))),
        picture(Area(10, 6, 100, 90), DISPOSED, with_alpha(part(4, 100, 90))),
        // Without alpha, and not as large as the canvas.
        (Area(90, 50, 64, 64), KEPT, gray, Some(lossy_part().chunks)),
        picture(Area(0, 60, 70, 50), DISPOSED | REPLACES, with_alpha(part(5, 70, 50))),
        picture(Area(2, 2, 60, 100), KEPT, part(6, 60, 100)),
    ];
    let (mut canvas, mut disposed) = (RgbaImage::new(160, 120), None);
    let (mut file, mut expected) = (Vec::new(), Vec::new());
    for (area, way, picture, lossy) in frames {
        let Area(x, y, width, height) = area;
        if let Some(Area(x, y, width, height)) = disposed.take() {
            image::imageops::replace(&mut canvas, &RgbaImage::new(width, height), i64::from(x), i64::from(y));
        }
        for (dx, dy, pixel) in picture.enumerate_pixels() {
            if way & REPLACES != 0 || pixel[3] == 255 {
                canvas.put_pixel(x + dx, y + dy, *pixel);
            }
        }
        disposed = (way & DISPOSED != 0).then_some(area);
        expected.push(encoded(&canvas.clone().into(), ImageFormat::Png));
        let still = lossy.unwrap_or_else(|| encoded(&picture.into(), ImageFormat::WebP)[12..].to_vec());
        file.push(Part { at: (x, y), size: (width, height), way, chunks: still });
    }
    let print = print_within(&Limits { frames: 9, ..Limits::default() }, &webp_of_parts(&file));
    let frames: Vec<_> = print.frames.iter().map(|frame| frame.pdq).collect();
    let expected: Vec<_> = expected.iter().map(|png| self::print(png).frames[0].pdq).collect();
    assert_eq!(frames, expected);
}

const KEPT: u8 = 0;
const DISPOSED: u8 = 1;
const REPLACES: u8 = 2;

#[derive(Clone, Copy)]
struct Area(u32, u32, u32, u32);

#[test]
fn what_was_hashed_before_a_fault_stands() {
    let bytes = gif(&frames());
    let print = print(&bytes[..bytes.len() * 3 / 4]);
    assert_eq!((print.state, print.reason), (State::Ok, None));
    assert!((1..5).contains(&print.frames.len()));
}

#[test]
fn all_frames_together_have_only_so_many_pixels() {
    let limits = |animation_pixels| Limits { animation_pixels, pixels: 160 * 120, ..Limits::default() };
    for bytes in [gif(&frames()), webp(&frames()), apng(&frames(), None)] {
        let print = print_within(&limits(160 * 120 * 9 - 1), &bytes);
        assert_eq!((print.state, print.reason), (State::TooLarge, Some(reason::ANIMATION)));
        assert_eq!(print_within(&limits(160 * 120 * 9), &bytes).state, State::Ok);
    }
}
