//! Memory use of decoding: pictures with too large a header are refused without allocation, and decoding allocates at most
//! its reservation. A separate process, because its global allocator counts.

#![allow(unsafe_code, clippy::unwrap_used, clippy::cast_possible_truncation)]

#[path = "it/support/mod.rs"]
mod support;

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use image::{DynamicImage, ImageFormat, RgbImage};
use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
use tidegate_image_decode::Reason;
use tidegate_media::{Decoders, Digests, Fingerprint, Limits, State};

use self::support::{
    animated_files,
    bombs::{
        self,
        lossless::{Before, Codes, stream, vp8l},
    },
    pictures::{self, encoded},
};

/// Allocator that counts the allocated bytes and their peak.
struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator does all the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held_bytes = HELD.fetch_add(layout.size(), SeqCst) + layout.size();
        PEAK.fetch_max(held_bytes, SeqCst);
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let held_bytes = HELD.fetch_add(layout.size(), SeqCst) + layout.size();
        PEAK.fetch_max(held_bytes, SeqCst);
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), SeqCst);
        unsafe { System.dealloc(at, layout) };
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Runs one test at a time, because all tests share the counters.
fn lock_counters() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

const MIB: usize = 1 << 20;

/// Returns a fingerprint and the peak of allocated bytes while it was computed.
fn measured(limits: &Limits, bytes: &[u8]) -> (Fingerprint, usize) {
    measured_by(&warm(limits), bytes)
}

/// Returns decoders with their threads, tables and plans already built.
fn warm(limits: &Limits) -> Decoders {
    let decoders = Decoders::new(Limits { threads: 1, ..limits.clone() }).unwrap();
    decoders.fingerprint(&png(&pictures::sized(1, 1, 90, 80).image()), Digests::of(b""));
    decoders
}

fn measured_by(decoders: &Decoders, bytes: &[u8]) -> (Fingerprint, usize) {
    let digests = Digests::of(bytes);
    let before = HELD.load(SeqCst);
    PEAK.store(before, SeqCst);
    let print = decoders.fingerprint(bytes, digests);
    (print, PEAK.load(SeqCst) - before)
}

fn png(image: &RgbImage) -> Vec<u8> {
    encoded(&image.clone().into(), ImageFormat::Png)
}

fn jpeg(
    width: u16,
    height: u16,
    colours: ColorType,
    change: impl FnOnce(&mut Encoder<&mut Vec<u8>>),
) -> Vec<u8> {
    let picture = pictures::sized(7, 5, width.into(), height.into());
    let per_pixel = match colours {
        ColorType::Luma => 1,
        ColorType::Rgb => 3,
        _ => 4,
    };
    let samples: Vec<u8> = picture
        .rgb
        .chunks_exact(3)
        .flat_map(|pixel| [pixel[0], pixel[1], pixel[2], 40].into_iter().take(per_pixel))
        .collect();
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, 80);
    change(&mut encoder);
    encoder.encode(&samples, width, height, colours).unwrap();
    bytes
}

#[test]
fn bomb_is_refused_before_any_picture_is_allocated() {
    let _guard = lock_counters();
    for (name, bytes, why) in bombs::all() {
        let (print, held) = measured(&Limits::default(), &bytes);
        assert_eq!((print.state, print.reason), (State::TooLarge, Some(why)), "{name}");
        assert!(print.frames.is_empty());
        assert!(held < 64 * 1024, "{name}: {held} bytes");
    }
}

#[test]
fn tiff_with_false_sizes_stays_within_its_share() {
    let _guard = lock_counters();
    let tiff = encoded(&pictures::sized(2, 2, 64, 64).image().into(), ImageFormat::Tiff);
    let long = [&tiff[..], &vec![0; 5 * MIB]].concat();
    for (label, tiff, place, value) in [
        ("value", &tiff, 8, 0x7fff_ffff_u32),
        ("number of values", &tiff, 4, 4 * MIB as u32),
        ("number of values that are there", &long, 4, MIB as u32),
    ] {
        let directory = u32::from_le_bytes(tiff[4..8].try_into().unwrap()) as usize;
        let entries = u16::from_le_bytes(tiff[directory..directory + 2].try_into().unwrap());
        for entry in 0..entries as usize {
            let mut bytes = tiff.clone();
            let at = directory + 2 + 12 * entry + place;
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
            let (print, held) = measured(&Limits::default(), &bytes);
            assert!(held < 8 * MIB, "{label}, entry {entry}: {held} bytes, {:?}", print.reason);
        }
    }
}

/// Checks that the peak of a file is at most its reservation, and that a budget smaller by one byte refuses the file.
#[track_caller]
fn holds_its_share(name: &str, bytes: &[u8]) {
    let (print, held) = measured(&Limits::default(), bytes);
    assert!(!print.frames.is_empty(), "{name}: {:?}", print.reason);
    let (refused, _) = measured(&Limits { decode_bytes: held as u64 - 1, ..Limits::default() }, bytes);
    assert_eq!(refused.reason, Some(Reason::Memory), "{name}: {held} bytes held");
}

