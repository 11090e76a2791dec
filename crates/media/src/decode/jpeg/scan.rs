//! A scan: which components it has, which part of their coefficients, by which codes, and in which units.
//!
//! What its data says is read elsewhere.

use std::ops::Range;

use super::{
    bits::Bits,
    frame::Frame,
    header::{Component, JpegHeader},
    huffman::{Codes, Table},
    standard,
};

/// Codes that are defined, for first coefficients and for the others.
pub(super) struct Defined {
    pub(super) first: [Option<Codes>; 4],
    pub(super) others: [Option<Codes>; 4],
}

impl Defined {
    /// Those that a file has that defines none.
    pub(super) fn standard() -> Self {
        let [first, others] = standard::CODES;
        let codes = |of: [standard::Code; 2]| {
            let [luma, colours] = of.map(|(counts, symbols)| Codes::new(counts, symbols));
            [luma, colours, None, None]
        };
        Self { first: codes(first), others: codes(others) }
    }
}

/// Coefficients by their place in a scan, and bits of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Band {
    pub(super) first: u32,
    pub(super) last: u32,
    /// The bits above the lowest one of this scan are known, and this scan has but one.
    pub(super) is_refined: bool,
    pub(super) low: u32,
}

/// All coefficients at once: what sequential files have, and no others.
pub(super) const WHOLE: Band = Band { first: 0, last: 63, is_refined: false, low: 0 };

/// A component within a scan: how many of its blocks a unit has, and which codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) component: usize,
    /// True for the component that is read. Others are passed over.
    pub(super) is_wanted: bool,
    pub(super) across: usize,
    pub(super) down: usize,
    first: usize,
    others: usize,
}

/// Contents of the segment at a scan's beginning.
pub(super) struct Head {
    pub(super) parts: Vec<Part>,
    pub(super) band: Band,
}

impl Head {
    /// Reads the segment; `None` if it breaks a rule.
    pub(super) fn read(segment: &[u8], header: &JpegHeader, wanted: usize) -> Option<Self> {
        let (count, rest) = segment.split_first()?;
        let (named, rest) = rest.split_at_checked(2 * usize::from(*count))?;
        let [first, last, bits] = rest.first_chunk().filter(|_| rest.len() == 3)?;
        let is_alone = *count == 1;
        let mut parts: Vec<Part> = Vec::with_capacity(4);
        for (at, pair) in named.as_chunks::<2>().0.iter().enumerate() {
            let [id, tables] = *pair;
            let component = header.named(id, at)?;
            if parts.iter().any(|part| part.component == component) {
                return None;
            }
            let Component { across, down, .. } = header.components[component];
            let (across, down) = if is_alone { (1, 1) } else { (across.into(), down.into()) };
            let [first, others] = [tables >> 4, tables & 15].map(usize::from);
            parts.push(Part { component, is_wanted: component == wanted, across, down, first, others });
        }
        let high = u32::from(bits >> 4);
        let band = Band {
            first: u32::from(*first),
            last: u32::from(*last),
            is_refined: high > 0,
            low: u32::from(bits & 15),
        };
        let is_band = if *first == 0 { *last == 0 } else { is_alone && first <= last && *last < 64 };
        let is_right = is_band && band.low <= 13 && (high == 0 || high == band.low + 1);
        // What sequential files say of bands means nothing, as in libjpeg.
        let band = if header.is_progressive { band } else { WHOLE };
        ((is_right || !header.is_progressive) && !parts.is_empty()).then_some(Self { parts, band })
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.parts.iter().any(|part| part.is_wanted)
    }

    /// Across and down.
    pub(super) fn units(&self, header: &JpegHeader) -> (usize, usize) {
        match self.parts.as_slice() {
            [alone] => {
                let Frame { columns, rows, .. } = Frame::new(header, alone.component);
                (columns, rows)
            }
            _ => header.units(),
        }
    }

    /// The row of the file's units that a unit of this scan lies in.
    pub(super) fn row(&self, unit: usize, header: &JpegHeader) -> usize {
        let down = match self.parts.as_slice() {
            [alone] => header.components[alone.component].down.into(),
            _ => 1,
        };
        unit / self.units(header).0 / down
    }
}

/// A scan with its tables, measured in units.
pub(super) struct Scan<'a> {
    pub(super) parts: &'a [Part],
    pub(super) band: Band,
    /// Number of units in a row, and in all.
    pub(super) across: usize,
    pub(super) units: usize,
    first: [Option<Box<Table>>; 4],
    others: [Option<Box<Table>>; 4],
}

impl<'a> Scan<'a> {
    /// A scan that is read. Nothing if it needs codes that are not defined.
    pub(super) fn new(head: &'a Head, header: &JpegHeader, defined: &Defined) -> Option<Self> {
        let Head { parts, band } = head;
        let (across, down) = head.units(header);
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
                if !codes.are_sizes() {
                    return None;
                }
                if table.is_none() {
                    *table = Some(Table::new(codes)?);
                }
            }
            if band.last > 0 {
                let codes = defined.others.get(part.others)?.as_ref()?;
                let table = scan.others.get_mut(part.others)?;
                if table.is_none() {
                    *table = Some(if band.is_refined {
                        Table::new(&codes.refining())
                    } else {
                        Table::new(codes)
                    }?);
                }
            }
        }
        Some(scan)
    }

    #[inline(always)]
    pub(super) fn first(&self, part: &Part) -> Option<&Table> {
        self.first.get(part.first)?.as_deref()
    }

    #[inline(always)]
    pub(super) fn others(&self, part: &Part) -> Option<&Table> {
        self.others.get(part.others)?.as_deref()
    }

    /// Goes through the units' blocks as they follow each other: the component that each is of, its row and its column.
    /// A unit for which there were not enough bits is the last one; which come after it is told.
    #[inline(always)]
    pub(super) fn blocks(
        &self,
        bits: &mut Bits<'_>,
        units: Range<usize>,
        mut each: impl FnMut(&mut Bits<'_>, &Part, usize, usize),
    ) -> Range<usize> {
        let (mut row, mut column) = (units.start / self.across, units.start % self.across);
        for unit in units.clone() {
            for part in self.parts {
                for down in 0..part.down {
                    for across in 0..part.across {
                        each(bits, part, row * part.down + down, column * part.across + across);
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
