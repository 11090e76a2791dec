//! TIFF files that `image` does not read: indices into a palette, gray of two or four bits, and gray beside which further
//! samples lie, such as alpha.
//!
//! The decoder is shown all of them as gray, and the samples that it gives are looked up here. What it would read
//! otherwise than it is meant, or beyond what the header tells, it is not asked for: see `hold`.

mod directory;

use std::io::{self, Cursor, Read, Seek, SeekFrom};

use tiff::{
    ColorType, TiffError,
    decoder::{ChunkType, Decoder, DecodingResult, Limits},
    tags::Tag,
};

use self::directory::Directory;
use super::{
    Refusal,
    header::{Header, big16},
    luma,
};
use crate::fingerprint::reason;

const WHITE_IS_ZERO: u16 = 0;
const BLACK_IS_ZERO: u16 = 1;
const PALETTE: u16 = 3;

pub(super) struct Samples<'a> {
    decoder: Decoder<Shown<'a>>,
    width: u32,
    height: u32,
    bits: u8,
    per_pixel: u16,
    photometric: u16,
}

impl<'a> Samples<'a> {
    /// Nothing for a file that others read.
    pub(super) fn of(bytes: &'a [u8]) -> Result<Option<Self>, Refusal> {
        let directory = Directory::of(bytes);
        directory.as_ref().map_or(Ok(()), Directory::hold)?;
        let tag = directory.and_then(|directory| Photometric::of(&directory));
        let own = tag.filter(|tag| matches!(tag.value, WHITE_IS_ZERO | BLACK_IS_ZERO | PALETTE));
        let other = own.as_ref().map(|tag| (tag.at, tag.as_bytes(BLACK_IS_ZERO)));
        let mut decoder = Decoder::new(Shown { file: Cursor::new(bytes), other })?;
        hold(&mut decoder, bytes)?;
        let Some(tag) = own else { return Ok(None) };
        let is_palette = tag.value == PALETTE;
        let (bits, per_pixel) = match decoder.colortype()? {
            ColorType::Gray(bits @ (2 | 4)) => (bits, 1),
            ColorType::Gray(bits @ (1 | 8)) if is_palette => (bits, 1),
            ColorType::Multiband { bit_depth: bits @ (8 | 16), num_samples } if bits == 8 || !is_palette => {
                (bits, num_samples)
            }
            _ => return Ok(None),
        };
        let formats = decoder.find_tag_unsigned_vec::<u16>(Tag::SampleFormat)?;
        if formats.is_some_and(|formats| formats.iter().any(|format| *format != 1)) {
            return Err(Refusal::Undecodable(reason::UNSUPPORTED));
        }
        let (width, height) = decoder.dimensions()?;
        Ok(Some(Self { decoder, width, height, bits, per_pixel, photometric: tag.value }))
    }

    pub(super) fn header(&self) -> Header {
        let pixel_bytes = u64::from(self.per_pixel) * u64::from(self.bits.div_ceil(8));
        Header { width: self.width, height: self.height, pixel_bytes, ..Header::default() }
    }

    /// `memory`: for pixels, and for what is read before there are pixels.
    pub(super) fn luma(mut self, memory: u64) -> Result<Vec<u8>, Refusal> {
        let memory = usize::try_from(memory).unwrap_or(usize::MAX);
        let mut limits = Limits::default();
        limits.decoding_buffer_size = memory;
        limits.intermediate_buffer_size = memory;
        limits.ifd_value_size = memory;
        self.decoder = self.decoder.with_limits(limits);
        let table = self.table()?;
        let samples = self.decoder.read_image()?;
        let pixels = self.width as usize * self.height as usize;
        // Apart from each other, the first samples of all come first.
        let is_planar = self.decoder.find_tag_unsigned::<u16>(Tag::PlanarConfiguration)?;
        let step = if is_planar == Some(2) { 1 } else { usize::from(self.per_pixel).max(1) };
        let turned = self.photometric == WHITE_IS_ZERO;
        let luma: Vec<u8> = match (samples, table) {
            (DecodingResult::U8(bytes), Some(table)) if self.bits < 8 => self.unpacked(&bytes, &table),
            (DecodingResult::U8(bytes), Some(table)) => {
                bytes.iter().step_by(step).take(pixels).map(|at| table[usize::from(*at)]).collect()
            }
            (DecodingResult::U8(bytes), None) => {
                let light = |value: &u8| if turned { 255 - value } else { *value };
                bytes.iter().step_by(step).take(pixels).map(light).collect()
            }
            (DecodingResult::U16(words), None) => {
                let light = |value: &u16| luma::of_16(if turned { 65_535 - value } else { *value });
                words.iter().step_by(step).take(pixels).map(light).collect()
            }
            _ => return Err(Refusal::Undecodable(reason::UNSUPPORTED)),
        };
        Ok(luma)
    }

