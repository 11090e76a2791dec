//! All formats and variants of one picture have nearly the same hash, and other files have a state and a reason.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

use image::{
    DynamicImage, ExtendedColorType, Frame as GifFrame, ImageEncoder as _, ImageFormat, RgbImage,
    codecs::gif::GifEncoder,
};
use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
use tidegate_image_decode::{Format, Reason};
use tidegate_media::{Decoders, Digests, Limits, Orientation, PIPELINE, PdqHash, State, hashes::pdq};

use crate::support::{
    fingerprints::{decoders, print, print_within},
    pictures::{self, crc, encoded},
};

/// Odd sides, so that every block at a border is cut.
fn a_picture() -> RgbImage {
    pictures::sized(4, 11, 413, 299).image()
}

fn jpeg(samples: &[u8], colours: ColorType, change: impl FnOnce(&mut Encoder<&mut Vec<u8>>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, 92);
    change(&mut encoder);
    encoder.encode(samples, 413, 299, colours).unwrap();
    bytes
}

fn expected_hash() -> PdqHash {
    print(&encoded(&a_picture().into(), ImageFormat::Png)).frames[0].pdq
}

#[track_caller]
fn close(bytes: &[u8], format: Format, within: u32) {
    let print = print(bytes);
    assert_eq!((print.state, print.reason, print.format), (State::Ok, None, Some(format)));
    assert_eq!((print.width, print.height, print.frames.len()), (413, 299, 1));
    let distance = print.frames[0].pdq.distance(&expected_hash());
    assert!(distance <= within, "{distance} bits");
}

#[test]
fn jpeg_of_many_scans_is_decoded() {
    let file = jpeg(a_picture().as_raw(), ColorType::Rgb, |encoder| encoder.set_progressive(true));
    let repeated = |component: u8, times: usize| {
        let begins = |at: &usize| file[*at..].starts_with(&[0xff, 0xda, 0, 8, 1, component]);
        let at = (0..file.len()).rfind(begins).unwrap();
        let next = |at: &usize| file[*at] == 0xff && !matches!(file[at + 1], 0 | 0xd0..=0xd7);
        let end = (at + 10..file.len()).find(next).unwrap();
        [&file[..at], &file[at..end].repeat(times), &file[end..]].concat()
    };
    // Component ids of the encoder.
    let (luma, colour) = (0, 2);
    close(&repeated(luma, 200), Format::Jpeg, 10);
    // Scans of colours cost only the time to skip them.
    close(&repeated(colour, 200), Format::Jpeg, 10);
}

#[test]
fn jpegs_of_rare_samplings_keep_their_hashes() {
    use SamplingFactor::{F_1_2, F_1_4, F_4_1, F_4_2};
    let decoders = decoders(&Limits::default());
    let hash = |samples: &[u8]| pdq::hash(samples, 413, 299).unwrap().hash;
    let mut far = Vec::new();
    for family in 0..pictures::FAMILIES {
        let picture = pictures::sized(family, family, 413, 299);
        for sampling in [F_4_1, F_1_4, F_4_2, F_1_2] {
            for progressive in [false, true] {
                let mut file = Vec::new();
                let mut encoder = Encoder::new(&mut file, 90);
                encoder.set_sampling_factor(sampling);
                encoder.set_progressive(progressive);
                encoder.encode(&picture.rgb, 413, 299, ColorType::Rgb).unwrap();
                let decoded = decoders.luma(&file).unwrap();
                let bits = hash(&decoded.samples).distance(&hash(&picture.luma()));
                if bits > 10 {
                    far.push((family, sampling, progressive, bits));
                }
            }
        }
    }
    assert_eq!(far, []);
}

#[test]
fn lossless_formats_have_one_hash_in_every_depth() {
    let image = DynamicImage::from(a_picture());
    for (format, ours) in [
        (ImageFormat::Png, Format::Png),
        (ImageFormat::WebP, Format::WebP),
        (ImageFormat::Bmp, Format::Bmp),
        (ImageFormat::Tiff, Format::Tiff),
    ] {
        close(&encoded(&image, format), ours, 0);
    }
    close(&encoded(&image.to_rgb16().into(), ImageFormat::Png), Format::Png, 2);
    close(&encoded(&image.to_rgb16().into(), ImageFormat::Tiff), Format::Tiff, 2);
    let mut transparent = image.to_rgba8();
    transparent.pixels_mut().enumerate().for_each(|(at, pixel)| pixel[3] = (at % 256) as u8);
    for (format, ours) in [(ImageFormat::Png, Format::Png), (ImageFormat::WebP, Format::WebP)] {
        close(&encoded(&transparent.clone().into(), format), ours, 0);
    }
}

