//! PNG files with invalid chunks: frames with too little data, and duplicate headers.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

use image::{ImageFormat, RgbImage, imageops};
use tidegate_image_decode::Reason;
use tidegate_media::{PdqHash, State};

use crate::support::{
    fingerprints::{decoders, print},
    pictures::{self, crc, encoded},
};

const SIZE: (u32, u32) = (160, 120);
/// Place of the first chunk. Its end is the start of the second one.
const HEADER: std::ops::Range<usize> = 8..33;

fn picture(seed: u64) -> RgbImage {
    pictures::sized(seed, 3, SIZE.0, SIZE.1).image()
}

fn rows(picture: &RgbImage, count: u32) -> RgbImage {
    imageops::crop_imm(picture, 0, 0, SIZE.0, count).to_image()
}

fn encode_still(picture: &RgbImage) -> Vec<u8> {
    encoded(&picture.clone().into(), ImageFormat::Png)
}

fn hash(picture: &RgbImage) -> PdqHash {
    print(&encode_still(picture)).frames[0].pdq
}

fn chunk(kind: &[u8; 4], content: &[u8]) -> Vec<u8> {
    let body = [kind, content].concat();
    [&(content.len() as u32).to_be_bytes()[..], &body, &crc(&body).to_be_bytes()].concat()
}

/// The compressed rows of a file.
fn data(png: &[u8]) -> Vec<u8> {
    let (mut at, mut data) = (HEADER.end, Vec::new());
    while at < png.len() {
        let length = u32::from_be_bytes(png[at..at + 4].try_into().unwrap()) as usize;
        if &png[at + 4..at + 8] == b"IDAT" {
            data.extend(&png[at + 8..at + 8 + length]);
        }
        at += 12 + length;
    }
    data
}

/// An animation of frames that fill the canvas and are kept. The first frame is also the default picture. The data is split
/// into chunks of a given size.
struct Animation {
    header: Vec<u8>,
    data: Vec<Vec<u8>>,
    most: usize,
}

impl Animation {
    fn new(frames: &[Vec<u8>]) -> Self {
        let header = frames[0][HEADER].to_vec();
        Self { header, data: frames.iter().map(|frame| data(frame)).collect(), most: 5_000 }
    }

    fn chunks(&self) -> Vec<Vec<u8>> {
        let mut number = 0u32..;
        let mut next = || number.next().unwrap().to_be_bytes();
        let mut chunks =
            vec![self.header.clone(), chunk(b"acTL", &[0, 0, 0, self.data.len() as u8, 0, 0, 0, 0])];
        for (nth, data) in self.data.iter().enumerate() {
            let size = &self.header[8..16];
            chunks.push(chunk(b"fcTL", &[&next(), size, &[0; 8], &[0, 1, 0, 9, 0, 0]].concat()));
            for part in data.chunks(self.most) {
                chunks.push(match nth {
                    0 => chunk(b"IDAT", part),
                    _ => chunk(b"fdAT", &[&next(), part].concat()),
                });
            }
        }
        chunks.push(chunk(b"IEND", b""));
        chunks
    }

    fn hashes(&self) -> Vec<(u32, PdqHash)> {
        hashes(&self.chunks())
    }
}

fn file(chunks: &[Vec<u8>]) -> Vec<u8> {
    [b"\x89PNG\r\n\x1a\n", chunks.concat().as_slice()].concat()
}

fn hashes(chunks: &[Vec<u8>]) -> Vec<(u32, PdqHash)> {
    print(&file(chunks)).frames.iter().map(|frame| (frame.at, frame.pdq)).collect()
}

/// Upper rows of one picture over another picture.
fn composed(upper: &RgbImage, count: u32, other: &RgbImage) -> RgbImage {
    let mut canvas = other.clone();
    imageops::replace(&mut canvas, &rows(upper, count), 0, 0);
    canvas
}

