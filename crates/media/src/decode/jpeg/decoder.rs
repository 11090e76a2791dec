//! Our own decoder: the luma of a JPEG of eight bits and Huffman codes. Each component that it takes is read alone, and the
//! others are passed over; for nearly all files that is one.
//!
//! What breaks a rule shows what libjpeg shows of it: data ends at any marker, and what it is too short for is gray; the
//! next restart is looked for by its number; what is no code says nothing.

use std::ops::Range;

use super::{
    super::{
        DecodeError, Gray,
        budget::{MemoryBudget, Reservation},
    },
    FIXED_BYTES,
    bits::{Bits, Pieces},
    frame::{Frame, Plane},
    header::{END, JpegHeader, next_marker},
    huffman::Codes,
    planes,
    progressive::Coefficients,
    scan::{Defined, Head, Scan},
    scans, sequential,
    smooth::Progress,
    transform::ORDER,
    vectors::Vectors,
};

pub(super) fn decode<'a>(
    bytes: &[u8],
    header: &JpegHeader,
    budget: &'a MemoryBudget,
) -> Result<(Gray, Reservation<'a>), DecodeError> {
    let is_kept = |component| header.is_progressive || scans::is_repeated(bytes, header, component);
    let are_kept: Vec<bool> = (0..planes::needed(header)).map(is_kept).collect();
    // Of a progressive file, colours may be read to see where its last scan ends.
    let read = if header.is_progressive { header.components.len() } else { are_kept.len() };
    let kept = (0..read).filter(|component| header.is_progressive || are_kept[*component]);
    let kept = kept.map(|component| Coefficients::bytes(&Frame::new(header, component))).max();
    let most = FIXED_BYTES + kept.unwrap_or(0) + Pieces::most(bytes) as u64 + planes::bytes(header);
    let reservation = budget.reserve(most)?;
    let planes = are_kept.into_iter().enumerate();
    let planes = planes.map(|(component, is_kept)| {
        if is_kept {
            of_kept(bytes, header, component)
        } else {
            Decoder::new(bytes, header, component).at_once()
        }
    });
    let planes = planes.collect();
    let samples = planes::luma(header, planes).ok_or(DecodeError::BROKEN)?;
    let gray = Gray::new(header.width, header.height, samples).ok_or(DecodeError::BROKEN)?;
    Ok((gray, reservation))
}

/// Its samples, if any came and there are not too many scans.
fn of_kept(bytes: &[u8], header: &JpegHeader, component: usize) -> Option<Vec<u8>> {
    let read = |component| Decoder::new(bytes, header, component).all();
    let mut kept = read(component)?;
    let steps = kept.steps;
    if let Some(mut guess) = kept.progress.guess(component) {
        if !guess.is_the_same_below() {
            let Last { component: last, row } = kept.last;
            guess.last = match row {
                Some(row) => row,
                // One after the other, so that no more memory is needed.
                None => {
                    drop(kept);
                    let row = read(last).and_then(|kept| kept.last.row);
                    kept = read(component)?;
                    row.unwrap_or(0)
                }
            };
        }
        kept.coefficients.fill(&guess, &steps);
    }
    let mut plane = Plane::new(header, component);
    Some(Vectors::dispatch(
        #[inline(always)]
        move |vectors| {
            kept.coefficients.transform(vectors, &steps, &mut plane);
            plane.samples
        },
    ))
}

/// Coefficients and state of a component after all scans.
struct Kept {
    coefficients: Coefficients,
    steps: [i16; 64],
    progress: Progress,
    last: Last,
}

/// The last scan: a component that it has, and the row of units where its data ran out, if it was read.
#[derive(Clone, Copy, Default)]
struct Last {
    component: usize,
    row: Option<usize>,
}

struct Decoder<'a> {
    bytes: &'a [u8],
    header: &'a JpegHeader,
    /// Component that is read.
    component: usize,
    codes: Defined,
    steps: [Option<[i16; 64]>; 4],
    /// Steps of the component at the beginning of its first scan.
    of_wanted: Option<[i16; 64]>,
    /// Restart interval in units; 0 if there are no restarts.
    restarts_after: usize,
    scans: usize,
    most_scans: usize,
    progress: Progress,
    last: Last,
    pieces: Pieces<'a>,
}

impl<'a> Decoder<'a> {
    fn new(bytes: &'a [u8], header: &'a JpegHeader, component: usize) -> Self {
        Self {
            bytes,
            header,
            component,
            codes: Defined::standard(),
            steps: [None; 4],
            of_wanted: None,
            restarts_after: 0,
            scans: 0,
            most_scans: scans::most(&Frame::new(header, component)),
            progress: Progress::new(header),
            last: Last::default(),
            pieces: Pieces::new(bytes),
        }
    }

    /// The samples of a component that has one scan, if that came.
    fn at_once(mut self) -> Option<Vec<u8>> {
        let mut plane = Plane::new(self.header, self.component);
        self.read(&mut plane, None).is_some_and(|is_read| is_read).then_some(plane.samples)
    }

    /// Reads all scans; `None` if there is none, or too many.
    fn all(mut self) -> Option<Kept> {
        let mut coefficients = Coefficients::new(Frame::new(self.header, self.component));
        // Coefficients that were read before an error are valid.
        let _ = self.read(&mut Plane::none(), Some(&mut coefficients));
        if !coefficients.has_any() || self.scans > self.most_scans {
            return None;
        }
        Some(Kept { coefficients, steps: self.of_wanted?, progress: self.progress, last: self.last })
    }