#[test]
fn palette_keeps_the_hash_close() {
    let rgba = DynamicImage::from(a_picture()).to_rgba8();
    let mut gif = Vec::new();
    GifEncoder::new(&mut gif).encode_frame(GifFrame::new(rgba.clone())).unwrap();
    close(&gif, Format::Gif, 10);
    let gray = DynamicImage::from(a_picture()).to_luma8();
    let palette: Vec<u8> = (0..=255).rev().flat_map(|value| [value; 3]).collect();
    let indices: Vec<u8> = gray.as_raw().iter().map(|value| 255 - value).collect();
    close(&png_with_palette(&indices, &palette), Format::Png, 10);
}

/// Viewers show the available rows.
#[test]
fn truncated_png_keeps_its_rows() {
    let image = DynamicImage::from(a_picture());
    let gray: Vec<u8> = image.to_luma8().into_raw();
    let palette: Vec<u8> = (0..=255).rev().flat_map(|value| [value; 3]).collect();
    for (name, png) in [
        ("colours", encoded(&image, ImageFormat::Png)),
        ("16 bits", encoded(&image.to_rgb16().into(), ImageFormat::Png)),
        ("alpha of 16 bits", encoded(&image.to_rgba16().into(), ImageFormat::Png)),
        ("gray of 16 bits", encoded(&image.to_luma16().into(), ImageFormat::Png)),
        ("gray and alpha", encoded(&image.to_luma_alpha8().into(), ImageFormat::Png)),
        ("indices", png_with_palette(&gray, &palette)),
        ("interlaced", interlaced(&a_picture())),
    ] {
        let (whole, luma) = (print(&png), decoders(&Limits::default()).luma(&png).unwrap());
        let (until_end, cut_text) = (&png[..png.len() - 12], b"\0\0\x01\0tEXtComment");
        for bytes in
            [until_end, &png[..png.len() - 5], &[until_end, cut_text].concat(), &png[..png.len() - 14]]
        {
            assert_eq!(print(bytes).frames, whole.frames, "{name}");
        }
        let cut_png = &png[..png.len() * 3 / 4];
        let print = print(cut_png);
        assert_eq!((print.state, print.reason, print.frames.len()), (State::Ok, None, 1), "{name}");
        let rows = decoders(&Limits::default()).luma(cut_png).unwrap().samples;
        let row_count =
            rows.iter().zip(&luma.samples).take_while(|(sample, full)| sample == full).count() / 413;
        if name == "interlaced" {
            let odd = |samples: &[u8]| samples.chunks(413).step_by(2).flatten().copied().collect::<Vec<_>>();
            assert_eq!(odd(&rows), odd(&luma.samples), "all but the last pass");
            assert!(
                row_count < 299 && rows.iter().all(|sample| *sample > 0),
                "decoded pixels fill in for their neighbours"
            );
        } else {
            assert!((150..290).contains(&row_count), "{name}: {row_count} rows");
            assert!(rows[(row_count + 1) * 413..].iter().all(|sample| *sample == 0), "{name}");
        }
    }
}

/// Encodes the picture as a gray GIF.
fn gif(is_interlaced: bool) -> Vec<u8> {
    let luma = DynamicImage::from(a_picture()).to_luma8().into_raw();
    let rows: Vec<_> = luma.chunks(413).collect();
    let passes: &[_] = if is_interlaced { &[(0, 8), (4, 8), (2, 4), (1, 2)] } else { &[(0, 1)] };
    let order = passes.iter().flat_map(|(first, step)| (*first..299).step_by(*step));
    let pixels: Vec<u8> = order.flat_map(|at| rows[at]).copied().collect();
    let palette: Vec<u8> = (0..=255).flat_map(|value| [value; 3]).collect();
    let mut bytes = Vec::new();
    let mut encoder = gif::Encoder::new(&mut bytes, 413, 299, &palette).unwrap();
    let mut frame = gif::Frame::from_indexed_pixels(413, 299, pixels, None);
    frame.interlaced = is_interlaced;
    encoder.write_frame(&frame).unwrap();
    drop(encoder);
    bytes
}

