//! Header of a scan: its components, band of coefficients, codes and units. `sequential` and `progressive` read the data.

use std::ops::Range;

use super::{
    bits::Bits,
    frame::Frame,
    header::{Component, JpegHeader},
    huffman::{Codes, Table},
    standard,
};

/// Codes defined so far, for first (DC) coefficients and for the others (AC).
pub(super) struct DefinedCodes {
    pub(super) first: [Option<Codes>; 4],
    pub(super) others: [Option<Codes>; 4],
}

impl DefinedCodes {
    /// Returns the codes of a file without definitions.
    pub(super) fn standard() -> Self {
        let [first, others] = standard::CODES;
        let codes = |of: [standard::Code; 2]| {
            let [luma, colours] = of.map(|(counts, symbols)| Codes::new(counts, symbols));
            [luma, colours, None, None]
        };
        Self { first: codes(first), others: codes(others) }
    }
}

/// Range of coefficients in the order of a scan, and the bits of them in this scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Band {
    pub(super) first: u32,
    pub(super) last: u32,
    /// True for a refinement scan: it adds one bit, `low`, to the known higher bits.
    pub(super) is_refined: bool,
    pub(super) low: u32,
}

/// Band of all coefficients, as in sequential files.
pub(super) const FULL_BAND: Band = Band { first: 0, last: 63, is_refined: false, low: 0 };

/// Component of a scan: its blocks in a unit, and its codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) component: usize,
    /// True for the component to read. Others are skipped.
    pub(super) is_wanted: bool,
    pub(super) across: usize,
    pub(super) down: usize,
    first: usize,
    others: usize,
}

/// Content of the segment at the start of a scan.
pub(super) struct ScanHeader {
    pub(super) parts: Vec<Part>,
    pub(super) band: Band,
}

impl ScanHeader {
    /// Reads the segment; `None` if it is invalid.
    pub(super) fn read(segment: &[u8], header: &JpegHeader, wanted_component: usize) -> Option<Self> {
        let (count, rest) = segment.split_first()?;
        let (selectors, rest) = rest.split_at_checked(2 * usize::from(*count))?;
        let [first, last, bits] = rest.first_chunk().filter(|_| rest.len() == 3)?;
        let is_alone = *count == 1;
        let mut parts: Vec<Part> = Vec::with_capacity(4);
        for (at, pair) in selectors.as_chunks::<2>().0.iter().enumerate() {
            let [id, tables] = *pair;
            let component = header.find_component(id, at)?;
            // libjpeg refuses a scan with a repeated component.
            if parts.iter().any(|part| part.component == component) {
                return None;
            }
            let Component { across, down, .. } = header.components[component];
            let (across, down) = if is_alone { (1, 1) } else { (across.into(), down.into()) };
            let [first, others] = [tables >> 4, tables & 15].map(usize::from);
            parts.push(Part {
                component,
                is_wanted: component == wanted_component,
                across,
                down,
                first,
                others,
            });
        }
        let high = u32::from(bits >> 4);
        let band = Band {
            first: u32::from(*first),
            last: u32::from(*last),
            is_refined: high > 0,
            low: u32::from(bits & 15),
        };
        let is_valid_range = if *first == 0 { *last == 0 } else { is_alone && first <= last && *last < 64 };
        let is_valid_band = is_valid_range && band.low <= 13 && (high == 0 || high == band.low + 1);
        // Like libjpeg, sequential files are read as full bands regardless of these fields.
        let band = if header.is_progressive { band } else { FULL_BAND };
        ((is_valid_band || !header.is_progressive) && !parts.is_empty()).then_some(Self { parts, band })
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.parts.iter().any(|part| part.is_wanted)
    }

    /// Returns the number of units, across and down.
    pub(super) fn count_units(&self, header: &JpegHeader) -> (usize, usize) {
        match self.parts.as_slice() {
            [part] => {
                let Frame { columns, rows, .. } = Frame::new(header, part.component);
                (columns, rows)
            }
            _ => header.units(),
        }
    }

    /// Converts a unit of this scan to a row of units of the file.
    pub(super) fn unit_row(&self, unit: usize, header: &JpegHeader) -> usize {
        let down = match self.parts.as_slice() {
            [part] => header.components[part.component].down.into(),
            _ => 1,
        };
        unit / self.count_units(header).0 / down
    }
}

/// A scan with its tables, measured in units.
pub(super) struct Scan<'a> {
    pub(super) parts: &'a [Part],
    pub(super) band: Band,
    /// Number of units in a row, and in total.
    pub(super) across: usize,
    pub(super) units: usize,
    first: [Option<Box<Table>>; 4],
    others: [Option<Box<Table>>; 4],
}

impl<'a> Scan<'a> {
    /// Builds the tables of a scan; `None` if a needed code is undefined.
    pub(super) fn new(head: &'a ScanHeader, header: &JpegHeader, defined: &DefinedCodes) -> Option<Self> {
        let ScanHeader { parts, band } = head;
        let (across, down) = head.count_units(header);
        let mut scan = Scan {
            parts,
            band: *band,
            across,
            units: across * down,
            first: [const { None }; 4],
            others: [const { None }; 4],
        };
        for part in parts {
            if band.first == 0 && !band.is_refined {
                let codes = defined.first.get(part.first)?.as_ref()?;
                let table = scan.first.get_mut(part.first)?;
                // libjpeg refuses larger symbols in a code for first coefficients.
                if !codes.are_sizes() {
                    return None;
                }
                // Components often share a table.
                if table.is_none() {
                    *table = Some(Table::new(codes)?);
                }
            }
            if band.last > 0 {
                let codes = defined.others.get(part.others)?.as_ref()?;
                let table = scan.others.get_mut(part.others)?;
                if table.is_none() {
                    *table = Some(if band.is_refined {
                        Table::new(&codes.for_refinement())
                    } else {
                        Table::new(codes)
                    }?);
                }
            }
        }
        Some(scan)
    }

    #[inline(always)]
    pub(super) fn first_table(&self, part: &Part) -> Option<&Table> {
        self.first.get(part.first)?.as_deref()
    }

    #[inline(always)]
    pub(super) fn others_table(&self, part: &Part) -> Option<&Table> {
        self.others.get(part.others)?.as_deref()
    }

    /// Calls `on_block` with the component, row and column of each block, in file order. Stops after a unit with too few
    /// bits, and returns the units after it.
    #[inline(always)]
    pub(super) fn for_each_block(
        &self,
        bits: &mut Bits<'_>,
        units: Range<usize>,
        mut on_block: impl FnMut(&mut Bits<'_>, &Part, usize, usize),
    ) -> Range<usize> {
        let (mut row, mut column) = (units.start / self.across, units.start % self.across);
        for unit in units.clone() {
            for part in self.parts {
                for down in 0..part.down {
                    for across in 0..part.across {
                        on_block(bits, part, row * part.down + down, column * part.across + across);
                    }
                }
            }
            if bits.has_ended_early() {
                return unit + 1..units.end;
            }
            column += 1;
            if column == self.across {
                (row, column) = (row + 1, 0);
            }
        }
        units.end..units.end
    }
}
