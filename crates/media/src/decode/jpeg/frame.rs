//! What a component is made of, in blocks, and the plane that they are put together in.

use super::{header::JpegHeader, vectors::Samples};

/// A component, in blocks of eight by eight samples.
pub(super) struct Frame {
    pub(super) columns: usize,
    pub(super) rows: usize,
}

impl Frame {
    pub(super) fn new(header: &JpegHeader, component: usize) -> Self {
        let [columns, rows] = header.sides(component).map(|side| side.div_ceil(8));
        Self { columns, rows }
    }
}

pub(super) struct Plane {
    pub(super) samples: Vec<u8>,
    width: usize,
    height: usize,
}

impl Plane {
    pub(super) fn new(header: &JpegHeader, component: usize) -> Self {
        let [width, height] = header.sides(component);
        Self { samples: vec![0; width * height], width, height }
    }

    /// What lies beyond the edges is dropped.
    #[inline(always)]
    pub(super) fn place(&mut self, row: usize, column: usize, samples: &Samples) {
        let (top, left) = (8 * row, 8 * column);
        if top >= self.height || left >= self.width {
            return;
        }
        let width = (self.width - left).min(8);
        let lines = self.samples[top * self.width + left..].chunks_mut(self.width);
        if width == 8 {
            for (line, samples) in lines.zip(samples) {
                line[..8].copy_from_slice(samples);
            }
        } else {
            for (line, samples) in lines.zip(samples) {
                line[..width].copy_from_slice(&samples[..width]);
            }
        }
    }
}