#[test]
fn truncated_gif_keeps_its_rows() {
    for is_interlaced in [false, true] {
        let gif = gif(is_interlaced);
        let luma = |bytes: &[u8]| decoders(&Limits::default()).luma(bytes).unwrap().samples;
        let full_luma = luma(&gif);
        assert_eq!(full_luma, DynamicImage::from(a_picture()).to_luma8().into_raw());
        assert_eq!(luma(&gif[..gif.len() - 1]), full_luma);
        // Removes the last code and the end code.
        let blocks = (0..gif.len()).rfind(|at| gif[*at..].starts_with(&[0x2c, 0, 0])).unwrap() + 11;
        let mut data = Vec::new();
        let mut at = blocks;
        while gif[at] > 0 {
            data.extend(&gif[at + 1..=at + usize::from(gif[at])]);
            at += 1 + usize::from(gif[at]);
        }
        data.truncate(data.len() - 3);
        let mut short = gif[..blocks].to_vec();
        data.chunks(255).for_each(|block| short.extend([&[block.len() as u8], block].concat()));
        short.extend([0, 0x3b]);
        for (cut, least) in [(&gif[..gif.len() - 6], 297), (&short, 297), (&gif[..gif.len() * 3 / 4], 150)] {
            let print = print(cut);
            assert_eq!((print.state, print.reason, print.frames.len()), (State::Ok, None, 1));
            let rows = luma(cut);
            let is_there = |at: usize| rows[at * 413..][..413] == full_luma[at * 413..][..413];
            let row_count = (0..299).filter(|at| is_there(*at)).count();
            assert!((least..299).contains(&row_count), "{row_count} of {least}");
            if is_interlaced {
                assert!((0..299).step_by(2).all(is_there), "all but the last pass");
                let stands_for = |at: usize| rows[at * 413..][..413] == full_luma[(at & !1) * 413..][..413];
                assert!((0..299).all(|at| is_there(at) || stands_for(at)));
            } else {
                assert!(
                    (0..row_count).all(is_there) && rows[row_count * 413..].iter().all(|sample| *sample == 0)
                );
            }
        }
        let first = (blocks..gif.len()).take(40);
        assert!(first.into_iter().all(|end| print(&gif[..end]).state == State::Undecodable));
    }
}

#[test]
fn unknown_extensions_do_not_hide_a_gif() {
    let gif = gif(false);
    let table = 13 + 3 * 256;
    for extension in [&b"!\x77\x01a\0"[..], b"!\xf9\x02ab\0", b"!\xff\x01a\xff", b"!\xfe\0\0\0"] {
        let mut extension = extension.to_vec();
        if extension[1] == 0xff {
            extension.extend([b'x'; 254]);
            extension.extend(b"x\0");
        }
        let with = [&gif[..table], &extension, &gif[table..]].concat();
        assert_eq!(print(&with).frames, print(&gif).frames, "{:x?}", &extension[..3]);
    }
}

/// A BMP stores its rows from the last to the first.
#[test]
fn truncated_bmp_keeps_its_rows() {
    let image = DynamicImage::from(a_picture());
    for (name, bmp, line) in [
        ("colours", encoded(&image, ImageFormat::Bmp), 413 * 3 + 1),
        ("indices", encoded(&image.to_luma8().into(), ImageFormat::Bmp), 416),
        ("alpha", encoded(&image.to_rgba8().into(), ImageFormat::Bmp), 413 * 4),
    ] {
        let luma = |bytes: &[u8]| decoders(&Limits::default()).luma(bytes).unwrap().samples;
        let full_luma = luma(&bmp);
        assert_eq!(luma(&bmp[..bmp.len() - usize::from(name != "alpha")]), full_luma, "{name}");
        for rows in [298, 200, 1] {
            let cut_bmp = &bmp[..bmp.len() - (299 - rows) * line];
            let cut_luma = luma(cut_bmp);
            assert_eq!(cut_luma[(299 - rows) * 413..], full_luma[(299 - rows) * 413..], "{name}");
            assert!(cut_luma[..(299 - rows) * 413].iter().all(|sample| *sample == 0), "{name}");
        }
        assert_eq!(print(&bmp[..bmp.len() - 298 * line - 2]).state, State::Undecodable, "{name}");
    }
}