#[test]
fn decoding_holds_no_more_than_its_share_of_the_budget() {
    let _guard = lock_counters();
    let rgb = pictures::sized(7, 5, 900, 700).image();
    let image = DynamicImage::from(rgb.clone());
    let mut transparent = image.to_rgba8();
    transparent.pixels_mut().for_each(|pixel| pixel[3] = pixel[0]);
    let transparent = DynamicImage::from(transparent);
    for (name, image, format) in [
        ("PNG", &image, ImageFormat::Png),
        ("PNG with alpha", &transparent, ImageFormat::Png),
        ("PNG of 16 bits", &DynamicImage::from(transparent.to_rgba16()), ImageFormat::Png),
        ("gray PNG", &DynamicImage::from(image.to_luma8()), ImageFormat::Png),
        ("WebP", &image, ImageFormat::WebP),
        ("WebP with alpha", &transparent, ImageFormat::WebP),
        ("BMP", &image, ImageFormat::Bmp),
        ("TIFF", &image, ImageFormat::Tiff),
        ("TIFF of 16 bits", &DynamicImage::from(image.to_rgb16()), ImageFormat::Tiff),
        ("GIF", &image, ImageFormat::Gif),
    ] {
        holds_its_share(name, &encoded(image, format));
    }
    let mut animated = Vec::new();
    let mut encoder = image::codecs::gif::GifEncoder::new(&mut animated);
    for _ in 0..3 {
        encoder.encode_frame(image::Frame::new(image.to_rgba8())).unwrap();
    }
    drop(encoder);
    holds_its_share("animated GIF", &animated);
    let mut animated = animated_files::apng(&animated_files::frames(), Some(&animated_files::frames()[3]));
    holds_its_share("animated PNG", &animated);
    // Each frame's decoder would get a copy.
    let transparency = [&(5 * MIB as u32).to_be_bytes()[..], b"tRNS", &vec![0; 5 * MIB + 4]].concat();
    animated.splice(33..33, transparency);
    holds_its_share("animated PNG with a long transparency", &animated);
    let parts = animated_files::frames().into_iter().map(Into::into);
    holds_its_share("animated WebP", &animated_files::webp_of(parts, 1));
}

/// Groups of every kind, in numbers at which their list has just grown.
#[test]
fn codes_of_a_lossless_webp_hold_no_more_than_their_share() {
    let _guard = lock_counters();
    let kinds = [(16_400, Codes::Least), (400, Codes::Cache), (300, Codes::Tables), (150, Codes::Trees)];
    let lossy = &animated_files::lossy_part().chunks;
    for (groups, codes) in kinds {
        for before in [Before::Nothing, Before::Transforms] {
            let picture = bombs::chunk(b"VP8L", &vp8l(before, groups, codes));
            let alpha = bombs::chunk(b"ALPH", &[vec![1], stream(before, groups, codes)].concat());
            let alpha = bombs::animated_codes(&[[&alpha, &lossy[..]].concat()]);
            let name = format!("{codes:?} after {before:?}");
            holds_its_share(&name, &bombs::riff(&picture));
            holds_its_share(&format!("{name}, animated"), &bombs::animated_codes(&[picture]));
            holds_its_share(&format!("{name}, alpha"), &alpha);
        }
    }
}

/// A picture that is decoded and not shown.
fn in_a_smaller_frame(picture: &[u8]) -> Vec<u8> {
    let mut bytes = bombs::animated_codes(&[picture.to_vec()]);
    let at = bytes.windows(4).position(|kind| kind == b"ANMF").unwrap() + 8;
    bytes[at + 6] = 31;
    bytes
}

#[test]
fn codes_beyond_the_budget_are_refused_before_any_is_built() {
    let _guard = lock_counters();
    let limits = Limits { decode_bytes: 16 << 20, ..Limits::default() };
    let lossy = &animated_files::lossy_part().chunks;
    for before in [Before::Nothing, Before::Transforms] {
        let picture = |groups| bombs::chunk(b"VP8L", &vp8l(before, groups, Codes::Cache));
        let alpha = bombs::chunk(b"ALPH", &[vec![1], stream(before, 240, Codes::Cache)].concat());
        for (name, bytes) in [
            ("still", bombs::riff(&picture(240))),
            ("a frame of another size", in_a_smaller_frame(&picture(240))),
            ("a later frame", bombs::animated_codes(&[picture(1), picture(240)])),
            ("alpha", bombs::animated_codes(&[[&alpha, &lossy[..]].concat()])),
        ] {
            let (print, held) = measured(&limits, &bytes);
            assert_eq!((print.state, print.reason), (State::TooLarge, Some(Reason::Memory)), "{name}");
            assert!(held < 64 * 1024, "{name}: {held} bytes");
        }
        let (print, _) = measured(&limits, &bombs::riff(&picture(200)));
        assert_eq!(print.reason, None);
    }
}