    /// The luma of each value that a sample may have, where it is not the value itself.
    fn table(&mut self) -> Result<Option<Vec<u8>>, Refusal> {
        if self.photometric != PALETTE {
            if self.bits >= 8 {
                return Ok(None);
            }
            let most = (1_u8 << self.bits) - 1;
            let light = |value| if self.photometric == WHITE_IS_ZERO { most - value } else { value };
            return Ok(Some((0..=most).map(|value| light(value) * (255 / most)).collect()));
        }
        let colours = self.decoder.find_tag_unsigned_vec::<u16>(Tag::ColorMap)?;
        let colours = colours.unwrap_or_default();
        let count = 1 << self.bits;
        if colours.len() != 3 * count {
            return Err(Refusal::BROKEN);
        }
        // Some write eight bits where there should be sixteen.
        let shift = if colours.iter().all(|value| *value < 256) { 0 } else { 8 };
        let part = |at: usize| (colours[at] >> shift).to_be_bytes()[1];
        Ok(Some(
            (0..count).map(|at| luma::of_rgb(part(at), part(count + at), part(2 * count + at))).collect(),
        ))
    }

    /// Rows begin with a byte of their own.
    fn unpacked(&self, bytes: &[u8], table: &[u8]) -> Vec<u8> {
        let (width, bits) = (self.width as usize, usize::from(self.bits));
        let mask = (1_u8 << self.bits) - 1;
        let sample = |row: &[u8], x: usize| row[x * bits / 8] >> (8 - bits - x * bits % 8) & mask;
        let rows = bytes.chunks_exact((width * bits).div_ceil(8));
        let mut luma = Vec::with_capacity(width * self.height as usize);
        for row in rows {
            luma.extend((0..width).map(|x| table[usize::from(sample(row, x))]));
        }
        luma
    }
}

/// Refuses what the decoder takes for something else: samples beside colours, bits in another order, and JPEG within
/// that is another picture than its part of the file.
fn hold(decoder: &mut Decoder<Shown<'_>>, bytes: &[u8]) -> Result<(), Refusal> {
    const UNSUPPORTED: Result<(), Refusal> = Err(Refusal::Undecodable(reason::UNSUPPORTED));
    const JPEG: u16 = 7;
    const FLOAT: u16 = 3;
    let mut number = |tag| decoder.find_tag_unsigned::<u16>(tag);
    let is_turned = number(Tag::FillOrder)?.is_some_and(|order| order != 1);
    let is_planar = number(Tag::PlanarConfiguration)? == Some(2);
    let (samples, compression) = (number(Tag::SamplesPerPixel)?.unwrap_or(1), number(Tag::Compression)?);
    let formats = decoder.find_tag_unsigned_vec::<u16>(Tag::SampleFormat)?.unwrap_or_default();
    let (bits, colours) = match decoder.colortype()? {
        ColorType::RGB(bits) => (bits, 3),
        ColorType::RGBA(bits) | ColorType::CMYK(bits) => (bits, 4),
        ColorType::CMYKA(bits) => (bits, 5),
        ColorType::Gray(_) | ColorType::Palette(_) => (8, 1),
        _ => (8, samples),
    };
    let is_known = samples == colours && (matches!(bits, 8 | 16) || formats.contains(&FLOAT));
    let is_tiled = decoder.get_chunk_type() == ChunkType::Tile;
    if is_turned || !is_known || is_planar && is_tiled && samples > 1 {
        return UNSUPPORTED;
    }
    if compression != Some(JPEG) {
        return Ok(());
    }
    if samples > 1 && matches!(decoder.colortype()?, ColorType::Multiband { .. }) {
        return UNSUPPORTED;
    }
    let (places, lengths) = match is_tiled {
        true => (Tag::TileOffsets, Tag::TileByteCounts),
        false => (Tag::StripOffsets, Tag::StripByteCounts),
    };
    let mut list = |tag| decoder.find_tag_unsigned_vec::<usize>(tag).map(Option::unwrap_or_default);
    let (places, lengths) = (list(places)?, list(lengths)?);
    let (width, height) = decoder.chunk_dimensions();
    let tables =
        decoder.find_tag(Tag::JPEGTables)?.map(tiff::decoder::ifd::Value::into_u8_vec).transpose()?;
    let fits = |(place, length): (&usize, &usize)| {
        let chunk = place.checked_add(*length).and_then(|end| bytes.get(*place..end));
        let frame = chunk.and_then(only_frame);
        frame.is_some_and(|(wide, high)| wide <= width && high <= height)
    };
    // Parts that lie one over the other cost more than the file has bytes.
    let all = lengths.iter().fold(0_usize, |all, length| all.saturating_add(*length));
    let is_own = all <= bytes.len() && places.len() == lengths.len();
    if is_own && frames(&tables.unwrap_or_default()).count() == 0 && places.iter().zip(&lengths).all(fits) {
        Ok(())
    } else {
        UNSUPPORTED
    }
}