#[test]
fn bmp_with_os2_header_is_decoded() {
    let image = DynamicImage::from(a_picture());
    for bmp in [encoded(&image, ImageFormat::Bmp), encoded(&image.to_luma8().into(), ImageFormat::Bmp)] {
        assert_eq!(bmp[14..18], [40, 0, 0, 0]);
        let at = u32::from_le_bytes(bmp[10..14].try_into().unwrap());
        for offset in [at + 24, 0] {
            let offset = offset.to_le_bytes();
            let os2 = [&bmp[..10], &offset, &[64, 0, 0, 0], &bmp[18..54], &[7; 24], &bmp[54..]].concat();
            assert_eq!(print(&os2).frames, print(&bmp).frames);
        }
    }
}

/// Encodes an uncompressed PNG in seven passes.
fn interlaced(picture: &RgbImage) -> Vec<u8> {
    let mut rows = Vec::new();
    for (x, y, across, down) in
        [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
    {
        for y in (y..picture.height()).step_by(down) {
            rows.push(0);
            rows.extend((x..picture.width()).step_by(across).flat_map(|x| picture.get_pixel(x, y).0));
        }
    }
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, 413, 299);
    encoder.set_color(png::ColorType::Rgb);
    let mut writer = encoder.write_header().unwrap();
    let blocks = rows.chunks(60_000).enumerate().flat_map(|(nth, block)| {
        let (last, length) = (u8::from((nth + 1) * 60_000 >= rows.len()), block.len() as u16);
        [&[last], &length.to_le_bytes()[..], &(!length).to_le_bytes(), block].concat()
    });
    let data: Vec<u8> = [0x78, 1].into_iter().chain(blocks).collect();
    writer.write_chunk(png::chunk::IDAT, &data).unwrap();
    drop(writer);
    bytes[28] = 1;
    let checksum = crc(&bytes[12..29]).to_be_bytes();
    bytes[29..33].copy_from_slice(&checksum);
    bytes
}

/// A TIFF of one strip.
struct Tiff<'a> {
    photometric: u16,
    bits: u16,
    samples: u16,
    palette: &'a [u16],
}

const GRAY: Tiff<'static> = Tiff { photometric: 1, bits: 8, samples: 1, palette: &[] };

impl Tiff<'_> {
    fn write(&self, big_endian: bool, rows: &[u8]) -> Vec<u8> {
        let short = |value: u16| if big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
        let long = |value: u32| if big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
        let palette: Vec<u8> = self.palette.iter().flat_map(|value| short(*value)).collect();
        let bits: Vec<u8> = (0..self.samples).flat_map(|_| short(self.bits)).collect();
        let mut body = if big_endian { b"MM\0*".to_vec() } else { b"II*\0".to_vec() };
        body.extend([0; 4]);
        let mut append = |bytes: &[u8]| {
            let at = body.len() as u32;
            body.extend(bytes);
            body.resize(body.len().next_multiple_of(4), 0);
            at
        };
        let (data, palette_at, length) = (append(rows), append(&palette), rows.len() as u32);
        let mut inline = |value: &[u8]| -> [u8; 4] {
            let mut four = [0; 4];
            match value.len() {
                0..=4 => four[..value.len()].copy_from_slice(value),
                _ => four = long(append(value)),
            }
            four
        };
        let bits = inline(&bits);
        let mut entries: Vec<(u16, u16, u32, [u8; 4])> = vec![
            (256, 4, 1, long(413)),
            (257, 4, 1, long(299)),
            (258, 3, self.samples.into(), bits),
            (259, 3, 1, inline(&short(1))),
            (262, 3, 1, inline(&short(self.photometric))),
            (273, 4, 1, long(data)),
            (277, 3, 1, inline(&short(self.samples))),
            (278, 4, 1, long(299)),
            (279, 4, 1, long(length)),
        ];
        if !self.palette.is_empty() {
            entries.push((320, 3, self.palette.len() as u32, long(palette_at)));
        }
        if self.samples > 1 {
            // Alpha that is not multiplied.
            entries.push((338, 3, 1, inline(&short(2))));
        }
        let at = body.len() as u32;
        body[4..8].copy_from_slice(&long(at));
        body.extend(short(entries.len() as u16));
        for (tag, kind, count, value) in entries {
            body.extend([short(tag), short(kind)].concat());
            body.extend([long(count), value].concat());
        }
        body.extend([0; 4]);
        body
    }
}

