//! Layout of a component in blocks, and the plane of its samples.

use super::{header::JpegHeader, vectors::Samples};

/// Size of a component in blocks of eight by eight samples.
pub(super) struct Frame {
    pub(super) columns: usize,
    pub(super) rows: usize,
    /// Rows of blocks in a unit.
    pub(super) unit_rows: usize,
    /// Rows of units.
    pub(super) units: usize,
}

impl Frame {
    pub(super) fn new(header: &JpegHeader, component: usize) -> Self {
        let [columns, rows] = header.sides(component).map(|side| side.div_ceil(8));
        Self { columns, rows, unit_rows: header.components[component].down.into(), units: header.units().1 }
    }

    /// Returns the rows from two above to two below, chosen like libjpeg: rows below the picture are used if they are
    /// within a unit, except in the last row of units.
    pub(super) fn rows_around(&self, row: usize) -> [usize; 5] {
        let (unit, row_in_unit) = (row / self.unit_rows, row % self.unit_rows);
        let is_last = unit + 1 == self.units;
        let (rows_per_unit, end) = if is_last {
            (self.rows - unit * self.unit_rows, self.rows)
        } else {
            (self.unit_rows, self.unit_rows * self.units)
        };
        // libjpeg multiplies by the rows of the current unit, so in an incomplete last unit, a later row can count as the
        // second.
        let libjpeg_row = unit * rows_per_unit + row_in_unit;
        let above = row.saturating_sub(1);
        let two_above = if libjpeg_row > 1 { row - 2 } else { above };
        let below = if row + 1 < end { row + 1 } else { row };
        let two_below = if row + 2 < end { row + 2 } else { below };
        [two_above, above, row, below, two_below]
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
    pub(super) fn empty() -> Self {
        Self { samples: Vec::new(), width: 0, height: 0 }
    }

    /// Copies the samples of a block to the plane. Samples beyond the edges are dropped.
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