/// Width and height of the one frame of a JPEG.
fn only_frame(jpeg: &[u8]) -> Option<(u32, u32)> {
    let mut frames = frames(jpeg);
    let at = frames.next().filter(|_| frames.next().is_none())?;
    Some((big16(jpeg, at + 7)?, big16(jpeg, at + 5)?))
}

/// Where frames begin, or what looks like one: between the bytes of a picture no such sign can stand.
fn frames(jpeg: &[u8]) -> impl Iterator<Item = usize> {
    memchr::memchr_iter(0xff, jpeg)
        .filter(|at| matches!(jpeg.get(at + 1), Some(0xc0..=0xc3 | 0xc5..=0xc7 | 0xc9..=0xcb | 0xcd..=0xcf)))
}

impl From<TiffError> for Refusal {
    fn from(error: TiffError) -> Self {
        match error {
            TiffError::LimitsExceeded => Self::TooLarge(reason::MEMORY),
            TiffError::UnsupportedError(_) => Self::Undecodable(reason::UNSUPPORTED),
            _ => Self::BROKEN,
        }
    }
}

/// What the first directory says that samples mean, and where it says so.
struct Photometric {
    at: u64,
    value: u16,
    is_big_endian: bool,
}

impl Photometric {
    /// Nothing of a file with offsets of eight bytes, whose palettes hardly exist.
    fn of(directory: &Directory<'_>) -> Option<Self> {
        const TAG: u16 = 262;
        const LONG: u16 = 4;
        if directory.is_wide {
            return None;
        }
        let entry = directory.entries().find(|entry| entry.tag == TAG)?;
        let is_big_endian = directory.is_big_endian;
        // One of four bytes has its value in the last of them.
        let at = entry.at + 8 + if is_big_endian && entry.kind == LONG { 2 } else { 0 };
        Some(Self { at: at as u64, value: directory.short(at)?, is_big_endian })
    }

    fn as_bytes(&self, value: u16) -> [u8; 2] {
        if self.is_big_endian { value.to_be_bytes() } else { value.to_le_bytes() }
    }
}

/// A file in which two bytes may be others.
struct Shown<'a> {
    file: Cursor<&'a [u8]>,
    other: Option<(u64, [u8; 2])>,
}

impl Read for Shown<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let begin = self.file.position();
        let count = self.file.read(buffer)?;
        for (at, value) in self.other.into_iter().flat_map(|(at, two)| (at..).zip(two)) {
            let place = at.checked_sub(begin).and_then(|place| usize::try_from(place).ok());
            if let Some(byte) = place.and_then(|place| buffer[..count].get_mut(place)) {
                *byte = value;
            }
        }
        Ok(count)
    }
}