#[test]
fn gray_tiffs_of_both_byte_orders_are_close() {
    let gray = DynamicImage::from(a_picture()).to_luma8().into_raw();
    let inverted: Vec<u8> = gray.iter().map(|gray| 255 - gray).collect();
    for big_endian in [false, true] {
        close(&GRAY.write(big_endian, &gray), Format::Tiff, 2);
        close(&Tiff { photometric: 0, ..GRAY }.write(big_endian, &inverted), Format::Tiff, 2);
    }
}

/// Read as brightness, these samples would give the hash of another picture.
#[test]
fn tiff_variants_without_a_decoder_are_unsupported() {
    let gray = DynamicImage::from(a_picture()).to_luma8().into_raw();
    let with_alpha: Vec<u8> = gray.iter().flat_map(|gray| [*gray, 40]).collect();
    let palette: Vec<u16> = (0..3).flat_map(|_| (0..=255).rev().map(|value: u16| value * 257)).collect();
    for big_endian in [false, true] {
        for (name, tiff, rows) in [
            ("indices into a palette", Tiff { photometric: 3, palette: &palette, ..GRAY }, &gray),
            ("gray with alpha", Tiff { samples: 2, ..GRAY }, &with_alpha),
            ("gray of four bits", Tiff { bits: 4, ..GRAY }, &gray),
        ] {
            let print = print(&tiff.write(big_endian, rows));
            assert_eq!(
                (print.state, print.reason),
                (State::Undecodable, Some(Reason::Unsupported)),
                "{name}"
            );
        }
    }
}

/// Writes uncompressed rows. Tests that palette indices are not read as brightness.
fn png_with_palette(indices: &[u8], palette: &[u8]) -> Vec<u8> {
    let mut gray = Vec::new();
    image::codecs::png::PngEncoder::new(&mut gray)
        .write_image(indices, 413, 299, ExtendedColorType::L8)
        .unwrap();
    // Colour type 3 in place of 0, and the palette before the data.
    gray[25] = 3;
    let checksum = crc(&gray[12..29]).to_be_bytes();
    gray[29..33].copy_from_slice(&checksum);
    let chunk = [b"PLTE", palette].concat();
    let mut bytes = gray[..33].to_vec();
    bytes.extend((palette.len() as u32).to_be_bytes());
    bytes.extend(&chunk);
    bytes.extend(crc(&chunk).to_be_bytes());
    bytes.extend(&gray[33..]);
    bytes
}

#[test]
fn jpegs_of_every_kind_and_sampling_are_close() {
    use SamplingFactor::{F_1_1, F_1_2, F_1_4, F_2_1, F_2_2, F_2_4, F_4_1, F_4_2};
    let image = a_picture();
    let mut far = Vec::new();
    for sampling in [F_1_1, F_2_1, F_1_2, F_2_2, F_4_1, F_1_4, F_4_2, F_2_4] {
        for progressive in [false, true] {
            for restart in [0, 7] {
                let bytes = jpeg(&image, ColorType::Rgb, |encoder| {
                    encoder.set_sampling_factor(sampling);
                    encoder.set_progressive(progressive);
                    encoder.set_restart_interval(restart);
                });
                let distance = print(&bytes).frames[0].pdq.distance(&expected_hash());
                if distance > 4 {
                    far.push((sampling, progressive, restart, distance));
                }
            }
        }
    }
    assert_eq!(far, []);
    let gray = DynamicImage::from(image).to_luma8();
    close(&jpeg(&gray, ColorType::Luma, |_| {}), Format::Jpeg, 4);
}

#[test]
fn an_orientation_is_ignored() {
    let plain = jpeg(&a_picture(), ColorType::Rgb, |_| {});
    // One entry: orientation 6.
    let exif = b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0";
    let oriented_jpeg =
        jpeg(&a_picture(), ColorType::Rgb, |encoder| encoder.add_exif_metadata(exif).unwrap());
    assert_eq!(print(&plain).frames, print(&oriented_jpeg).frames);
}

