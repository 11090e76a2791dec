//! Decodes the first frame of an animation (GIF, WebP, PNG) and some later frames, evenly spaced.
//!
//! The caller has checked the number of frames against the limits.

use image::RgbaImage;

use super::{
    DecodeError, LumaImage, budget::MemoryBudget, fallback::catch_panic, gif, header::Header, luma, png, webp,
};
use crate::Format;

/// Bytes per pixel of canvas or largest frame: canvas, frame, a saved copy of each, and luma twice.
const PIXEL_BYTES: u64 = 24;
const FIXED_BYTES: u64 = 1 << 20;

pub(super) fn decode(
    bytes: &[u8],
    format: Format,
    header: &Header,
    later_frames: u32,
    budget: &MemoryBudget,
    emit: &mut dyn FnMut(u32, LumaImage),
) -> Result<(), DecodeError> {
    let needed_bytes = (FIXED_BYTES + PIXEL_BYTES * header.max_pixels()).saturating_add(header.code_bytes);
    let reservation = budget.reserve(needed_bytes)?;
    catch_panic(format, || {
        let mut chosen_frames = choose_frames(header.frames, later_frames).into_iter().peekable();
        let mut show_frame = |index: u32, canvas: &RgbaImage| {
            // A chosen frame that the decoder skips is replaced by the next shown frame.
            if chosen_frames.next_if(|frame| *frame <= index).is_some() {
                let (width, height) = canvas.dimensions();
                let gray = LumaImage::new(width, height, luma::of_frame(canvas));
                emit(index, gray.ok_or(DecodeError::BROKEN)?);
            }
            // Several chosen frames can lie before the shown one; they are covered by it.
            while chosen_frames.next_if(|frame| *frame <= index).is_some() {}
            Ok(chosen_frames.peek().is_some())
        };
        match format {
            Format::WebP => webp::play(bytes, header, reservation.bytes(), &mut show_frame),
            Format::Png => png::play(bytes, header, reservation.bytes(), &mut show_frame),
            _ => gif::play(bytes, header, &mut show_frame),
        }
    })
}

/// Returns the sorted indices of the first frame and of `later_frames` others, evenly spaced and including the last.
fn choose_frames(frames: u32, later_frames: u32) -> Vec<u32> {
    let last = u64::from(frames.saturating_sub(1));
    let mut chosen_frames = vec![0];
    for step in 1..=u64::from(later_frames) {
        let index = (last * step + u64::from(later_frames) / 2) / u64::from(later_frames);
        chosen_frames.extend(u32::try_from(index).ok().filter(|index| Some(index) > chosen_frames.last()));
    }
    chosen_frames
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