#[test]
fn short_frame_shows_its_rows_over_the_canvas() {
    let pictures: Vec<_> = (0..5).map(picture).collect();
    let stills: Vec<_> = pictures.iter().map(encode_still).collect();
    let still_hashes: Vec<_> = (0..).zip(&pictures).map(|(at, picture)| (at, hash(picture))).collect();
    for most in [5_000, 100, 1 << 20] {
        let animation = |frames: &[Vec<u8>]| Animation { most, ..Animation::new(frames) };
        assert_eq!(animation(&stills).hashes(), still_hashes);
        for nth in 0..5 {
            // A valid frame with too few rows.
            let mut frames = stills.clone();
            frames[nth] = encode_still(&rows(&pictures[nth], 70));
            let few = Animation { header: stills[0][HEADER].to_vec(), ..animation(&frames) };
            let black = RgbImage::new(SIZE.0, SIZE.1);
            let before = nth.checked_sub(1).map_or(&black, |before| &pictures[before]);
            let mut expected_hashes = still_hashes.clone();
            expected_hashes[nth].1 = hash(&composed(&pictures[nth], 70, before));
            assert_eq!(few.hashes(), expected_hashes, "{nth}");
            // The compressed bytes end anywhere, or are garbage from there on.
            for is_cut in [true, false] {
                let mut damaged_animation = animation(&stills);
                let half = damaged_animation.data[nth].len() * 3 / 5;
                if is_cut {
                    damaged_animation.data[nth].truncate(half);
                } else {
                    damaged_animation.data[nth][half..].fill(0xff);
                }
                let mut shown_hashes = damaged_animation.hashes();
                let rows = (20..119)
                    .find(|rows| hash(&composed(&pictures[nth], *rows, before)) == shown_hashes[nth].1);
                assert!(rows.is_some(), "{nth}: {is_cut}");
                shown_hashes[nth] = still_hashes[nth];
                assert_eq!(shown_hashes, still_hashes, "{nth}: {is_cut}");
            }
        }
    }
}

#[test]
fn frames_without_a_row_hide_none_of_the_others() {
    let pictures: Vec<_> = (0..3).map(picture).collect();
    let stills: Vec<_> = pictures.iter().map(encode_still).collect();
    let [first, second, third] = [0, 1, 2].map(|at| hash(&pictures[at]));
    let animation_without = |empty: &[usize]| {
        let mut animation = Animation::new(&stills);
        empty.iter().for_each(|at| animation.data[*at].truncate(9));
        animation
    };
    assert_eq!(animation_without(&[0]).hashes(), [(1, second), (2, third)]);
    assert_eq!(animation_without(&[1]).hashes(), [(0, first), (2, third)]);
    assert_eq!(animation_without(&[2]).hashes(), [(0, first), (1, second)]);
    assert_eq!(animation_without(&[0, 1]).hashes(), [(2, third)]);
    let empty_print = print(&file(&animation_without(&[0, 1, 2]).chunks()));
    assert_eq!((empty_print.state, empty_print.reason), (State::Undecodable, Some(Reason::Broken)));
}