fn inks() -> Vec<u8> {
    a_picture()
        .pixels()
        .flat_map(|pixel| {
            let black = 255 - pixel.0.iter().copied().max().unwrap();
            let ink = |light: u8| {
                let rest = 255 - u32::from(black);
                ((rest - u32::from(light)) * 255).checked_div(rest).unwrap_or_default() as u8
            };
            [ink(pixel[0]), ink(pixel[1]), ink(pixel[2]), black]
        })
        .collect()
}

#[test]
fn inks_are_converted_and_never_taken_for_light() {
    let inks = inks();
    for colours in [ColorType::Cmyk, ColorType::CmykAsYcck] {
        for progressive in [false, true] {
            close(&jpeg(&inks, colours, |encoder| encoder.set_progressive(progressive)), Format::Jpeg, 10);
        }
    }
}

/// As in libjpeg and browsers: 0 means no transform, any other value means a transform.
#[test]
fn undefined_adobe_marks_are_read_as_browsers_do() {
    let mark = |bytes: &[u8], mark: u8| {
        let at = bytes.windows(5).position(|five| five == b"Adobe").unwrap() + 11;
        [&bytes[..at], &[mark], &bytes[at + 1..]].concat()
    };
    let adobe = [0xff, 0xee, 0, 14, b'A', b'd', b'o', b'b', b'e', 0, 100, 0, 0, 0, 0, 1];
    for progressive in [false, true] {
        let inks = jpeg(&inks(), ColorType::CmykAsYcck, |encoder| encoder.set_progressive(progressive));
        let light =
            jpeg(a_picture().as_raw(), ColorType::Rgb, |encoder| encoder.set_progressive(progressive));
        let light = [&light[..2], &adobe, &light[2..]].concat();
        // Broken files are passed to zune-jpeg, which reads the mark.
        let broken_jpeg = [&light[..light.len() - 2], &[0; 9]].concat();
        for (bytes, valid_mark) in [(inks, 2), (light, 1), (broken_jpeg, 1)] {
            let expected_print = print(&mark(&bytes, valid_mark));
            for other in [1, 3, 77, 255] {
                close(&mark(&bytes, other), Format::Jpeg, 10);
                let frames = print(&mark(&bytes, other)).frames;
                assert!(frames[0].pdq.distance(&expected_print.frames[0].pdq) <= 2, "{other}");
            }
        }
    }
}

/// The planes are red, green and blue although they are encoded as if they were luma and chroma.
fn jpeg_of_planes() -> Vec<u8> {
    jpeg(&a_picture(), ColorType::Ycbcr, |encoder| encoder.set_sampling_factor(SamplingFactor::F_1_1))
}

#[test]
fn the_first_plane_of_an_rgb_file_is_not_taken_for_luma() {
    let bytes = jpeg_of_planes();
    let app0 = usize::from(u16::from_be_bytes([bytes[4], bytes[5]])) + 4;
    assert_eq!(bytes[2..4], [0xff, 0xe0]);
    let adobe = [0xff, 0xee, 0, 14, b'A', b'd', b'o', b'b', b'e', 0, 100, 0, 0, 0, 0, 0];
    close(&[&bytes[..2], &adobe, &bytes[app0..]].concat(), Format::Jpeg, 4);

    let mut named_planes = [&bytes[..2], &bytes[app0..]].concat();
    let frame = named_planes.windows(2).position(|pair| pair == [0xff, 0xc0]).unwrap();
    let scan = named_planes.windows(2).position(|pair| pair == [0xff, 0xda]).unwrap();
    for (at, name) in b"RGB".iter().enumerate() {
        named_planes[frame + 10 + 3 * at] = *name;
        named_planes[scan + 5 + 2 * at] = *name;
    }
    close(&named_planes, Format::Jpeg, 4);
}

#[test]
fn second_decoder_reads_files_the_first_cannot() {
    // Marked both as Adobe RGB and as JFIF. JFIF takes precedence.
    let bytes = jpeg(&a_picture(), ColorType::Rgb, |_| {});
    let app0 = usize::from(u16::from_be_bytes([bytes[4], bytes[5]])) + 4;
    let adobe = [0xff, 0xee, 0, 14, b'A', b'd', b'o', b'b', b'e', 0, 100, 0, 0, 0, 0, 0];
    close(&[&bytes[..app0], &adobe, &bytes[app0..]].concat(), Format::Jpeg, 4);
}

