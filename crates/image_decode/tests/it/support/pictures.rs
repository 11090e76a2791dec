//! Pictures of ten families, drawn from a seed: the same ones on every machine.
//!
//! No picture is symmetric, because half of the hash bits of a symmetric picture are rounding noise in every
//! implementation.

#![allow(dead_code, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "drawn, not measured")]

use std::{f64::consts::TAU, io::Cursor};

/// The whole file of a picture.
pub(crate) fn encoded(image: &image::DynamicImage, format: image::ImageFormat) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    image.write_to(&mut bytes, format).expect("a write to memory");
    bytes.into_inner()
}

/// The checksum of a chunk of PNG.
pub(crate) fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| (sum >> 1) ^ (0xedb8_8320 & (sum & 1).wrapping_neg()))
    })
}

pub(crate) const FAMILIES: u64 = 10;

pub(crate) struct Picture {
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) rgb: Vec<u8>,
}

impl Picture {
    /// Computes luma in floating point by the formula of the standard, independently of the service.
    pub(crate) fn luma(&self) -> Vec<u8> {
        let luma = |pixel: &[u8]| {
            let part = |at: usize, weight: f64| f64::from(pixel[at]) * weight;
            (part(0, 0.299) + part(1, 0.587) + part(2, 0.114)).round() as u8
        };
        self.rgb.chunks_exact(3).map(luma).collect()
    }

    pub(crate) fn image(&self) -> image::RgbImage {
        image::RgbImage::from_raw(self.width, self.height, self.rgb.clone())
            .expect("as many samples as pixels")
    }
}

/// SplitMix64.
pub(crate) struct Draw(u64);

impl Draw {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        (self.bits() % u64::from(bound)) as u32
    }

    pub(crate) fn part(&mut self) -> f64 {
        f64::from((self.bits() >> 32) as u32) / f64::from(u32::MAX)
    }

    fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.part()
    }

    fn draw_many<T>(&mut self, count: usize, mut one: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..count).map(|_| one(self)).collect()
    }
}

/// A picture of a family, of a size that the seed decides.
pub(crate) fn picture(family: u64, seed: u64) -> Picture {
    let mut draw = Draw::new(seed * FAMILIES + family);
    let longest = if draw.below(8) == 0 { 700 } else { 240 };
    let (width, height) = (90 + draw.below(longest - 90), 90 + draw.below(longest - 90));
    sized(family, seed, width, height)
}

pub(crate) fn sized(family: u64, seed: u64, width: u32, height: u32) -> Picture {
    let mut draw = Draw::new(!(seed * FAMILIES + family));
    let brightness = family_of(family, &mut draw);
    let tint = [draw.between(0.6, 1.0), draw.between(0.6, 1.0), draw.between(0.6, 1.0)];
    let slope = draw.between(10.0, 40.0);
    let mut rgb = Vec::with_capacity((width * height * 3) as usize);
    for y in 0..height {
        for x in 0..width {
            let (across, down) = (f64::from(x) / f64::from(width), f64::from(y) / f64::from(height));
            let value = brightness(across, down) * 215.0 + slope * (across * 0.7 + down * 0.3);
            rgb.extend(tint.iter().map(|tint| (value * tint).clamp(0.0, 255.0) as u8));
        }
    }
    Picture { width, height, rgb }
}

type Brightness = Box<dyn Fn(f64, f64) -> f64>;

fn family_of(family: u64, draw: &mut Draw) -> Brightness {
    match family {
        0 => waves(draw),
        1 => clouds(draw),
        2 => rectangles(draw),
        3 => discs(draw),
        4 => cells(draw),
        5 => strokes(draw),
        6 => bent_stripes(draw),
        7 => blots(draw),
        8 => skyline(draw),
        _ => mosaic(draw),
    }
}

fn waves(draw: &mut Draw) -> Brightness {
    let waves = draw.draw_many(9, |draw| {
        [draw.between(-14.0, 14.0), draw.between(-14.0, 14.0), draw.part() * TAU, draw.between(0.3, 1.0)]
    });
    let height: f64 = waves.iter().map(|wave| wave[3]).sum();
    Box::new(move |x, y| {
        let sum: f64 = waves.iter().map(|w| (TAU * (w[0] * x + w[1] * y) + w[2]).sin() * w[3]).sum();
        0.5 + 1.2 * sum / height
    })
}

/// Values on a grid, blended between its points.
fn grid(draw: &mut Draw, side: usize) -> impl Fn(f64, f64) -> f64 + use<> {
    let values = draw.draw_many((side + 1) * (side + 1), Draw::part);
    move |x, y| {
        let (x, y) = (x * side as f64, y * side as f64);
        let (column, row) = ((x as usize).min(side - 1), (y as usize).min(side - 1));
        let (right, down) = (x - column as f64, y - row as f64);
        let at = |column: usize, row: usize| values[row * (side + 1) + column];
        let above = at(column, row) * (1.0 - right) + at(column + 1, row) * right;
        let below = at(column, row + 1) * (1.0 - right) + at(column + 1, row + 1) * right;
        above * (1.0 - down) + below * down
    }
}

