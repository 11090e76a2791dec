//! Layout of a component in blocks, and the plane that their samples are put into.

use super::{header::JpegHeader, vectors::Samples};

/// A component, in blocks of eight by eight samples.
pub(super) struct Frame {
    pub(super) columns: usize,
    pub(super) rows: usize,
    /// Rows of blocks that a unit has.
    pub(super) down: usize,
    /// Rows of units.
    pub(super) units: usize,
}

impl Frame {
    pub(super) fn new(header: &JpegHeader, component: usize) -> Self {
        let [columns, rows] = header.sides(component).map(|side| side.div_ceil(8));
        Self { columns, rows, down: header.components[component].down.into(), units: header.units().1 }
    }

    /// The rows that are two above, one above, and so on, as libjpeg takes them: the last ones may lie below the picture
    /// if they are within a unit, but not those of the last units.
    pub(super) fn rows_around(&self, row: usize) -> [usize; 5] {
        let (unit, within) = (row / self.down, row % self.down);
        let is_last = unit + 1 == self.units;
        let (down, end) = if is_last {
            (self.rows - unit * self.down, self.rows)
        } else {
            (self.down, self.down * self.units)
        };
        // So counted, a row in a last unit that is not filled can be the second one where it is a later one.
        let counted = unit * down + within;
        let above = row.saturating_sub(1);
        let above_that = if counted > 1 { row - 2 } else { above };
        let below = if row + 1 < end { row + 1 } else { row };
        let below_that = if row + 2 < end { row + 2 } else { below };
        [above_that, above, row, below, below_that]
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

    /// Returns a plane without samples.
    pub(super) fn none() -> Self {
        Self { samples: Vec::new(), width: 0, height: 0 }
    }

    /// Puts the samples of a block into the plane and drops those beyond the edges.
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