#[test]
fn fingerprint_has_every_hash_and_its_pipeline() {
    let bytes = encoded(&a_picture().into(), ImageFormat::Png);
    let print = print(&bytes);
    assert_eq!(print.digests, Digests::of(&bytes));
    assert_eq!(print.pipeline, PIPELINE);
    assert_eq!(print.frames[0].turned.len(), Orientation::ALL.len());
    assert!(print.gradient8.is_some_and(|hash| hash != [0; 8]));
    let weight: u32 = print.dct16.unwrap().iter().map(|byte| byte.count_ones()).sum();
    assert!((100..=156).contains(&weight), "{weight}");
}

#[test]
fn mirrored_picture_is_found_by_a_reoriented_hash() {
    let image = DynamicImage::from(a_picture());
    let original = print(&encoded(&image, ImageFormat::Png));
    for (turned, turn) in [
        (image.fliph(), Orientation::MirrorLeftRight),
        (image.flipv(), Orientation::MirrorTopBottom),
        (image.rotate90(), Orientation::Right),
        (image.rotate180(), Orientation::Around),
        (image.rotate270(), Orientation::Left),
    ] {
        let turned_hash = print(&encoded(&turned, ImageFormat::Png)).frames[0].pdq;
        let at = Orientation::ALL.iter().position(|known| *known == turn).unwrap();
        let distance = turned_hash.distance(&original.frames[0].turned[at]);
        assert!(distance <= 31, "{}: {distance} bits", turn.tag());
        assert!(turned_hash.distance(&original.frames[0].pdq) > 60, "{}", turn.tag());
    }
}

#[test]
fn unhashable_file_reports_its_reason() {
    let small = |width, height| encoded(&RgbImage::new(width, height).into(), ImageFormat::Png);
    let png = encoded(&a_picture().into(), ImageFormat::Png);
    let jpeg = jpeg(&a_picture(), ColorType::Rgb, |_| {});
    let limits = Limits::default;
    for (limits, bytes, state, why) in [
        (limits(), b"".to_vec(), State::Undecodable, Some(Reason::UnknownFormat)),
        (limits(), b"<svg/>".to_vec(), State::Undecodable, Some(Reason::UnknownFormat)),
        (limits(), b"GIF89a".to_vec(), State::Undecodable, Some(Reason::Broken)),
        (limits(), b"\xff\xd8\xff\xe0".to_vec(), State::Undecodable, Some(Reason::Broken)),
        (limits(), b"RIFF\x04\0\0\0WEBP".to_vec(), State::Undecodable, Some(Reason::Broken)),
        (limits(), png[..60].to_vec(), State::Undecodable, Some(Reason::Broken)),
        (limits(), png[..200].to_vec(), State::LowQuality, None),
        (limits(), small(4, 900), State::TooSmall, None),
        (limits(), small(90, 90), State::LowQuality, None),
        (Limits { bytes: 1_000, ..limits() }, png.clone(), State::TooLarge, Some(Reason::Bytes)),
        (Limits { pixels: 413 * 299 - 1, ..limits() }, png.clone(), State::TooLarge, Some(Reason::Pixels)),
        (Limits { side: 412, ..limits() }, jpeg.clone(), State::TooLarge, Some(Reason::Side)),
        (Limits { decode_bytes: 1 << 20, ..limits() }, jpeg, State::TooLarge, Some(Reason::Memory)),
    ] {
        let print = print_within(&limits, &bytes);
        assert_eq!((print.state, print.reason), (state, why), "{:?}", print.format);
        assert_eq!(print.digests, Digests::of(&bytes));
    }
}

#[test]
fn concurrent_files_share_one_budget() {
    let decoders = Decoders::new(Limits { threads: 4, decode_bytes: 6 << 20, ..Limits::default() }).unwrap();
    let files: Vec<_> = (0..24)
        .map(|seed| encoded(&pictures::sized(seed % 10, seed, 140, 130).image().into(), ImageFormat::Png))
        .collect();
    let (send, receive) = std::sync::mpsc::channel();
    for (at, file) in files.iter().enumerate() {
        let send = send.clone();
        decoders.submit(file.clone(), Digests::of(file), move |print| send.send((at, print)).unwrap());
    }
    drop(send);
    let mut print_count = 0;
    for (at, print) in receive {
        assert_eq!(print.digests, Digests::of(&files[at]));
        assert!(!print.frames.is_empty(), "{:?}", print.reason);
        print_count += 1;
    }
    assert_eq!(print_count, files.len());
}
