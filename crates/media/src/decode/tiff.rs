//! TIFF files that `image` does not read: indices into a palette, gray of two or four bits, and gray beside which further
//! samples lie, such as alpha.
//!
//! The decoder is shown all of them as gray, and the samples that it gives are looked up here.

use std::io::{self, Cursor, Read, Seek, SeekFrom};

use tiff::{
    ColorType, TiffError,
    decoder::{Decoder, DecodingResult, Limits},
    tags::Tag,
};

use super::{Refusal, header::Header, luma};
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
        let Some(tag) = Photometric::of(bytes) else { return Ok(None) };
        if !matches!(tag.value, WHITE_IS_ZERO | BLACK_IS_ZERO | PALETTE) {
            return Ok(None);
        }
        let shown = Shown { file: Cursor::new(bytes), at: tag.at, value: tag.as_bytes(BLACK_IS_ZERO) };
        let mut decoder = Decoder::new(shown)?;
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
            return Err(Refusal::Undecodable(reason::BROKEN));
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

impl From<TiffError> for Refusal {
    fn from(error: TiffError) -> Self {
        match error {
            TiffError::LimitsExceeded => Self::TooLarge(reason::MEMORY),
            TiffError::UnsupportedError(_) => Self::Undecodable(reason::UNSUPPORTED),
            _ => Self::Undecodable(reason::BROKEN),
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
    fn of(bytes: &[u8]) -> Option<Self> {
        const TAG: u16 = 262;
        let is_big_endian = match bytes.get(..4)? {
            b"II*\0" => false,
            b"MM\0*" => true,
            _ => return None,
        };
        let short = |at: usize| {
            let two = *bytes.get(at..)?.first_chunk()?;
            Some(if is_big_endian { u16::from_be_bytes(two) } else { u16::from_le_bytes(two) })
        };
        let four = *bytes.get(4..)?.first_chunk()?;
        let offset = if is_big_endian { u32::from_be_bytes(four) } else { u32::from_le_bytes(four) };
        let directory = offset as usize;
        let entries = usize::from(short(directory)?);
        let at = (0..entries).map(|nth| directory + 2 + 12 * nth).find(|at| short(*at) == Some(TAG))? + 8;
        Some(Self { at: at as u64, value: short(at)?, is_big_endian })
    }

    fn as_bytes(&self, value: u16) -> [u8; 2] {
        if self.is_big_endian { value.to_be_bytes() } else { value.to_le_bytes() }
    }
}

/// A file in which two bytes are others.
struct Shown<'a> {
    file: Cursor<&'a [u8]>,
    at: u64,
    value: [u8; 2],
}

impl Read for Shown<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let begin = self.file.position();
        let count = self.file.read(buffer)?;
        for (at, value) in (self.at..).zip(self.value) {
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
