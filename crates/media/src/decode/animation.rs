//! The first frame of an animation and some after it, evenly spaced: GIF, WebP and PNG.
//!
//! How many frames there may be was decided by the header.

use image::RgbaImage;

use super::{Gray, Refusal, budget::Budget, gif, guard::guarded, header::Header, luma, png, webp};
use crate::fingerprint::Format;

/// Bytes a pixel of the largest of canvas and frames: canvas, frame, what either was before, and luma twice.
const PIXEL_BYTES: u64 = 24;
const FIXED: u64 = 1 << 20;

pub(super) fn decode(
    bytes: &[u8],
    format: Format,
    header: &Header,
    spaced: u32,
    budget: &Budget,
    each: &mut dyn FnMut(u32, Gray),
) -> Result<(), Refusal> {
    let share = budget.share((FIXED + PIXEL_BYTES * header.pixels()).saturating_add(header.code_bytes))?;
    guarded(format, || {
        let mut wanted = chosen(header.frames, spaced).into_iter().peekable();
        let mut see = |at: u32, frame: &RgbaImage| {
            // One that is not to be seen is stood for by the next that is.
            if wanted.next_if(|wanted| *wanted <= at).is_some() {
                let (width, height) = frame.dimensions();
                let gray = Gray::new(width, height, luma::of_frame(frame));
                each(at, gray.ok_or(Refusal::BROKEN)?);
            }
            while wanted.next_if(|wanted| *wanted <= at).is_some() {}
            Ok(wanted.peek().is_some())
        };
        match format {
            Format::WebP => webp::play(bytes, header, share.bytes(), &mut see),
            Format::Png => png::play(bytes, header, share.bytes(), &mut see),
            _ => gif::play(bytes, header, &mut see),
        }
    })
}

/// The places of the first frame and so many after it, evenly spaced and with the last one, in order.
fn chosen(frames: u32, spaced: u32) -> Vec<u32> {
    let last = u64::from(frames.saturating_sub(1));
    let mut places = vec![0];
    for step in 1..=u64::from(spaced) {
        let place = (last * step + u64::from(spaced) / 2) / u64::from(spaced);
        places.extend(u32::try_from(place).ok().filter(|place| Some(place) > places.last()));
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_and_the_last_frame_are_among_the_evenly_spaced() {
        assert_eq!(chosen(1, 4), [0]);
        assert_eq!(chosen(2, 4), [0, 1]);
        assert_eq!(chosen(4, 4), [0, 1, 2, 3]);
        assert_eq!(chosen(101, 4), [0, 25, 50, 75, 100]);
        assert_eq!(chosen(100, 0), [0]);
        assert_eq!(chosen(u32::MAX, 1), [0, u32::MAX - 1]);
    }
}
