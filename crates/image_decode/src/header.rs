//! Size, frames and decoding cost of a picture, read from its header without allocation.

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) width: u32,
    pub(super) height: u32,
    /// Upper bound for the bytes of one decoded pixel.
    pub(super) pixel_bytes: u64,
    /// Number of animation frames; 0 for a single picture.
    pub(super) frames: u32,
    /// Pixels of the largest frame or embedded picture, which may exceed the canvas in a hostile file.
    pub(super) largest_frame_pixels: u64,
    /// Pixels of all frames. Each frame counts at least as the canvas, which is composed again for it, and at least as
    /// `MIN_FRAME_PIXELS`.
    pub(super) total_frame_pixels: u64,
    /// Upper bound for the memory of a WebP's prefix codes while one of its pictures is decoded.
    pub(super) code_bytes: u64,
    /// True if the picture for viewers without animation is not among the frames.
    pub(super) has_separate_default: bool,
}

/// Smallest cost of a frame in pixels. The setup of its decoder takes as long as up to 2,200 pixels.
pub(super) const MIN_FRAME_PIXELS: u64 = 64 * 64;

impl Header {
    pub(super) fn canvas_pixels(&self) -> u64 {
        u64::from(self.width) * u64::from(self.height)
    }

    /// Pixels of the canvas or of the largest frame, whichever is larger.
    pub(super) fn max_pixels(&self) -> u64 {
        self.canvas_pixels().max(self.largest_frame_pixels)
    }

    /// Counts a picture embedded in a frame or in the file, and returns its pixels.
    pub(super) fn add_embedded(&mut self, width: u32, height: u32) -> u64 {
        let pixels = u64::from(width) * u64::from(height);
        self.largest_frame_pixels = self.largest_frame_pixels.max(pixels);
        pixels
    }

    pub(super) fn add_frame(&mut self, width: u32, height: u32) {
        let frame = self.add_embedded(width, height);
        self.frames += 1;
        let cost = self.canvas_pixels().max(frame).max(MIN_FRAME_PIXELS);
        self.total_frame_pixels = self.total_frame_pixels.saturating_add(cost);
    }
}
