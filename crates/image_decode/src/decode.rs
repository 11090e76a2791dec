//! Decodes a file to the luma of its pictures, after checking the limits against its header.

use crate::{
    DecodeError, Format, LumaImage, MemoryBudget, Reason, animation, bmp, gif, header::Header, jpeg,
    limits::DecodeLimits, png, static_image, tiff, webp, webp::CodeCost,
};

/// Format and size stated by the header; size 0 if the header was not read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImageInfo {
    pub format: Option<Format>,
    pub width: u32,
    pub height: u32,
}

/// Decodes a file and calls `emit` with index and luma of the first frame, of the chosen later frames, and of a default
/// picture outside of the animation. A frame is dropped before the next one is decoded. Emitted frames stay valid if a
/// later frame is broken.
pub fn decode(
    bytes: &[u8],
    limits: &DecodeLimits,
    budget: &MemoryBudget,
    info: &mut ImageInfo,
    emit: &mut dyn FnMut(u32, LumaImage),
) -> Result<(), DecodeError> {
    let format = detect_format(bytes).ok_or(DecodeError::Undecodable(Reason::UnknownFormat))?;
    info.format = Some(format);
    // The format is reported even for files above the size limit.
    if bytes.len() as u64 > limits.bytes {
        return Err(DecodeError::TooLarge(Reason::Bytes));
    }
    if format == Format::Jpeg {
        let header = jpeg::read(bytes)?;
        (info.width, info.height) = (header.width, header.height);
        check_size(header.width, header.height, limits)?;
        let (gray, _reservation) = jpeg::decode(bytes, &header, budget)?;
        emit(0, gray);
        return Ok(());
    }
    let bytes = if format == Format::WebP { webp::header::trim_to_riff(bytes) } else { bytes };
    let mut header = read_header(bytes, format)?;
    (info.width, info.height) = (header.width, header.height);
    check_size(header.width, header.height, limits)?;
    check_frames(&header, limits)?;
    // Counting prefix codes reads the pictures, so it follows the cheap check of the frames.
    if format == Format::WebP {
        let max = CodeCost { bytes: limits.decode_bytes, pixels: limits.animation_pixels };
        let cost = webp::code_cost(bytes, &header, max);
        header.code_bytes = cost.bytes;
        header.total_frame_pixels = header.total_frame_pixels.saturating_add(cost.pixels);
        check_frames(&header, limits)?;
    }
    if header.frames > 0 {
        let mut has_emitted = false;
        let animation_result =
            animation::decode(bytes, format, &header, limits.frames, budget, &mut |index, gray| {
                has_emitted = true;
                emit(index, gray);
            });
        match animation_result {
            // A broken animation may still have a picture for viewers without animation.
            Ok(()) | Err(DecodeError::Undecodable(_)) if !has_emitted || header.has_separate_default => {}
            animation_result => return animation_result,
        }
    }
    let (gray, _reservation) = static_image::decode(bytes, format, &header, budget)?;
    emit(if header.has_separate_default { header.frames } else { 0 }, gray);
    Ok(())
}

/// Detects the format from the first bytes. The declared content type is ignored.
fn detect_format(bytes: &[u8]) -> Option<Format> {
    Some(match bytes {
        [0xff, 0xd8, 0xff, ..] => Format::Jpeg,
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Format::Png,
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Format::Gif,
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Format::WebP,
        [b'B', b'M', ..] => Format::Bmp,
        [b'I', b'I', 42 | 43, 0, ..] | [b'M', b'M', 0, 42 | 43, ..] => Format::Tiff,
        _ => return None,
    })
}

/// Reads the header of all formats except JPEG, which has its own header type.
fn read_header(bytes: &[u8], format: Format) -> Result<Header, DecodeError> {
    let header = match format {
        Format::Png => png::header::read(bytes),
        Format::Gif => gif::header::read(bytes),
        Format::WebP => webp::header::read(bytes),
        Format::Bmp => bmp::read_header(bytes),
        Format::Tiff => return tiff::read_header(bytes),
        Format::Jpeg => None,
    };
    header.ok_or(DecodeError::BROKEN)
}

fn check_size(width: u32, height: u32, limits: &DecodeLimits) -> Result<(), DecodeError> {
    if width.min(height) == 0 {
        Err(DecodeError::BROKEN)
    } else if width.max(height) > limits.side {
        Err(DecodeError::TooLarge(Reason::Side))
    } else if u64::from(width) * u64::from(height) > limits.pixels {
        Err(DecodeError::TooLarge(Reason::Pixels))
    // After the upper limits: a long, thin picture counts as too large, not as too small.
    } else if width.min(height) < limits.min_side {
        Err(DecodeError::TooSmall)
    } else {
        Ok(())
    }
}

fn check_frames(header: &Header, limits: &DecodeLimits) -> Result<(), DecodeError> {
    if header.largest_frame_pixels > limits.pixels {
        Err(DecodeError::TooLarge(Reason::Pixels))
    } else if header.total_frame_pixels > limits.animation_pixels {
        Err(DecodeError::TooLarge(Reason::Animation))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_bytes_alone_decide_the_format() {
        for (bytes, format) in [
            (&b"\xff\xd8\xff\xe0"[..], Some(Format::Jpeg)),
            (b"\x89PNG\r\n\x1a\n", Some(Format::Png)),
            (b"GIF89a", Some(Format::Gif)),
            (b"RIFF\0\0\0\0WEBPVP8 ", Some(Format::WebP)),
            (b"RIFF\0\0\0\0AVI LIST", None),
            (b"BM\0", Some(Format::Bmp)),
            (b"II*\0", Some(Format::Tiff)),
            (b"MM\0*", Some(Format::Tiff)),
            (b"<svg>", None),
            (b"\0\0\0\x18ftypmp42", None),
            (b"", None),
        ] {
            assert_eq!(detect_format(bytes), format, "{bytes:?}");
        }
    }
}
