//! BMP: reads the header and shows `image`'s decoder the file as viewers read it.

use image::{DynamicImage, codecs::bmp::BmpDecoder};

use super::{
    DecodeError,
    header::Header,
    image_decoder,
    read_int::{le16, le32},
    spliced_reader::SplicedReader,
};

/// Length of the header of OS/2 1, whose fields are shorter.
const OS2_V1: u32 = 12;
/// Length of the header of OS/2 2, and of the usual one, which it begins with.
const OS2_V2: u32 = 64;
const USUAL: u32 = 40;

pub(super) fn read_header(bytes: &[u8]) -> Option<Header> {
    let (width, height) = if le32(bytes, 14)? == OS2_V1 {
        (le16(bytes, 18)?, le16(bytes, 20)?)
    } else {
        (le32(bytes, 18)?.cast_signed().unsigned_abs(), le32(bytes, 22)?.cast_signed().unsigned_abs())
    };
    pixels_offset(bytes)?;
    Some(Header { width, height, pixel_bytes: 4, ..Header::default() })
}

pub(super) fn decode(bytes: &[u8], header: &Header, memory: u64) -> Result<DynamicImage, DecodeError> {
    // A file without one whole row has nothing to show.
    if !has_row(bytes, header) {
        return Err(DecodeError::BROKEN);
    }
    let (at, mut fields) = (pixels_offset(bytes).unwrap_or_default(), [0; 18]);
    // Rows that are missing at the end are black, or of the palette's first colour.
    let file = SplicedReader::new(normalized(bytes, at, &mut fields)).endless();
    Ok(image_decoder::decode(BmpDecoder::new(file)?, header, memory)?)
}

/// Returns the file's parts with a header that the decoder accepts: it states where the pixels are, has one plane
/// whatever the file says, and none of the fields that only OS/2 2 has.
fn normalized<'a>(bytes: &'a [u8], pixels_at: u32, fields: &'a mut [u8; 18]) -> [&'a [u8]; 4] {
    let Some(found) = bytes.get(10..).and_then(<[u8]>::first_chunk) else { return [bytes, &[], &[], &[]] };
    *fields = *found;
    let is_os2_v2 = le32(bytes, 14) == Some(OS2_V2);
    let at = if is_os2_v2 { pixels_at - (OS2_V2 - USUAL) } else { pixels_at };
    fields[..4].copy_from_slice(&at.to_le_bytes());
    let planes = if le32(bytes, 14) == Some(OS2_V1) { 12 } else { 16 };
    fields[planes..planes + 2].copy_from_slice(&[1, 0]);
    let (before, rest) = (&bytes[..10], &bytes[28..]);
    if is_os2_v2 {
        fields[4..8].copy_from_slice(&USUAL.to_le_bytes());
        let (shared, rest) = rest.split_at(rest.len().min(26));
        [before, fields, shared, rest.get(24..).unwrap_or_default()]
    } else {
        [before, fields, rest, &[]]
    }
}

/// True if the file holds at least one row of pixels, or two bytes of them if they are packed.
fn has_row(bytes: &[u8], header: &Header) -> bool {
    let is_v1 = le32(bytes, 14) == Some(OS2_V1);
    let bits = le16(bytes, if is_v1 { 24 } else { 28 }).unwrap_or_default();
    let is_packed = !is_v1 && matches!(le32(bytes, 30), Some(1 | 2));
    let row = if is_packed { 2 } else { 4 * (u64::from(bits) * u64::from(header.width)).div_ceil(32) };
    pixels_offset(bytes).is_some_and(|at| u64::from(at) + row <= bytes.len() as u64)
}

/// Returns the offset of the pixels: right after header, masks and palette if the file does not state it; `None` if they
/// would lie within the header.
fn pixels_offset(bytes: &[u8]) -> Option<u32> {
    let (stated, length) = (le32(bytes, 10)?, le32(bytes, 14)?);
    let header = length.checked_add(14)?;
    if stated > 0 {
        return (stated >= header).then_some(stated);
    }
    let is_v1 = length == OS2_V1;
    let newer_field = |at| if is_v1 { Some(0) } else { le32(bytes, at) };
    let bits = le16(bytes, if is_v1 { 24 } else { 28 })?;
    let masks = match newer_field(30)? {
        3 if length == USUAL => 12,
        6 if length == USUAL => 16,
        _ => 0,
    };
    let colours = match (bits, newer_field(46)?) {
        (1..=8, 0) => 1 << bits,
        (1..=8, colours) => colours.min(1 << bits),
        _ => 0,
    };
    header.checked_add(masks + colours * if is_v1 { 3 } else { 4 })
}
