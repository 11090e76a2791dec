//! TIFF: checks the first directory, then decodes with `image`.
//!
//! Refuses directories that would make the decoder allocate too much, and variants that the decoder misreads.

use std::io::Cursor;

use image::{DynamicImage, ImageDecoder as _, codecs::tiff::TiffDecoder};

use super::{DecodeError, fallback::catch_panic, header::Header, image_decoder};
use crate::Format;

const BITS_PER_SAMPLE: u16 = 258;
const COMPRESSION: u16 = 259;
const PHOTOMETRIC: u16 = 262;
const FILL_ORDER: u16 = 266;
const SAMPLES_PER_PIXEL: u16 = 277;
const PLANAR_CONFIGURATION: u16 = 284;
const TILE_OFFSETS: u16 = 324;
const EXTRA_SAMPLES: u16 = 338;
const SAMPLE_FORMAT: u16 = 339;

/// Tags read by the decoder: sizes, samples, colours, strips, tiles and tables.
const READ_TAGS: [u16; 24] = [
    254, 255, 256, 257, 258, 259, 262, 266, 273, 274, 277, 278, 279, 284, 317, 320, 322, 323, 324, 325, 338,
    339, 347, 530,
];

/// Largest number of values in one entry. The decoder allocates 32 bytes for each before reading the first.
const MAX_VALUES: u64 = 1 << 17;

pub(super) fn read_header(bytes: &[u8]) -> Result<Header, DecodeError> {
    let directory = Directory::find(bytes).ok_or(DecodeError::BROKEN)?;
    directory.check_value_counts()?;
    directory.check_variant()?;
    // `image` reads the size, so that the checked size is the one it decodes. A panic of it must not escape here either.
    catch_panic(Format::Tiff, || {
        let decoder = TiffDecoder::new(Cursor::new(bytes))?;
        let (width, height) = decoder.dimensions();
        let stored_bytes = u64::from(decoder.original_color_type().bits_per_pixel()).div_ceil(8);
        let pixel_bytes = stored_bytes.max(decoder.color_type().bytes_per_pixel().into());
        Ok(Header { width, height, pixel_bytes, ..Header::default() })
    })
}

pub(super) fn decode(bytes: &[u8], header: &Header, memory: u64) -> Result<DynamicImage, DecodeError> {
    Ok(image_decoder::decode(TiffDecoder::new(Cursor::new(bytes))?, header, memory)?)
}

/// The first directory of a file.
struct Directory<'a> {
    bytes: &'a [u8],
    is_big_endian: bool,
    /// True for BigTIFF, with offsets and counts of eight bytes.
    is_big_tiff: bool,
    first: usize,
    entries: usize,
}

struct Entry {
    at: usize,
    tag: u16,
    kind: u16,
    count: u64,
}

impl<'a> Directory<'a> {
    fn find(bytes: &'a [u8]) -> Option<Self> {
        let (is_big_endian, is_big_tiff) = match bytes.get(..4)? {
            b"II*\0" => (false, false),
            b"MM\0*" => (true, false),
            b"II+\0" => (false, true),
            b"MM\0+" => (true, true),
            _ => return None,
        };
        let mut directory = Self { bytes, is_big_endian, is_big_tiff, first: 0, entries: 0 };
        let (at, offset, count) = if is_big_tiff { (8, 8, 8) } else { (4, 4, 2) };
        let begin = usize::try_from(directory.number(at, offset)?).ok()?;
        directory.entries = usize::try_from(directory.number(begin, count)?).ok()?;
        directory.first = begin.checked_add(count)?;
        Some(directory)
    }

    /// Returns the entries located within the file.
    fn entries(&self) -> impl Iterator<Item = Entry> {
        let (length, count) = if self.is_big_tiff { (20, 8) } else { (12, 4) };
        let short = |at| u16::try_from(self.number(at, 2)?).ok();
        (0..self.entries).map_while(move |nth| {
            let at = self.first.checked_add(nth.checked_mul(length)?)?;
            let (tag, kind) = (short(at)?, short(at.checked_add(2)?)?);
            Some(Entry { at, tag, kind, count: self.number(at.checked_add(4)?, count)? })
        })
    }

