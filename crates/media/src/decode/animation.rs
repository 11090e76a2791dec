//! Decodes the first frame of an animation and some after it, evenly spaced: GIF, WebP and PNG.
//!
//! Bounds on the number of frames were checked on the header.

use image::RgbaImage;

use super::{
    DecodeError, Gray, budget::MemoryBudget, fallback::catch_panic, gif, header::Header, luma, png, webp,
};
use crate::fingerprint::Format;

/// Bytes per pixel of the largest of canvas and frames: canvas, frame, what either was before, and luma twice.
const PIXEL_BYTES: u64 = 24;
const FIXED_BYTES: u64 = 1 << 20;

pub(super) fn decode(
    bytes: &[u8],
    format: Format,
    header: &Header,
    spaced: u32,
    budget: &MemoryBudget,
    emit: &mut dyn FnMut(u32, Gray),
) -> Result<(), DecodeError> {
    let needed = (FIXED_BYTES + PIXEL_BYTES * header.max_pixels()).saturating_add(header.code_bytes);
    let reservation = budget.reserve(needed)?;
    catch_panic(format, || {
        let mut chosen = choose_frames(header.frames, spaced).into_iter().peekable();
        let mut show = |index: u32, canvas: &RgbaImage| {
            // A chosen frame that is not shown is replaced by the next one that is.
            if chosen.next_if(|chosen| *chosen <= index).is_some() {
                let (width, height) = canvas.dimensions();
                let gray = Gray::new(width, height, luma::of_frame(canvas));
                emit(index, gray.ok_or(DecodeError::BROKEN)?);
            }
            while chosen.next_if(|chosen| *chosen <= index).is_some() {}
            Ok(chosen.peek().is_some())
        };
        match format {
            Format::WebP => webp::play(bytes, header, reservation.bytes(), &mut show),
            Format::Png => png::play(bytes, header, reservation.bytes(), &mut show),
            _ => gif::play(bytes, header, &mut show),
        }
    })
}

/// Returns the indices of the first frame and of `spaced` frames after it, evenly spaced and with the last one, in order.
fn choose_frames(frames: u32, spaced: u32) -> Vec<u32> {
    let last = u64::from(frames.saturating_sub(1));
    let mut chosen = vec![0];
    for step in 1..=u64::from(spaced) {
        let index = (last * step + u64::from(spaced) / 2) / u64::from(spaced);
        chosen.extend(u32::try_from(index).ok().filter(|index| Some(index) > chosen.last()));
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chosen_frames_include_the_first_and_the_last() {
        assert_eq!(choose_frames(1, 4), [0]);
        assert_eq!(choose_frames(2, 4), [0, 1]);
        assert_eq!(choose_frames(4, 4), [0, 1, 2, 3]);
        assert_eq!(choose_frames(101, 4), [0, 25, 50, 75, 100]);
        assert_eq!(choose_frames(100, 0), [0]);
        assert_eq!(choose_frames(u32::MAX, 1), [0, u32::MAX - 1]);
    }
}