fn clouds(draw: &mut Draw) -> Brightness {
    let (broad, middle, fine) = (grid(draw, 5), grid(draw, 13), grid(draw, 31));
    Box::new(move |x, y| 0.4 * broad(x, y) + 0.4 * middle(x, y) + 0.35 * fine(x, y) - 0.05)
}

fn rectangles(draw: &mut Draw) -> Brightness {
    let all = draw.draw_many(30, |draw| {
        let (left, top) = (draw.between(-0.1, 0.95), draw.between(-0.1, 0.95));
        [left, top, left + draw.between(0.05, 0.4), top + draw.between(0.05, 0.4), draw.part()]
    });
    Box::new(move |x, y| {
        let covers = |r: &&[f64; 5]| (r[0]..r[2]).contains(&x) && (r[1]..r[3]).contains(&y);
        all.iter().rev().find(covers).map_or(0.4, |r| r[4])
    })
}

fn discs(draw: &mut Draw) -> Brightness {
    let all = draw.draw_many(40, |draw| [draw.part(), draw.part(), draw.between(0.02, 0.18), draw.part()]);
    Box::new(move |x, y| {
        let covers = |d: &&[f64; 4]| (x - d[0]).hypot(y - d[1]) < d[2];
        all.iter().rev().find(covers).map_or(0.55, |d| d[3])
    })
}

fn cells(draw: &mut Draw) -> Brightness {
    let all = draw.draw_many(45, |draw| [draw.part(), draw.part(), draw.part()]);
    Box::new(move |x, y| {
        let far = |c: &[f64; 3]| (x - c[0]).hypot(y - c[1]);
        all.iter().min_by(|one, other| far(one).total_cmp(&far(other))).map_or(0.0, |c| c[2])
    })
}

fn strokes(draw: &mut Draw) -> Brightness {
    let all = draw.draw_many(35, |draw| {
        let angle = draw.part() * TAU;
        [
            draw.part(),
            draw.part(),
            angle.cos(),
            angle.sin(),
            draw.between(0.1, 0.5),
            draw.between(0.006, 0.03),
        ]
    });
    Box::new(move |x, y| {
        let covers = |s: &[f64; 6]| {
            let (right, down) = (x - s[0], y - s[1]);
            let (along, aside) = (right * s[2] + down * s[3], right * s[3] - down * s[2]);
            (0.0..s[4]).contains(&along) && aside.abs() < s[5]
        };
        if all.iter().any(covers) { 0.05 } else { 0.9 }
    })
}

fn bent_stripes(draw: &mut Draw) -> Brightness {
    let [count, bend, pace, lean] =
        [draw.between(6.0, 16.0), draw.between(0.3, 1.2), draw.between(1.0, 3.0), draw.between(0.2, 1.0)];
    Box::new(move |x, y| {
        let phase = count * (x * lean + y * y) + bend * (TAU * pace * x * y + x).sin();
        0.5 + 0.5 * (TAU * phase).sin() * (0.4 + 0.6 * x)
    })
}

fn blots(draw: &mut Draw) -> Brightness {
    let all = draw
        .draw_many(40, |draw| [draw.part(), draw.part(), draw.between(0.02, 0.1), draw.between(-0.8, 0.8)]);
    Box::new(move |x, y| {
        let weight_at =
            |b: &[f64; 4]| b[3] * (-((x - b[0]).powi(2) + (y - b[1]).powi(2)) / (b[2] * b[2])).exp();
        0.5 + all.iter().map(weight_at).sum::<f64>()
    })
}

fn skyline(draw: &mut Draw) -> Brightness {
    let houses = draw.draw_many(18, |draw| [draw.between(0.25, 0.8), draw.part()]);
    let (sky, windows) = (grid(draw, 9), draw.between(20.0, 30.0));
    Box::new(move |x, y| {
        let house = houses[((x * 18.0) as usize).min(17)];
        if y < house[0] {
            return 0.6 + 0.4 * sky(x, y);
        }
        let lit = (x * windows * 2.0).fract() < 0.5 && (y * windows + house[1]).fract() < 0.4;
        house[1] * 0.4 + if lit { 0.5 } else { 0.0 }
    })
}

fn mosaic(draw: &mut Draw) -> Brightness {
    let (across, down) = (9 + draw.below(8) as usize, 9 + draw.below(8) as usize);
    let values = draw.draw_many(across * down, Draw::part);
    Box::new(move |x, y| {
        let (column, row) = ((x * across as f64) as usize, (y * down as f64) as usize);
        values[row.min(down - 1) * across + column.min(across - 1)]
    })
}