#[test]
fn jpegs_of_every_kind_stay_within_their_share() {
    let _guard = lock_counters();
    use SamplingFactor::{F_1_1, F_1_2, F_2_1, F_2_2, F_4_1};
    for colours in [ColorType::Luma, ColorType::Rgb, ColorType::CmykAsYcck] {
        for sampling in [F_1_1, F_2_1, F_1_2, F_2_2, F_4_1] {
            for progressive in [false, true] {
                let bytes = jpeg(900, 700, colours, |encoder| {
                    encoder.set_sampling_factor(sampling);
                    encoder.set_progressive(progressive);
                });
                let name = format!("{colours:?} {sampling:?} {progressive}");
                holds_its_share(&name, &bytes);
                holds_its_share(&format!("{name}, for another decoder"), &with_a_stray_byte(bytes));
            }
        }
    }
}

/// Adds a byte after the data of a scan. The first decoder refuses it, zune-jpeg does not.
fn with_a_stray_byte(mut bytes: Vec<u8>) -> Vec<u8> {
    let is_end = |pair: &[u8]| pair[0] == 0xff && !matches!(pair[1], 0 | 0xd0..=0xd7);
    let scan = bytes.windows(2).position(|pair| pair == [0xff, 0xda]).unwrap() + 2;
    let end = scan + bytes[scan..].windows(2).position(is_end).unwrap();
    bytes.splice(end..end, [0, 0]);
    bytes
}

#[test]
fn jpeg_with_large_segments_stays_within_its_share() {
    let _guard = lock_counters();
    for progressive in [false, true] {
        let bytes = jpeg(300, 200, ColorType::Rgb, |encoder| {
            encoder.set_progressive(progressive);
            (0..40).for_each(|_| encoder.add_app_segment(3, vec![7; 60_000]).unwrap());
        });
        holds_its_share(&format!("{progressive}"), &bytes);
    }
}

/// One file of every format and path through the decoders.
fn one_of_each() -> Vec<(&'static str, Vec<u8>)> {
    let image = DynamicImage::from(pictures::sized(3, 9, 60, 40).image());
    let mut moving = Vec::new();
    let mut encoder = image::codecs::gif::GifEncoder::new(&mut moving);
    for seed in 0..3 {
        let frame = DynamicImage::from(pictures::sized(seed, 9, 60, 40).image()).to_rgba8();
        encoder.encode_frame(image::Frame::new(frame)).unwrap();
    }
    drop(encoder);
    let jpeg = |colours, progressive| jpeg(60, 40, colours, |encoder| encoder.set_progressive(progressive));
    vec![
        ("JPEG", jpeg(ColorType::Rgb, false)),
        ("progressive JPEG", jpeg(ColorType::Rgb, true)),
        ("JPEG of inks", jpeg(ColorType::CmykAsYcck, false)),
        ("PNG", encoded(&image, ImageFormat::Png)),
        (
            "animated PNG",
            animated_files::apng(&animated_files::frames()[..3], Some(&animated_files::frames()[3])),
        ),
        ("WebP", encoded(&image, ImageFormat::WebP)),
        (
            "WebP of many codes",
            bombs::riff(&bombs::chunk(b"VP8L", &vp8l(Before::Transforms, 9, Codes::Tables))),
        ),
        ("BMP", encoded(&image, ImageFormat::Bmp)),
        ("TIFF", encoded(&image, ImageFormat::Tiff)),
        ("GIF", encoded(&image, ImageFormat::Gif)),
        ("animated GIF", moving),
        (
            "animated WebP",
            animated_files::webp_of(animated_files::frames().into_iter().take(3).map(Into::into), 1),
        ),
        ("animated WebP of a large picture", bombs::webp_with_a_large_picture_inside(true)),
    ]
}

/// Number of broken forms of each file. `TIDEGATE_MEDIA_CASES` sets it for a longer run.
fn cases() -> usize {
    std::env::var("TIDEGATE_MEDIA_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(150)
}

#[test]
fn broken_files_stay_within_the_budget_and_the_pool_lives() {
    let _guard = lock_counters();
    const BUDGET: usize = 24 * MIB;
    let limits = Limits { decode_bytes: BUDGET as u64, pixels: 500_000, ..Limits::default() };
    let decoders = warm(&limits);
    let mut draw = pictures::Draw::new(17);
    for (name, original) in one_of_each() {
        for case in 0..cases() {
            let mut bytes = original.clone();
            for _ in 0..=draw.below(4) {
                // Faults in headers reach most checks.
                let reach = if draw.below(2) == 0 { bytes.len().min(64) } else { bytes.len() };
                let at = draw.below(reach as u32) as usize;
                bytes[at] = match draw.below(3) {
                    0 => 0xff,
                    1 => bytes[at] ^ (1 << draw.below(8)),
                    _ => draw.bits() as u8,
                };
            }
            if draw.below(4) == 0 {
                bytes.truncate(draw.below(bytes.len() as u32) as usize);
            }
            let (print, held) = measured_by(&decoders, &bytes);
            assert!(held <= BUDGET + MIB, "{name}, case {case}: {held} bytes held, {:?}", print.state);
            assert_eq!(print.frames.is_empty(), !matches!(print.state, State::Ok | State::LowQuality));
        }
    }
}
