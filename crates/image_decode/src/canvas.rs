//! Canvas of an animation: draws frames in order and applies their disposal.

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
    /// Restores the area to its state before the frame.
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
    /// True if the canvas is empty.
    is_clear: bool,
    /// Area of the last frame, if its disposal cleared it.
    cleared_area: Area,
    previous_state: PreviousState,
}

/// State of the canvas before the last frame.
#[derive(Default)]
struct PreviousState {
    is_clear: bool,
    /// Copy of the frame's area, for `Disposal::Restore`.
    picture: Option<RgbaImage>,
}

impl Area {
    pub(super) fn is_within(self, width: u32, height: u32) -> bool {
        let is_inside =
            |start: u32, length: u32, side: u32| start.checked_add(length).is_some_and(|end| end <= side);
        is_inside(self.x, self.width, width) && is_inside(self.y, self.height, height)
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
            cleared_area: Area::default(),
            previous_state: PreviousState::default(),
        }
    }

    /// Draws a frame and shows the canvas. The area is within the canvas. The picture has the size of the area, or fewer
    /// rows if the file is damaged; a frame without a picture is not shown. Returns true to continue with the next frame.
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
        let saved_area = (disposal == Disposal::Restore).then(|| crop(&self.picture));
        self.previous_state = PreviousState { is_clear: self.is_clear, picture: saved_area };
        // Over an empty area, libwebp copies pixels including the colours of transparent ones; blending would change them.
        let is_replaced = !is_blended || self.is_clear;
        for (x, y, pixel) in picture.enumerate_pixels() {
            let (x, y) = (x + area.x, y + area.y);
            let canvas_pixel = self.picture.get_pixel_mut(x, y);
            canvas_pixel.0 = if is_replaced || self.cleared_area.contains(x, y) {
                pixel.0
            } else {
                blend_pixels(pixel.0, canvas_pixel.0)
            };
        }
        self.is_clear = false;
        self.cleared_area = Area::default();
    }

    /// Applies the disposal of the last frame.
    fn dispose(&mut self, placement: Placement) {
        let Placement { area, disposal, .. } = placement;
        match disposal {
            Disposal::Keep => {}
            Disposal::Restore => {
                if let Some(saved_area) = self.previous_state.picture.take() {
                    imageops::replace(&mut self.picture, &saved_area, area.x.into(), area.y.into());
                }
                self.is_clear = self.previous_state.is_clear;
            }
            Disposal::Clear => {
                for y in area.y..area.y + area.height {
                    for x in area.x..area.x + area.width {
                        self.picture.get_pixel_mut(x, y).0 = [0; 4];
                    }
                }
                self.cleared_area = area;
                // The canvas is empty again if it was empty before the cleared frame, or if the frame covered all of it.
                self.is_clear =
                    self.previous_state.is_clear || self.picture.dimensions() == (area.width, area.height);
            }
        }
    }
}

/// Blends two pixels with libwebp's integer arithmetic.
#[expect(clippy::cast_possible_truncation, reason = "weighted means of two bytes")]
fn blend_pixels(over: [u8; 4], under: [u8; 4]) -> [u8; 4] {
    let alpha = u32::from(over[3]);
    if alpha == 0 {
        return under;
    }
    if alpha == 255 {
        return over;
    }
    let remaining_alpha = (u32::from(under[3]) * (256 - alpha)) >> 8;
    let scale = (1 << 24) / (alpha + remaining_alpha);
    let mix = |channel: usize| {
        let sum = u32::from(over[channel]) * alpha + u32::from(under[channel]) * remaining_alpha;
        ((sum * scale) >> 24) as u8
    };
    [mix(0), mix(1), mix(2), (alpha + remaining_alpha) as u8]
}
