//! BMP: reads the header, and normalizes it so that the decoder of `image` agrees with viewers.

use image::{DynamicImage, codecs::bmp::BmpDecoder};

use super::{
    DecodeError,
    header::Header,
    image_decoder,
    read_int::{le16, le32},
    spliced_reader::SplicedReader,
};

/// Length of the OS/2 1 header, which has 16-bit fields.
const OS2_V1_LENGTH: u32 = 12;
/// Lengths of the OS/2 2 header, and of the common header that forms its beginning.
const OS2_V2_LENGTH: u32 = 64;
const INFO_HEADER_LENGTH: u32 = 40;

pub(super) fn read_header(bytes: &[u8]) -> Option<Header> {
    let (width, height) = if le32(bytes, 14)? == OS2_V1_LENGTH {
        (le16(bytes, 18)?, le16(bytes, 20)?)
    } else {
        (le32(bytes, 18)?.cast_signed().unsigned_abs(), le32(bytes, 22)?.cast_signed().unsigned_abs())
    };
    pixels_offset(bytes)?;
    Some(Header { width, height, pixel_bytes: 4, ..Header::default() })
}

pub(super) fn decode(bytes: &[u8], header: &Header, memory: u64) -> Result<DynamicImage, DecodeError> {
    // Without this check, a file without pixels would decode to a black picture and get a hash.
    if !has_row(bytes, header) {
        return Err(DecodeError::BROKEN);
    }
    let (at, mut fields) = (pixels_offset(bytes).unwrap_or_default(), [0; 18]);
    // Missing rows at the end read as zeros: black, or the first colour of the palette.
    let file = SplicedReader::new(normalize_header(bytes, at, &mut fields)).with_endless_zeros();
    Ok(image_decoder::decode(BmpDecoder::new(file)?, header, memory)?)
}

/// Returns the parts of the file with a header that the decoder accepts: the offset of the pixels is set, the number of
/// planes is 1, and the extra fields of OS/2 2 are removed.
fn normalize_header<'a>(bytes: &'a [u8], pixels_at: u32, fields: &'a mut [u8; 18]) -> [&'a [u8]; 4] {
    let Some(header_fields) = bytes.get(10..).and_then(<[u8]>::first_chunk) else {
        return [bytes, &[], &[], &[]];
    };
    *fields = *header_fields;
    let is_os2_v2 = le32(bytes, 14) == Some(OS2_V2_LENGTH);
    let at = if is_os2_v2 { pixels_at - (OS2_V2_LENGTH - INFO_HEADER_LENGTH) } else { pixels_at };
    fields[..4].copy_from_slice(&at.to_le_bytes());
    let planes_offset = if le32(bytes, 14) == Some(OS2_V1_LENGTH) { 12 } else { 16 };
    // Viewers ignore the number of planes.
    fields[planes_offset..planes_offset + 2].copy_from_slice(&[1, 0]);
    let (signature, tail) = (&bytes[..10], &bytes[28..]);
    if is_os2_v2 {
        fields[4..8].copy_from_slice(&INFO_HEADER_LENGTH.to_le_bytes());
        let (shared, os2_fields_and_pixels) = tail.split_at(tail.len().min(26));
        [signature, fields, shared, os2_fields_and_pixels.get(24..).unwrap_or_default()]
    } else {
        [signature, fields, tail, &[]]
    }
}

/// True if the file contains at least one row of pixels, or two bytes of packed pixels.
fn has_row(bytes: &[u8], header: &Header) -> bool {
    let is_v1 = le32(bytes, 14) == Some(OS2_V1_LENGTH);
    let bits = le16(bytes, if is_v1 { 24 } else { 28 }).unwrap_or_default();
    let is_packed = !is_v1 && matches!(le32(bytes, 30), Some(1 | 2));
    let row_bytes = if is_packed { 2 } else { 4 * (u64::from(bits) * u64::from(header.width)).div_ceil(32) };
    pixels_offset(bytes).is_some_and(|at| u64::from(at) + row_bytes <= bytes.len() as u64)
}

/// Returns the offset of the pixels: directly after header, masks and palette if the file states 0. `None` if the offset
/// lies within the header.
fn pixels_offset(bytes: &[u8]) -> Option<u32> {
    let (stated_offset, length) = (le32(bytes, 10)?, le32(bytes, 14)?);
    let header_end = length.checked_add(14)?;
    if stated_offset > 0 {
        return (stated_offset >= header_end).then_some(stated_offset);
    }
    let is_v1 = length == OS2_V1_LENGTH;
    let newer_field = |at| if is_v1 { Some(0) } else { le32(bytes, at) };
    let bits = le16(bytes, if is_v1 { 24 } else { 28 })?;
    let mask_bytes = match newer_field(30)? {
        3 if length == INFO_HEADER_LENGTH => 12,
        6 if length == INFO_HEADER_LENGTH => 16,
        _ => 0,
    };
    let colours = match (bits, newer_field(46)?) {
        (1..=8, 0) => 1 << bits,
        (1..=8, colours) => colours.min(1 << bits),
        _ => 0,
    };
    header_end.checked_add(mask_bytes + colours * if is_v1 { 3 } else { 4 })
}
