//! Decodes the luma of a JPEG with eight bits and Huffman codes. Reads one component at a time and skips the others; nearly
//! all files need only one.
//!
//! Damaged files give the same picture as in libjpeg: data ends at any marker, missing blocks are gray, the next restart is
//! found by its number, and an invalid code counts as 0.

use std::ops::Range;

use super::{
    super::{
        DecodeError, LumaImage,
        budget::{MemoryBudget, Reservation},
    },
    FIXED_BYTES,
    bits::{Bits, Pieces},
    frame::{Frame, Plane},
    header::{END, JpegHeader, next_marker},
    huffman::Codes,
    planes,
    progressive::Coefficients,
    scan::{DefinedCodes, Scan, ScanHeader},
    scans, sequential,
    smooth::Progress,
    transform::ORDER,
    vectors::Vectors,
};

pub(super) fn decode<'a>(
    bytes: &[u8],
    header: &JpegHeader,
    budget: &'a MemoryBudget,
) -> Result<(LumaImage, Reservation<'a>), DecodeError> {
    let needs_coefficients =
        |component| header.is_progressive || scans::is_repeated(bytes, header, component);
    let need_coefficients: Vec<bool> =
        (0..planes::count_needed_planes(header)).map(needs_coefficients).collect();
    // For a progressive file, another component may be read to find the row at which the last scan ended.
    let read_components =
        if header.is_progressive { header.components.len() } else { need_coefficients.len() };
    let buffered_components =
        (0..read_components).filter(|component| header.is_progressive || need_coefficients[*component]);
    let coefficient_bytes =
        buffered_components.map(|component| Coefficients::bytes(&Frame::new(header, component))).max();
    let needed_bytes = FIXED_BYTES
        + coefficient_bytes.unwrap_or(0)
        + Pieces::max_bytes(bytes) as u64
        + planes::count_bytes(header);
    let reservation = budget.reserve(needed_bytes)?;
    let planes = need_coefficients.into_iter().enumerate();
    let planes = planes.map(|(component, needs_coefficients)| {
        if needs_coefficients {
            decode_buffered(bytes, header, component)
        } else {
            Decoder::new(bytes, header, component).decode_single_scan()
        }
    });
    let planes = planes.collect();
    let samples = planes::luma(header, planes).ok_or(DecodeError::BROKEN)?;
    let gray = LumaImage::new(header.width, header.height, samples).ok_or(DecodeError::BROKEN)?;
    Ok((gray, reservation))
}

/// Decodes a component from buffered coefficients. `None` without data or with too many scans.
fn decode_buffered(bytes: &[u8], header: &JpegHeader, component: usize) -> Option<Vec<u8>> {
    let read_component = |component| Decoder::new(bytes, header, component).read_all_scans();
    let mut buffered = read_component(component)?;
    let steps = buffered.steps;
    if let Some(mut guess) = buffered.progress.guess(component) {
        if !guess.is_same_below() {
            let LastScan { component: last_component, row } = buffered.last_scan;
            guess.last_row = match row {
                Some(row) => row,
                // The coefficients are dropped and read again: holding two components would exceed the reservation.
                None => {
                    drop(buffered);
                    let row =
                        read_component(last_component).and_then(|last_buffered| last_buffered.last_scan.row);
                    buffered = read_component(component)?;
                    row.unwrap_or(0)
                }
            };
        }
        buffered.coefficients.fill(&guess, &steps);
    }
    let mut plane = Plane::new(header, component);
    Some(Vectors::dispatch(
        #[inline(always)]
        move |vectors| {
            buffered.coefficients.transform(vectors, &steps, &mut plane);
            plane.samples
        },
    ))
}

/// Coefficients and state of a component after all scans.
struct BufferedComponent {
    coefficients: Coefficients,
    steps: [i16; 64],
    progress: Progress,
    last_scan: LastScan,
}

/// Last scan: one of its components, and the row of units at which its data ended, if the scan was read.
#[derive(Clone, Copy, Default)]
struct LastScan {
    component: usize,
    row: Option<usize>,
}

struct Decoder<'a> {
    bytes: &'a [u8],
    header: &'a JpegHeader,
    /// Component to read.
    component: usize,
    codes: DefinedCodes,
    steps: [Option<[i16; 64]>; 4],
    /// Quantization steps of the component at the start of its first scan.
    component_steps: Option<[i16; 64]>,
    /// Restart interval in units; 0 without restarts.
    restart_interval: usize,
    scans: usize,
    max_scans: usize,
    progress: Progress,
    last_scan: LastScan,
    pieces: Pieces<'a>,
}

