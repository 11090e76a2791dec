//! Decodes one picture of a PNG, GIF, WebP, BMP or TIFF file; of an animation, its first frame.

use super::{
    DecodeError, LumaImage, bmp,
    budget::{MemoryBudget, Reservation},
    fallback::catch_panic,
    gif,
    header::Header,
    luma, png, tiff, webp,
};
use crate::Format;

/// Memory that does not depend on the picture's size: tables and row buffers.
const FIXED_BYTES: u64 = 1 << 20;

/// Returns the luma with the reservation of its memory.
pub(super) fn decode<'a>(
    bytes: &[u8],
    format: Format,
    header: &Header,
    budget: &'a MemoryBudget,
) -> Result<(LumaImage, Reservation<'a>), DecodeError> {
    // Bytes per pixel in addition to the decoded pixel: buffers of the decoder, and luma twice.
    let extra_pixel_bytes = match format {
        Format::WebP => 8,
        Format::Gif | Format::Tiff => header.pixel_bytes + 2,
        Format::Png | Format::Bmp | Format::Jpeg => 2,
    };
    let picture_bytes = (header.pixel_bytes + extra_pixel_bytes) * header.max_pixels();
    let reservation = budget.reserve((FIXED_BYTES + picture_bytes).saturating_add(header.code_bytes))?;
    let memory = reservation.bytes();
    let gray = catch_panic(format, || {
        let image = match format {
            Format::Png => return png::luma(bytes, header, memory),
            Format::Gif => return gif::luma(bytes, header),
            Format::WebP => webp::decode(bytes, header, memory)?,
            Format::Bmp => bmp::decode(bytes, header, memory)?,
            Format::Tiff | Format::Jpeg => tiff::decode(bytes, header, memory)?,
        };
        luma::of_image(image).ok_or(DecodeError::UNSUPPORTED)
    })
    .and_then(|samples| LumaImage::new(header.width, header.height, samples).ok_or(DecodeError::BROKEN))?;
    Ok((gray, reservation))
}