    /// Reads scans up to the picture's end, or to the end of the component's one if coefficients are not kept. Nothing if
    /// something outside of their data is broken.
    fn read(&mut self, plane: &mut Plane, mut kept: Option<&mut Coefficients>) -> Option<bool> {
        let (mut marker, mut at) = self.marker(2);
        let mut is_begun = false;
        loop {
            if marker == END {
                return Some(false);
            }
            // Without a segment. Others of that kind are a fault, as libjpeg has it: nobody sees what stands behind them.
            if matches!(marker, 0x01 | 0xd0..=0xd7) {
                (marker, at) = self.marker(at);
                continue;
            }
            let length = usize::from(u16::from_be_bytes(*self.bytes.get(at..)?.first_chunk()?)).max(2);
            let segment = self.bytes.get(at..)?.get(2..length)?;
            at += length;
            match marker {
                0xc4 => self.define_codes(segment)?,
                0xdb => self.define_steps(segment)?,
                0xdd => self.restarts_after = u16::from_be_bytes(segment.try_into().ok()?).into(),
                0xda => {
                    is_begun = true;
                    let head = Head::read(segment, self.header, self.component)?;
                    self.progress.begin(&head, self.header, &self.steps);
                    let [first, ..] = head.parts.as_slice() else { return None };
                    self.last = Last { component: first.component, row: None };
                    if !head.is_wanted() {
                        (marker, at) = self.pass_over(&head, at);
                        continue;
                    }
                    (marker, at) = self.scan(&head, at, plane, kept.as_deref_mut())?;
                    if kept.is_none() {
                        return Some(true);
                    }
                    continue;
                }
                // What is read of the frame has been read before.
                0xc0..=0xc2 if !is_begun => {}
                0xcc | 0xdc | 0xe0..=0xef | 0xfe => {}
                _ => return None,
            }
            (marker, at) = self.marker(at);
        }
    }

    /// The next marker from there on, and where it ends. The file's end is the picture's.
    fn marker(&self, at: usize) -> (u8, usize) {
        let next = next_marker(self.bytes.get(at..).unwrap_or_default());
        next.map_or((END, self.bytes.len()), |(marker, after)| (marker, self.bytes.len() - after.len()))
    }

    fn define_codes(&mut self, mut segment: &[u8]) -> Option<()> {
        while let Some((which, rest)) = segment.split_first() {
            let (codes, rest) = Codes::read(rest)?;
            let kind = match which >> 4 {
                0 => &mut self.codes.first,
                1 => &mut self.codes.others,
                _ => return None,
            };
            *kind.get_mut(usize::from(which & 15))? = Some(codes);
            segment = rest;
        }
        Some(())
    }

    fn define_steps(&mut self, mut segment: &[u8]) -> Option<()> {
        while let Some((which, rest)) = segment.split_first() {
            let width = if which >> 4 == 0 { 1 } else { 2 };
            let (values, rest) = rest.split_at_checked(64 * width)?;
            let mut steps = [0; 64];
            for (value, place) in values.chunks(width).zip(ORDER) {
                let step = value.iter().fold(0, |step, byte| step << 8 | u16::from(*byte));
                steps[usize::from(place)] = step.cast_signed();
            }
            *self.steps.get_mut(usize::from(which & 15))? = Some(steps);
            segment = rest;
        }
        Some(())
    }

    /// The marker that follows a scan, and where it ends. It is not the first one if that is taken for a restart.
    fn pass_over(&mut self, head: &Head, at: usize) -> (u8, usize) {
        let (across, down) = head.units(self.header);
        let restarts = (across * down - 1).checked_div(self.restarts_after).unwrap_or(0);
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

    /// Reads a scan that begins there, and says which marker follows it, and where that ends.
    fn scan(
        &mut self,
        head: &Head,
        at: usize,
        plane: &mut Plane,
        mut kept: Option<&mut Coefficients>,
    ) -> Option<(u8, usize)> {
        self.scans += 1;
        if self.scans > self.most_scans {
            return None;
        }
        if self.of_wanted.is_none() {
            self.of_wanted = *self.steps.get(usize::from(self.header.components[self.component].table))?;
        }
        let steps = self.of_wanted?;
        let scan = Scan::new(head, self.header, &self.codes)?;
        let most = if self.restarts_after == 0 { scan.units } else { self.restarts_after };
        self.pieces.begin(at);
        let (mut begin, mut restart) = (0, 0);
        // A marker for which this is too early, and whether the data before it was too short, now and before a restart.
        let (mut early, mut is_short, mut was_short) = (None, false, false);
        loop {
            let units = begin..scan.units.min(begin + most);
            let (bits, marker) = match early {
                None => self.pieces.next(),
                Some(marker) => (Bits::NONE, marker),
            };
            is_short = match &mut kept {
                Some(_) if is_short => true,
                Some(kept) => {
                    let short = progressive_units(bits, units.clone(), &scan, kept);
                    let last = short.unwrap_or(units.end - 1);
                    // What stood before a restart is forgotten by libjpeg only once it looks at the unit after it.
                    if !(was_short && last == begin) {
                        self.last.row = Some(head.row(last, self.header));
                    }
                    short.is_some()
                }
                None if is_short => {
                    sequential::gray(units.clone(), &scan, plane);
                    true
                }
                None => sequential_units(bits, units.clone(), &scan, &steps, plane),
            };
            if units.end == scan.units {
                return Some((marker, self.pieces.at()));
            }
            early = self.pieces.find_restart(marker, restart);
            was_short = is_short;
            is_short &= early.is_some();
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
        move |vectors| sequential::units(vectors, bits, units, scan, steps, plane),
    )
}

fn progressive_units(
    bits: Bits<'_>,
    units: Range<usize>,
    scan: &Scan<'_>,
    kept: &mut Coefficients,
) -> Option<usize> {
    Vectors::dispatch(
        #[inline(always)]
        move |_| kept.units(bits, units, scan),
    )
}