    /// Refuses entries with too many values, for which the decoder would allocate too much memory.
    fn check_value_counts(&self) -> Result<(), DecodeError> {
        match self.entries().find(|entry| READ_TAGS.contains(&entry.tag) && entry.count > MAX_VALUES) {
            None => Ok(()),
            Some(entry) if entry.count > self.bytes.len() as u64 => Err(DecodeError::BROKEN),
            Some(_) => Err(DecodeError::OUT_OF_MEMORY),
        }
    }

    /// Refuses variants that the decoder misreads, and JPEG strips, which can declare any size.
    fn check_variant(&self) -> Result<(), DecodeError> {
        const JPEG: u64 = 7;
        const FLOAT: u64 = 3;
        const ALPHA: [u64; 2] = [1, 2];
        let samples = self.value(SAMPLES_PER_PIXEL)?.unwrap_or(1);
        let extra_samples = self.value(EXTRA_SAMPLES)?;
        let has_known_samples = match self.value(PHOTOMETRIC)? {
            // Grayscale: 0 is white, or 0 is black.
            Some(0 | 1) => samples == 1,
            // RGB. A fourth sample other than alpha would shift all later samples.
            Some(2) => {
                samples == 3 || samples == 4 && extra_samples.is_none_or(|extra| ALPHA.contains(&extra))
            }
            // CMYK.
            Some(5) => samples == 4,
            _ => false,
        };
        // The decoder would read 32-bit integers as floating point.
        let is_float = self.value(SAMPLE_FORMAT)? == Some(FLOAT);
        let has_known_bits = self.value(BITS_PER_SAMPLE)?.unwrap_or(1) <= 16 || is_float;
        let is_reordered = self.value(FILL_ORDER)?.is_some_and(|order| order != 1);
        let is_planar = self.value(PLANAR_CONFIGURATION)? == Some(2);
        // The decoder handles separate planes in strips only.
        let has_planar_tiles = is_planar && samples > 1 && self.has(TILE_OFFSETS);
        let is_jpeg = self.value(COMPRESSION)? == Some(JPEG);
        if has_known_samples && has_known_bits && !is_reordered && !has_planar_tiles && !is_jpeg {
            Ok(())
        } else {
            Err(DecodeError::UNSUPPORTED)
        }
    }

    fn has(&self, tag: u16) -> bool {
        self.entries().any(|entry| entry.tag == tag)
    }

    /// Returns the first value of a tag. Refuses a duplicate tag, because the decoder might read the other one.
    fn value(&self, tag: u16) -> Result<Option<u64>, DecodeError> {
        let mut entries = self.entries().filter(|entry| entry.tag == tag);
        let Some(entry) = entries.next() else { return Ok(None) };
        if entries.next().is_some() {
            return Err(DecodeError::BROKEN);
        }
        self.first_value(&entry).map(Some).ok_or(DecodeError::BROKEN)
    }

    fn first_value(&self, entry: &Entry) -> Option<u64> {
        let length = match entry.kind {
            1 => 1,
            3 => 2,
            4 => 4,
            16 => 8,
            _ => return None,
        };
        let (value, inline_bytes) = if self.is_big_tiff { (entry.at + 12, 8) } else { (entry.at + 8, 4) };
        // A value that fits into the entry is stored in place of its offset.
        let is_inline = entry.count.checked_mul(length as u64)? <= inline_bytes as u64;
        let at = if is_inline { value } else { usize::try_from(self.number(value, inline_bytes)?).ok()? };
        (entry.count > 0).then(|| self.number(at, length)).flatten()
    }

