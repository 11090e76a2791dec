//! From a file's bytes to the luma of its pictures, within bounds that its header is held against first.
//!
//! Nothing is hashed here.

mod animation;
mod apng;
mod budget;
mod canvas;
mod gif;
mod guard;
mod header;
mod joined;
mod jpeg;
mod luma;
mod needed;
mod png;
mod png_chunks;
mod still;
mod tiff;
mod vp8l;
mod webp;

pub(crate) use self::budget::Budget;
use self::{header::Header, vp8l::Codes};
use crate::{
    fingerprint::{Format, reason},
    limits::Limits,
};

/// The luma of one picture: rows without gaps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gray {
    pub width: u32,
    pub height: u32,
    pub samples: Vec<u8>,
}

impl Gray {
    /// Nothing if there are not width x height samples.
    fn new(width: u32, height: u32, samples: Vec<u8>) -> Option<Self> {
        (samples.len() as u64 == u64::from(width) * u64::from(height)).then_some(Self {
            width,
            height,
            samples,
        })
    }
}

/// Why there is no luma.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    TooLarge(&'static str),
    TooSmall,
    Undecodable(&'static str),
}

impl Refusal {
    const BROKEN: Self = Self::Undecodable(reason::BROKEN);
}

/// What the header says; zero where it says nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct About {
    pub(crate) format: Option<Format>,
    pub(crate) width: u32,
    pub(crate) height: u32,
}

/// Decodes a file, and hands out the luma of its first frame and of those chosen after it, each with its place; then that
/// of a picture beside the frames. A frame is dropped before the next is decoded. What has been handed out stands, even
/// if a later frame is broken.
pub(crate) fn decode(
    bytes: &[u8],
    limits: &Limits,
    budget: &Budget,
    about: &mut About,
    each: &mut dyn FnMut(u32, Gray),
) -> Result<(), Refusal> {
    let format = sniff(bytes).ok_or(Refusal::Undecodable(reason::UNKNOWN_FORMAT))?;
    about.format = Some(format);
    if bytes.len() as u64 > limits.bytes {
        return Err(Refusal::TooLarge(reason::BYTES));
    }
    if format == Format::Jpeg {
        let header = jpeg::read(bytes)?;
        (about.width, about.height) = (header.width, header.height);
        bounds(header.width, header.height, limits)?;
        let (gray, _share) = jpeg::decode(bytes, &header, budget)?;
        each(0, gray);
        return Ok(());
    }
    let bytes = if format == Format::WebP { header::within_riff(bytes) } else { bytes };
    let mut header = header::read(bytes, format)?;
    (about.width, about.height) = (header.width, header.height);
    bounds(header.width, header.height, limits)?;
    bounds_of_frames(&header, limits)?;
    if format == Format::WebP {
        let most = Codes { bytes: limits.decode_bytes, pixels: limits.animation_pixels };
        header.add_codes(webp::codes(bytes, &header, most));
        bounds_of_frames(&header, limits)?;
    }
    if header.frames > 0 {
        let mut handed_out = false;
        let done = animation::decode(bytes, format, &header, limits.frames, budget, &mut |at, gray| {
            handed_out = true;
            each(at, gray);
        });
        // What cannot be played may still have a picture for those who do not try.
        match done {
            Ok(()) | Err(Refusal::Undecodable(_)) if !handed_out || header.is_default_apart => {}
            done => return done,
        }
    }
    let (gray, _share) = still::decode(bytes, format, &header, budget)?;
    each(if header.is_default_apart { header.frames } else { 0 }, gray);
    Ok(())
}

fn sniff(bytes: &[u8]) -> Option<Format> {
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

fn bounds(width: u32, height: u32, limits: &Limits) -> Result<(), Refusal> {
    if width.min(height) == 0 {
        Err(Refusal::BROKEN)
    } else if width.max(height) > limits.side {
        Err(Refusal::TooLarge(reason::SIDE))
    } else if u64::from(width) * u64::from(height) > limits.pixels {
        Err(Refusal::TooLarge(reason::PIXELS))
    } else if width.min(height) < crate::hashes::pdq::MIN_SIDE {
        Err(Refusal::TooSmall)
    } else {
        Ok(())
    }
}

fn bounds_of_frames(header: &Header, limits: &Limits) -> Result<(), Refusal> {
    if header.largest_frame > limits.pixels {
        Err(Refusal::TooLarge(reason::PIXELS))
    } else if header.pixels_of_frames > limits.animation_pixels {
        Err(Refusal::TooLarge(reason::ANIMATION))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_told_by_their_first_bytes_alone() {
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
            assert_eq!(sniff(bytes), format, "{bytes:?}");
        }
    }
}