impl<'a> Decoder<'a> {
    fn new(bytes: &'a [u8], header: &'a JpegHeader, component: usize) -> Self {
        Self {
            bytes,
            header,
            component,
            codes: DefinedCodes::standard(),
            steps: [None; 4],
            component_steps: None,
            restart_interval: 0,
            scans: 0,
            max_scans: scans::max_scans(&Frame::new(header, component)),
            progress: Progress::new(header),
            last_scan: LastScan::default(),
            pieces: Pieces::new(bytes),
        }
    }

    /// Decodes a component with a single scan; `None` if the scan is missing.
    fn decode_single_scan(mut self) -> Option<Vec<u8>> {
        let mut plane = Plane::new(self.header, self.component);
        self.read_scans(&mut plane, None).is_some_and(|is_read| is_read).then_some(plane.samples)
    }

    /// Reads all scans; `None` without a scan or with too many.
    fn read_all_scans(mut self) -> Option<BufferedComponent> {
        let mut coefficients = Coefficients::new(Frame::new(self.header, self.component));
        // Coefficients read before an error are valid.
        let _ = self.read_scans(&mut Plane::empty(), Some(&mut coefficients));
        if !coefficients.has_any() || self.scans > self.max_scans {
            return None;
        }
        Some(BufferedComponent {
            coefficients,
            steps: self.component_steps?,
            progress: self.progress,
            last_scan: self.last_scan,
        })
    }

    /// Reads scans to the end of the picture or, without `coefficients`, to the end of the component's only scan. `None` if
    /// a segment is invalid.
    fn read_scans(&mut self, plane: &mut Plane, mut coefficients: Option<&mut Coefficients>) -> Option<bool> {
        let (mut marker, mut at) = self.find_marker(2);
        let mut is_begun = false;
        loop {
            if marker == END {
                return Some(false);
            }
            // Markers without a segment. libjpeg treats the other ones as an error and ignores the rest of the file.
            if matches!(marker, 0x01 | 0xd0..=0xd7) {
                (marker, at) = self.find_marker(at);
                continue;
            }
            let length = usize::from(u16::from_be_bytes(*self.bytes.get(at..)?.first_chunk()?)).max(2);
            let segment = self.bytes.get(at..)?.get(2..length)?;
            at += length;
            match marker {
                0xc4 => self.define_codes(segment)?,
                0xdb => self.define_steps(segment)?,
                0xdd => self.restart_interval = u16::from_be_bytes(segment.try_into().ok()?).into(),
                0xda => {
                    is_begun = true;
                    let head = ScanHeader::read(segment, self.header, self.component)?;
                    self.progress.begin(&head, self.header, &self.steps);
                    let [first, ..] = head.parts.as_slice() else { return None };
                    self.last_scan = LastScan { component: first.component, row: None };
                    if !head.is_wanted() {
                        (marker, at) = self.skip_scan(&head, at);
                        continue;
                    }
                    (marker, at) = self.read_scan(&head, at, plane, coefficients.as_deref_mut())?;
                    if coefficients.is_none() {
                        return Some(true);
                    }
                    continue;
                }
                // The frame header was read by `header::read`.
                0xc0..=0xc2 if !is_begun => {}
                0xcc | 0xdc | 0xe0..=0xef | 0xfe => {}
                _ => return None,
            }
            (marker, at) = self.find_marker(at);
        }
    }

    /// Returns the next marker from `at`, and the offset after it. The end of the file counts as `END`.
    fn find_marker(&self, at: usize) -> (u8, usize) {
        let next = next_marker(self.bytes.get(at..).unwrap_or_default());
        next.map_or((END, self.bytes.len()), |(marker, after)| (marker, self.bytes.len() - after.len()))
    }

    fn define_codes(&mut self, mut segment: &[u8]) -> Option<()> {
        while let Some((selector, rest)) = segment.split_first() {
            let (codes, rest) = Codes::read(rest)?;
            let kind = match selector >> 4 {
                0 => &mut self.codes.first,
                1 => &mut self.codes.others,
                _ => return None,
            };
            *kind.get_mut(usize::from(selector & 15))? = Some(codes);
            segment = rest;
        }
        Some(())
    }

