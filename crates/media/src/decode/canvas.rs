//! Canvas that the frames of an animation are drawn onto, one after the other, and what each leaves on it.

use image::{RgbaImage, imageops};

use super::DecodeError;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Area {
    pub(super) x: u32,
    pub(super) y: u32,
    pub(super) width: u32,
    pub(super) height: u32,
}

/// Treatment of a frame's area before the next frame is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Disposal {
    Keep,
    Clear,
    /// The area is as it was before the frame.
    Restore,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Placement {
    pub(super) area: Area,
    pub(super) is_blended: bool,
    pub(super) disposal: Disposal,
}

pub(super) struct Canvas {
    picture: RgbaImage,
    /// True if nothing is left on it.
    is_clear: bool,
    /// Area of the last frame if it was cleared.
    cleared: Area,
    before: Before,
}

/// The canvas before the last frame was drawn.
#[derive(Default)]
struct Before {
    is_clear: bool,
    /// Picture of the frame's area, if it will be restored.
    picture: Option<RgbaImage>,
}

impl Area {
    pub(super) fn is_within(self, width: u32, height: u32) -> bool {
        let ends = |at: u32, length: u32, side: u32| at.checked_add(length).is_some_and(|end| end <= side);
        ends(self.x, self.width, width) && ends(self.y, self.height, height)
    }

    fn contains(self, x: u32, y: u32) -> bool {
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

    /// Draws a frame and shows the canvas. The picture is as large as its area, which is within the canvas, or has the
    /// rows of it that could be read; without any, there is nothing new to show. Returns true if more frames are wanted.
    pub(super) fn play_frame(
        &mut self,
        index: u32,
        placement: Placement,
        picture: Option<RgbaImage>,
        show: &mut dyn FnMut(u32, &RgbaImage) -> Result<bool, DecodeError>,
    ) -> Result<bool, DecodeError> {
        let has_rows = picture.is_some();
        self.draw(placement, &picture.unwrap_or_default());
        if has_rows && !show(index, &self.picture)? {
            return Ok(false);
        }
        self.dispose(placement);
        Ok(true)
    }

    fn draw(&mut self, placement: Placement, picture: &RgbaImage) {
        let Placement { area, is_blended, disposal } = placement;
        let crop = |canvas: &RgbaImage| {
            imageops::crop_imm(canvas, area.x, area.y, area.width, area.height).to_image()
        };
        let saved = (disposal == Disposal::Restore).then(|| crop(&self.picture));
        self.before = Before { is_clear: self.is_clear, picture: saved };
        // Over an empty area, pixels are taken as they are, with the colours that their alpha hides.
        let replaces = !is_blended || self.is_clear;
        for (x, y, pixel) in picture.enumerate_pixels() {
            let (x, y) = (x + area.x, y + area.y);
            let under = self.picture.get_pixel_mut(x, y);
            under.0 =
                if replaces || self.cleared.contains(x, y) { pixel.0 } else { blended(pixel.0, under.0) };
        }
        self.is_clear = false;
        self.cleared = Area::default();
    }

    /// Ends the frame that was drawn last.
    fn dispose(&mut self, placement: Placement) {
        let Placement { area, disposal, .. } = placement;
        match disposal {
            Disposal::Keep => {}
            Disposal::Restore => {
                if let Some(before) = self.before.picture.take() {
                    imageops::replace(&mut self.picture, &before, area.x.into(), area.y.into());
                }
                self.is_clear = self.before.is_clear;
            }
            Disposal::Clear => {
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

/// Blends two pixels with libwebp's integer arithmetic.
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