impl Seek for Shown<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use image::{ExtendedColorType, codecs::jpeg::JpegEncoder};

    use super::*;

    /// A picture of 16 by 16 with these tags beside its size, in the order of their numbers; `data` is its one strip.
    fn file(tags: &[(u16, &[u16])], data: &[u8]) -> Vec<u8> {
        let mut all: Vec<(u16, u16, Vec<u32>)> = vec![
            (256, 4, vec![16]),
            (257, 4, vec![16]),
            (273, 4, vec![8]),
            (278, 4, vec![16]),
            (279, 4, vec![u32::try_from(data.len()).unwrap()]),
        ];
        all.retain(|(tag, ..)| !tags.iter().any(|(own, _)| own == tag));
        all.extend(tags.iter().map(|(tag, values)| {
            let kind = if matches!(tag, 273 | 279) { 4 } else { 3 };
            (*tag, kind, values.iter().map(|value| u32::from(*value)).collect())
        }));
        all.sort_unstable();
        let directory = 8 + data.len();
        let mut beyond = directory + 2 + 12 * all.len() + 4;
        let (mut entries, mut values) = (Vec::new(), Vec::new());
        for (tag, kind, list) in &all {
            let count = u32::try_from(list.len()).unwrap();
            let wide = if *kind == 4 { 4 } else { 2 };
            let mut own: Vec<u8> =
                list.iter().flat_map(|value| value.to_le_bytes()[..wide].to_vec()).collect();
            if own.len() > 4 {
                let at = u32::try_from(beyond).unwrap().to_le_bytes();
                beyond += own.len();
                values.extend(own);
                own = at.to_vec();
            }
            own.resize(4, 0);
            let parts = [&tag.to_le_bytes()[..], &kind.to_le_bytes(), &count.to_le_bytes(), &own];
            entries.extend(parts.concat());
        }
        let at = u32::try_from(directory).unwrap().to_le_bytes();
        let count = u16::try_from(all.len()).unwrap().to_le_bytes();
        [b"II*\0", &at[..], data, &count, &entries, &[0; 4], &values].concat()
    }

    fn jpeg(width: u32, height: u32, kind: ExtendedColorType) -> Vec<u8> {
        let bytes = vec![90; (width * height) as usize * usize::from(kind.channel_count())];
        let mut out = Vec::new();
        JpegEncoder::new(&mut out).encode(&bytes, width, height, kind).unwrap();
        out
    }

    fn held(tags: &[(u16, &[u16])], data: &[u8]) -> Result<(), &'static str> {
        match Samples::of(&file(tags, data)) {
            Ok(_) => Ok(()),
            Err(Refusal::Undecodable(reason)) => Err(reason),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_would_be_read_as_something_else_is_refused() {
        let data = [90; 16 * 16 * 16];
        let rgb = |samples: u16, bits: u16, more: &[(u16, &[u16])]| {
            let bits = vec![bits; usize::from(samples)];
            let own: &[(u16, &[u16])] = &[(258, &bits), (259, &[1]), (262, &[2]), (277, &[samples])];
            held(&[own, more].concat(), &data)
        };
        assert_eq!(rgb(3, 8, &[]), Ok(()));
        assert_eq!(rgb(3, 16, &[]), Ok(()));
        assert_eq!(rgb(4, 8, &[(338, &[2])]), Ok(()));
        for (what, found) in [
            ("a sample that is nothing", rgb(4, 8, &[(338, &[0])])),
            ("two samples beside colours", rgb(5, 8, &[(338, &[2, 0])])),
            ("whole numbers of 32 bits", rgb(3, 32, &[])),
            ("bits in another order", rgb(3, 8, &[(266, &[2])])),
        ] {
            assert_eq!(found, Err(reason::UNSUPPORTED), "{what}");
        }
        let gray = |more: &[(u16, &[u16])]| held(&[&[(258, &[8][..]), (262, &[1])], more].concat(), &data);
        assert_eq!(gray(&[]), Ok(()));
        assert_eq!(gray(&[(266, &[2])]), Err(reason::UNSUPPORTED));
    }

    #[test]
    fn a_jpeg_within_is_no_larger_than_its_part_and_lies_there_once() {
        let gray = |more: &[(u16, &[u16])], data: &[u8]| {
            held(&[&[(258, &[8][..]), (259, &[7]), (262, &[1])], more].concat(), data)
        };
        let own = jpeg(16, 16, ExtendedColorType::L8);
        assert_eq!(gray(&[], &own), Ok(()));
        assert_eq!(gray(&[], &jpeg(17, 16, ExtendedColorType::L8)), Err(reason::UNSUPPORTED));
        assert_eq!(gray(&[], &jpeg(16, 24, ExtendedColorType::L8)), Err(reason::UNSUPPORTED));
        let row = jpeg(16, 8, ExtendedColorType::L8);
        let length = u16::try_from(row.len()).unwrap();
        let second = [8, 8 + length];
        let apart: &[(u16, &[u16])] = &[(273, &second), (278, &[8]), (279, &[length; 2])];
        assert_eq!(gray(apart, &[&row[..], &row].concat()), Ok(()));
        let over: &[(u16, &[u16])] = &[(273, &[8; 2]), (278, &[8]), (279, &[length; 2])];
        assert_eq!(gray(over, &row), Err(reason::UNSUPPORTED));
        let both = [&own[..own.len() - 2], &own[2..]].concat();
        assert_eq!(gray(&[], &both), Err(reason::UNSUPPORTED), "two frames");
        let beside: &[(u16, &[u16])] = &[(258, &[8, 8]), (259, &[7]), (262, &[1]), (277, &[2]), (338, &[2])];
        assert_eq!(held(beside, &own), Err(reason::UNSUPPORTED));
    }
}