#[test]
fn interlaced_rows_fill_in_for_missing_ones() {
    let of_each = |picture: &RgbImage| {
        let rows: Vec<_> =
            picture.rows().map(|row| row.flat_map(|pixel| pixel.0).collect::<Vec<u8>>()).collect();
        let mut raw = Vec::new();
        for (x, y, dx, dy) in
            [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
        {
            for row in rows.iter().skip(y).step_by(dy) {
                raw.push(0);
                raw.extend(row.chunks(3).skip(x).step_by(dx).flatten());
            }
        }
        raw
    };
    // Uncompressed, so that each row ends at a known byte.
    let stored = |raw: &[u8]| {
        let parts = raw.chunks(60_000).map(|part| {
            let length = part.len() as u16;
            [&[0], &length.to_le_bytes()[..], &(!length).to_le_bytes(), part].concat()
        });
        [&[0x78, 1][..], &parts.collect::<Vec<_>>().concat()].concat()
    };
    let pictures: Vec<_> = (0..2).map(picture).collect();
    let mut header = encode_still(&pictures[0])[HEADER][8..21].to_vec();
    header[12] = 1;
    let raw: Vec<_> = pictures.iter().map(of_each).collect();
    let animation = |second: &[u8]| {
        let data = vec![stored(&raw[0]), stored(second)];
        Animation { header: chunk(b"IHDR", &header), data, most: 5_000 }
    };
    let [first, second] = [0, 1].map(|at| hash(&pictures[at]));
    assert_eq!(animation(&raw[1]).hashes(), [(0, first), (1, second)]);
    // Nine rows of the first pass, which has one of eight rows and pixels.
    let shown_hashes = animation(&raw[1][..9 * (1 + 20 * 3)]).hashes();
    let coarse = RgbImage::from_fn(SIZE.0, SIZE.1, |x, y| *pictures[1].get_pixel(x & !7, y & !7));
    assert_eq!(shown_hashes, [(0, first), (1, hash(&composed(&coarse, 72, &pictures[0])))]);
}

#[test]
fn fault_between_frames_keeps_earlier_frames() {
    let stills: Vec<_> = (0..3).map(|seed| encode_still(&picture(seed))).collect();
    let chunks = Animation { most: 1 << 20, ..Animation::new(&stills) }.chunks();
    let all_hashes = hashes(&chunks);
    let kinds: Vec<_> = chunks.iter().map(|chunk| chunk[4..8].to_vec()).collect();
    assert_eq!(
        kinds.concat(),
        b"IHDRacTLfcTLIDATfcTLfdATfcTLfdATIEND",
        "the places below are those of the last frame"
    );
    let control = |at: usize, byte: u8| {
        let mut content = chunks[6][8..34].to_vec();
        content[at] = byte;
        chunk(b"fcTL", &content)
    };
    for (name, fault) in [
        ("a number", control(3, 9)),
        ("a size", control(6, 9)),
        ("a place", control(15, 9)),
        ("a way to end", control(24, 9)),
        ("a way to blend", control(25, 9)),
        ("a header", chunks[0].clone()),
    ] {
        let mut broken_chunks = chunks.clone();
        broken_chunks[6] = fault;
        assert_eq!(hashes(&broken_chunks), all_hashes[..2], "{name}");
    }
}

/// libpng and browsers refuse a second header. Pillow uses the last one, which could be a decoy.
#[test]
fn second_header_before_the_pixels_is_an_error() {
    let still_png = encode_still(&picture(1));
    let (header, after) = (&still_png[HEADER], &still_png[HEADER.end..]);
    let smaller_header = {
        let mut content = header[8..21].to_vec();
        (content[3], content[7]) = (80, 60);
        chunk(b"IHDR", &content)
    };
    let frames = Animation::new(&[still_png.clone(), encode_still(&picture(2))]).chunks();
    for again in [header.to_vec(), smaller_header] {
        let twice = [&still_png[..HEADER.end], &again, after].concat();
        let print = print(&twice);
        assert_eq!((print.state, print.reason), (State::Undecodable, Some(Reason::Broken)));
        let mut moving = frames.clone();
        moving.insert(1, again.clone());
        let print = self::print(&file(&moving));
        assert_eq!((print.state, print.reason), (State::Undecodable, Some(Reason::Broken)));

        let end = still_png.len() - 12;
        let late_header_png = [&still_png[..end], &again, &still_png[end..]].concat();
        let luma = |bytes: &[u8]| decoders(&tidegate_media::Limits::default()).luma(bytes);
        assert_eq!(luma(&late_header_png), luma(&still_png));
        let mut moving = frames.clone();
        moving.insert(frames.len() - 1, again.clone());
        assert_eq!(hashes(&moving), hashes(&frames));
    }
    // A header of another length is invalid.
    let long = chunk(b"IHDR", &[&header[8..21], b"\0"].concat());
    let print = print(&[&still_png[..8], &long, after].concat());
    assert_eq!((print.state, print.reason), (State::Undecodable, Some(Reason::Broken)));
}
