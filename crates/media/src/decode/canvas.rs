//! What the frames of an animation are drawn onto, one after the other, and what is left of each.
//!
//! It decodes none.

use image::{RgbaImage, imageops};

use super::Refusal;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Area {
    pub(super) x: u32,
    pub(super) y: u32,
    pub(super) width: u32,
    pub(super) height: u32,
}

/// What becomes of a frame's place before the next is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    Stays,
    Cleared,
    /// It is as it was before the frame.
    Undone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Placed {
    pub(super) area: Area,
    pub(super) is_blended: bool,
    pub(super) after: After,
}

pub(super) struct Canvas {
    picture: RgbaImage,
    /// Nothing is left on it.
    is_clear: bool,
    /// Where the last frame was cleared.
    cleared: Area,
    before: Before,
}

/// What a frame finds.
#[derive(Default)]
struct Before {
    is_clear: bool,
    /// In its place, if that comes back.
    picture: Option<RgbaImage>,
}

impl Area {
    pub(super) fn is_within(self, width: u32, height: u32) -> bool {
        let ends = |at: u32, length: u32, side: u32| at.checked_add(length).is_some_and(|end| end <= side);
        ends(self.x, self.width, width) && ends(self.y, self.height, height)
    }

    fn has(self, x: u32, y: u32) -> bool {
        (self.x..self.x + self.width).contains(&x) && (self.y..self.y + self.height).contains(&y)
    }
}

impl Canvas {
    pub(super) fn new(width: u32, height: u32) -> Self {
        Self {
            picture: RgbaImage::new(width, height),
            is_clear: true,
            cleared: Area::default(),
            before: Before::default(),
        }
    }

    /// Shows what a frame makes of it: a picture as large as its place, which is within the canvas, or the rows of it that
    /// came. Of one without any there is nothing to see that was not there before. Whether more is wanted.
    pub(super) fn show(
        &mut self,
        nth: u32,
        placed: Placed,
        came: Option<RgbaImage>,
        see: &mut dyn FnMut(u32, &RgbaImage) -> Result<bool, Refusal>,
    ) -> Result<bool, Refusal> {
        let has_rows = came.is_some();
        self.draw(placed, &came.unwrap_or_default());
        if has_rows && !see(nth, &self.picture)? {
            return Ok(false);
        }
        self.end(placed);
        Ok(true)
    }

    /// Where there is nothing, pixels are taken as they are, with the colours that their alpha hides.
    fn draw(&mut self, placed: Placed, picture: &RgbaImage) {
        let Placed { area, is_blended, after } = placed;
        let found = |canvas: &RgbaImage| {
            imageops::crop_imm(canvas, area.x, area.y, area.width, area.height).to_image()
        };
        let found = (after == After::Undone).then(|| found(&self.picture));
        self.before = Before { is_clear: self.is_clear, picture: found };
        let all = !is_blended || self.is_clear;
        for (x, y, pixel) in picture.enumerate_pixels() {
            let (x, y) = (x + area.x, y + area.y);
            let under = self.picture.get_pixel_mut(x, y);
            under.0 = if all || self.cleared.has(x, y) { pixel.0 } else { blended(pixel.0, under.0) };
        }
        self.is_clear = false;
        self.cleared = Area::default();
    }

    /// What was drawn last is over.
    fn end(&mut self, placed: Placed) {
        let Placed { area, after, .. } = placed;
        match after {
            After::Stays => {}
            After::Undone => {
                if let Some(before) = self.before.picture.take() {
                    imageops::replace(&mut self.picture, &before, area.x.into(), area.y.into());
                }
                self.is_clear = self.before.is_clear;
            }
            After::Cleared => {
                for y in area.y..area.y + area.height {
                    for x in area.x..area.x + area.width {
                        self.picture.get_pixel_mut(x, y).0 = [0; 4];
                    }
                }
                self.cleared = area;
                self.is_clear =
                    self.before.is_clear || self.picture.dimensions() == (area.width, area.height);
            }
        }
    }
}

/// In libwebp's whole numbers.
#[expect(clippy::cast_possible_truncation, reason = "means of two bytes")]
fn blended(over: [u8; 4], under: [u8; 4]) -> [u8; 4] {
    let alpha = u32::from(over[3]);
    if alpha == 0 {
        return under;
    }
    if alpha == 255 {
        return over;
    }
    let left = (u32::from(under[3]) * (256 - alpha)) >> 8;
    let scale = (1 << 24) / (alpha + left);
    let mix = |at: usize| {
        let sum = u32::from(over[at]) * alpha + u32::from(under[at]) * left;
        ((sum * scale) >> 24) as u8
    };
    [mix(0), mix(1), mix(2), (alpha + left) as u8]
}