    fn number(&self, at: usize, length: usize) -> Option<u64> {
        let bytes = self.bytes.get(at..at.checked_add(length)?)?;
        let join = |number, byte: &u8| number << 8 | u64::from(*byte);
        Some(if self.is_big_endian { bytes.iter().fold(0, join) } else { bytes.iter().rev().fold(0, join) })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// A little-endian file with one directory of these tags and 16-bit values, without pixels.
    fn file(tags: &[(u16, &[u16])]) -> Vec<u8> {
        let mut values_at = 8 + 2 + 12 * tags.len() + 4;
        let (mut entries, mut values) = (Vec::new(), Vec::new());
        for (tag, list) in tags {
            let mut value_bytes: Vec<u8> = list.iter().flat_map(|value| value.to_le_bytes()).collect();
            if value_bytes.len() > 4 {
                let at = u32::try_from(values_at).unwrap().to_le_bytes();
                values_at += value_bytes.len();
                values.extend(value_bytes);
                value_bytes = at.to_vec();
            }
            value_bytes.resize(4, 0);
            let count = u32::try_from(list.len()).unwrap().to_le_bytes();
            entries.extend([&tag.to_le_bytes()[..], &3_u16.to_le_bytes(), &count, &value_bytes].concat());
        }
        let count = u16::try_from(tags.len()).unwrap().to_le_bytes();
        [b"II*\0\x08\0\0\0", &count[..], &entries, &[0; 4], &values].concat()
    }

    fn check(tags: &[(u16, &[u16])]) -> Result<(), DecodeError> {
        Directory::find(&file(tags)).unwrap().check_variant()
    }

    #[test]
    fn variants_that_would_be_misread_are_refused() {
        let rgb = |samples: u16, bits: u16, more: &[(u16, &[u16])]| {
            let bits = vec![bits; usize::from(samples)];
            let base_tags: &[(u16, &[u16])] = &[
                (BITS_PER_SAMPLE, &bits),
                (COMPRESSION, &[1]),
                (PHOTOMETRIC, &[2]),
                (SAMPLES_PER_PIXEL, &[samples]),
            ];
            check(&[base_tags, more].concat())
        };
        assert_eq!(rgb(3, 8, &[]), Ok(()));
        assert_eq!(rgb(3, 16, &[]), Ok(()));
        assert_eq!(rgb(4, 8, &[(EXTRA_SAMPLES, &[2])]), Ok(()));
        assert_eq!(rgb(3, 32, &[(SAMPLE_FORMAT, &[3; 3])]), Ok(()));
        let planes: &[(u16, &[u16])] = &[(PLANAR_CONFIGURATION, &[2])];
        assert_eq!(rgb(3, 8, planes), Ok(()));
        for (variant, result) in [
            ("a fourth sample of unknown meaning", rgb(4, 8, &[(EXTRA_SAMPLES, &[0])])),
            ("two samples beside colours", rgb(5, 8, &[(EXTRA_SAMPLES, &[2, 0])])),
            ("whole numbers of 32 bits", rgb(3, 32, &[])),
            ("bits in another order", rgb(3, 8, &[(FILL_ORDER, &[2])])),
            ("tiles of one plane each", rgb(3, 8, &[planes, &[(TILE_OFFSETS, &[8])]].concat())),
        ] {
            assert_eq!(result, Err(DecodeError::UNSUPPORTED), "{variant}");
        }
        let gray = |more: &[(u16, &[u16])]| {
            check(&[&[(BITS_PER_SAMPLE, &[8][..]), (PHOTOMETRIC, &[1])], more].concat())
        };
        assert_eq!(gray(&[]), Ok(()));
        assert_eq!(gray(&[(FILL_ORDER, &[2])]), Err(DecodeError::UNSUPPORTED));
        assert_eq!(gray(&[(COMPRESSION, &[7])]), Err(DecodeError::UNSUPPORTED));
        assert_eq!(gray(&[(SAMPLES_PER_PIXEL, &[2])]), Err(DecodeError::UNSUPPORTED));
        assert_eq!(check(&[(BITS_PER_SAMPLE, &[8]), (PHOTOMETRIC, &[3])]), Err(DecodeError::UNSUPPORTED));
    }

    #[test]
    fn duplicate_tag_is_refused() {
        let twice = [(PHOTOMETRIC, &[1][..]), (COMPRESSION, &[1]), (COMPRESSION, &[7])];
        assert_eq!(check(&twice), Err(DecodeError::BROKEN));
    }
}