    fn define_steps(&mut self, mut segment: &[u8]) -> Option<()> {
        while let Some((selector, rest)) = segment.split_first() {
            let width = if selector >> 4 == 0 { 1 } else { 2 };
            let (values, rest) = rest.split_at_checked(64 * width)?;
            let mut steps = [0; 64];
            for (value, place) in values.chunks(width).zip(ORDER) {
                let step = value.iter().fold(0, |step, byte| step << 8 | u16::from(*byte));
                steps[usize::from(place)] = step.cast_signed();
            }
            *self.steps.get_mut(usize::from(selector & 15))? = Some(steps);
            segment = rest;
        }
        Some(())
    }

    /// Skips a scan. Returns the marker after it, and the offset after the marker. Restarts within the scan are skipped.
    fn skip_scan(&mut self, head: &ScanHeader, at: usize) -> (u8, usize) {
        let (across, down) = head.count_units(self.header);
        let restarts = (across * down - 1).checked_div(self.restart_interval).unwrap_or(0);
        self.pieces.begin(at);
        let mut marker = self.pieces.next_marker();
        for restart in (0..8).cycle().take(restarts) {
            marker = match self.pieces.find_restart(marker, restart) {
                None => self.pieces.next_marker(),
                Some(early @ 0xd0..=0xd7) => early,
                Some(end) => return (end, self.pieces.at()),
            };
        }
        (marker, self.pieces.at())
    }

    /// Reads the scan starting at `at`. Returns the marker after it, and the offset after the marker.
    fn read_scan(
        &mut self,
        head: &ScanHeader,
        at: usize,
        plane: &mut Plane,
        mut coefficients: Option<&mut Coefficients>,
    ) -> Option<(u8, usize)> {
        self.scans += 1;
        // Bounds the time of a small file with very many scans.
        if self.scans > self.max_scans {
            return None;
        }
        // Later definitions of the steps do not apply to a component that has begun, as in libjpeg.
        if self.component_steps.is_none() {
            self.component_steps =
                *self.steps.get(usize::from(self.header.components[self.component].table))?;
        }
        let steps = self.component_steps?;
        let scan = Scan::new(head, self.header, &self.codes)?;
        let units_per_interval = if self.restart_interval == 0 { scan.units } else { self.restart_interval };
        self.pieces.begin(at);
        let (mut begin, mut restart) = (0, 0);
        // A marker of later data, and whether the current data, or the data before the last restart, was too short.
        let (mut early_marker, mut is_short, mut was_short) = (None, false, false);
        loop {
            let units = begin..scan.units.min(begin + units_per_interval);
            let (bits, marker) = match early_marker {
                None => self.pieces.next(),
                Some(marker) => (Bits::NONE, marker),
            };
            is_short = match &mut coefficients {
                Some(_) if is_short => true,
                Some(coefficients) => {
                    let short_unit = progressive_units(bits, units.clone(), &scan, coefficients);
                    let last_unit = short_unit.unwrap_or(units.end - 1);
                    // libjpeg updates its row only when it reads the unit after a restart.
                    if !(was_short && last_unit == begin) {
                        self.last_scan.row = Some(head.unit_row(last_unit, self.header));
                    }
                    short_unit.is_some()
                }
                None if is_short => {
                    sequential::fill_gray(units.clone(), &scan, plane);
                    true
                }
                None => sequential_units(bits, units.clone(), &scan, &steps, plane),
            };
            if units.end == scan.units {
                return Some((marker, self.pieces.at()));
            }
            early_marker = self.pieces.find_restart(marker, restart);
            was_short = is_short;
            is_short &= early_marker.is_some();
            restart = (restart + 1) % 8;
            begin = units.end;
        }
    }
}

fn sequential_units(
    bits: Bits<'_>,
    units: Range<usize>,
    scan: &Scan<'_>,
    steps: &[i16; 64],
    plane: &mut Plane,
) -> bool {
    Vectors::dispatch(
        #[inline(always)]
        move |vectors| sequential::read_units(vectors, bits, units, scan, steps, plane),
    )
}

fn progressive_units(
    bits: Bits<'_>,
    units: Range<usize>,
    scan: &Scan<'_>,
    coefficients: &mut Coefficients,
) -> Option<usize> {
    Vectors::dispatch(
        #[inline(always)]
        move |_| coefficients.read_units(bits, units, scan),
    )
}
