//! JPEG by libjpeg-turbo's C code: its luma alone, for files that are made as nearly all are.
//!
//! Not responsible for anything else: what it refuses or warns of is left to the other decoders, which say what it is.

use turbojpeg::{Colorspace, Decompressor, Image, PixelFormat};

use super::{
    super::{
        Gray, Refusal,
        budget::{Budget, Share},
    },
    BROKEN, FIXED, gray,
    header::{Colours, JpegHeader},
    pixels, scans,
};

/// Whether it is asked: the colours need no converting, and the other decoders could read the file, too, so that what
/// has hashes is the same with and without it.
pub(super) fn takes(header: &JpegHeader) -> bool {
    header.is_plain && matches!(header.colours, Colours::Gray | Colours::YCbCr)
}

/// Faults of the C code come back as errors: TurboJPEG's interface catches them with `setjmp` within C.
pub(super) fn decode<'a>(
    bytes: &[u8],
    header: &JpegHeader,
    budget: &'a Budget,
) -> Result<(Gray, Share<'a>), Refusal> {
    // Coefficients of two bytes, and the file without the scans of colours.
    let buffered = if header.is_buffered { 2 * header.samples + bytes.len() as u64 } else { 0 };
    // Rows in work: a few of each component's blocks.
    let rows = 64 * u64::from(header.width);
    let share = budget.share(FIXED + buffered + rows + pixels(header))?;
    let lean = header.is_buffered.then(|| scans::of_component(bytes, header.components[0].id)).flatten();
    let bytes = lean.as_deref().unwrap_or(bytes);
    let mut decompressor = Decompressor::new().map_err(|_| BROKEN)?;
    decompressor.set_scan_limit(LIMIT).map_err(|_| BROKEN)?;
    let found = decompressor.read_header(bytes).map_err(|_| BROKEN)?;
    let expected = if header.colours == Colours::Gray { Colorspace::Gray } else { Colorspace::YCbCr };
    let (width, height) = (header.width as usize, header.height as usize);
    if (found.width, found.height, found.colorspace) != (width, height, expected) {
        return Err(BROKEN);
    }
    let mut samples = vec![0; width * height];
    let image =
        Image { pixels: samples.as_mut_slice(), width, pitch: width, height, format: PixelFormat::GRAY };
    decompressor.decompress(bytes, image).map_err(|_| BROKEN)?;
    Ok((gray(header, samples)?, share))
}

#[allow(clippy::cast_possible_truncation, reason = "a hundred")]
const LIMIT: u32 = scans::MOST as u32;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

    use super::*;
    use crate::{
        decode::jpeg::{by_default, header as jpeg_header, pictures},
        hashes::pdq,
    };

    const ALL: u64 = 1 << 30;

    fn jpeg(
        picture: &pictures::Picture,
        colours: ColorType,
        change: impl FnOnce(&mut Encoder<&mut Vec<u8>>),
    ) -> Vec<u8> {
        let step = if colours == ColorType::Luma { 3 } else { 1 };
        let samples: Vec<u8> = picture.rgb.iter().copied().step_by(step).collect();
        let mut bytes = Vec::new();
        let mut encoder = Encoder::new(&mut bytes, 90);
        change(&mut encoder);
        encoder.encode(&samples, 413, 299, colours).unwrap();
        bytes
    }

    /// How far the two lumas are apart at most, on average, and as hashes.
    fn apart(bytes: &[u8]) -> (u8, f64, u32) {
        let (budget, header) = (Budget::new(ALL), jpeg_header::read(bytes).unwrap());
        assert!(takes(&header));
        let ours = decode(bytes, &header, &budget).unwrap().0;
        let theirs = by_default(bytes, &header, &budget).unwrap().0;
        let apart = || ours.samples.iter().zip(&theirs.samples).map(|(a, b)| a.abs_diff(*b));
        let hash = |gray: &Gray| pdq::hash(&gray.samples, gray.width, gray.height).unwrap().hash;
        let sum: u64 = apart().map(u64::from).sum();
        #[allow(clippy::cast_precision_loss, reason = "few pixels")]
        let mean = sum as f64 / ours.samples.len() as f64;
        (apart().max().unwrap(), mean, hash(&ours).distance(&hash(&theirs)))
    }

    #[test]
    fn luma_and_hashes_are_those_of_the_default_decoder() {
        use SamplingFactor::{F_1_1, F_1_2, F_2_1, F_2_2, F_4_1};
        let mut far = Vec::new();
        for seed in 0..pictures::FAMILIES {
            let picture = pictures::sized(seed, seed, 413, 299);
            let gray = jpeg(&picture, ColorType::Luma, |_| {});
            let mut files = vec![(format!("{seed}, gray"), gray)];
            for sampling in [F_1_1, F_2_1, F_1_2, F_2_2, F_4_1] {
                for progressive in [false, true] {
                    let file = jpeg(&picture, ColorType::Rgb, |encoder| {
                        encoder.set_sampling_factor(sampling);
                        encoder.set_progressive(progressive);
                        encoder.set_restart_interval(if seed % 2 == 0 { 0 } else { 7 });
                    });
                    files.push((format!("{seed}, {sampling:?}, {progressive}"), file));
                }
            }
            for (name, file) in files {
                let (most, mean, bits) = apart(&file);
                if most > 3 || mean > 0.1 || bits > 2 {
                    far.push((name, most, mean, bits));
                }
            }
        }
        assert_eq!(far, []);
    }

    #[test]
    fn a_file_that_ends_early_or_lies_is_refused_without_unwinding() {
        let whole =
            jpeg(&pictures::sized(4, 4, 413, 299), ColorType::Rgb, |encoder| encoder.set_progressive(true));
        let budget = Budget::new(ALL);
        let header = jpeg_header::read(&whole).unwrap();
        for cut in [whole.len() / 2, whole.len() / 4] {
            assert!(matches!(decode(&whole[..cut], &header, &budget), Err(BROKEN)), "{cut}");
        }
        let mut lying = header.clone();
        lying.width += 1;
        assert!(matches!(decode(&whole, &lying, &budget), Err(BROKEN)));
        assert!(matches!(decode(b"\xff\xd8\xff\xd9", &header, &budget), Err(BROKEN)));
    }

    #[test]
    fn what_the_other_decoders_could_not_read_is_not_asked_for() {
        let whole = jpeg(&pictures::sized(4, 4, 413, 299), ColorType::Rgb, |_| {});
        let frame = whole.windows(2).position(|pair| pair == [0xff, 0xc0]).unwrap();
        for (at, value) in [(1, 0xc3), (1, 0xc9), (4, 12)] {
            let mut other = whole.clone();
            other[frame + at] = value;
            assert!(jpeg_header::read(&other).map_or(true, |header| !takes(&header)), "{value:x}");
        }
    }
}
