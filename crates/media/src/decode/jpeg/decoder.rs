//! Our own decoder: the luma of a JPEG whose header says that it is made as nearly all are, and nothing else of it.
//!
//! What breaks a rule is refused, and left to decoders that make something of it.

use std::ops::Range;

use super::{
    super::{
        Gray, Refusal,
        budget::{Budget, Share},
    },
    FIXED,
    bits::{Bits, Pieces},
    frame::{Frame, Plane},
    gray,
    header::{Colours, JpegHeader},
    huffman::Codes,
    pixels,
    progressive::Coefficients,
    scan::{Defined, Head, Scan},
    scans, sequential,
    transform::ORDER,
    vectors::Vectors,
};

/// The picture's.
const END: u8 = 0xd9;

/// Whether it is asked: what luma shows needs no converting, and no component has more samples than luma.
pub(super) fn takes(header: &JpegHeader) -> bool {
    header.is_plain && matches!(header.colours, Colours::Gray | Colours::YCbCr) && header.is_luma_largest
}

pub(super) fn decode<'a>(
    bytes: &[u8],
    header: &JpegHeader,
    budget: &'a Budget,
) -> Result<(Gray, Share<'a>), Refusal> {
    let frame = Frame::new(header);
    let is_kept = header.is_progressive || scans::is_luma_repeated(bytes, header);
    let kept = if is_kept { Coefficients::bytes((frame.columns * frame.rows) as u64) } else { 0 };
    let share = budget.share(FIXED + kept + Pieces::most(bytes) as u64 + pixels(header))?;
    let samples = Decoder::new(bytes, header, frame).decode(is_kept).ok_or(Refusal::BROKEN)?;
    Ok((gray(header, samples)?, share))
}

struct Decoder<'a> {
    bytes: &'a [u8],
    header: &'a JpegHeader,
    frame: Frame,
    codes: Defined,
    steps: [Option<[i32; 64]>; 4],
    /// Those of luma, as they are when its first scan begins.
    of_luma: Option<[i32; 64]>,
    /// In units; 0 is never.
    restarts_after: usize,
    scans: usize,
    pieces: Pieces<'a>,
}

impl<'a> Decoder<'a> {
    fn new(bytes: &'a [u8], header: &'a JpegHeader, frame: Frame) -> Self {
        Self {
            bytes,
            header,
            frame,
            codes: Defined::default(),
            steps: [None; 4],
            of_luma: None,
            restarts_after: 0,
            scans: 0,
            pieces: Pieces::new(bytes),
        }
    }

    fn decode(mut self, is_kept: bool) -> Option<Vec<u8>> {
        let mut plane = Plane::new(self.header);
        let mut kept = is_kept.then(|| Coefficients::new(&self.frame));
        let (mut marker, mut at) = marker(self.bytes, 2)?;
        let mut is_begun = false;
        loop {
            if marker == END {
                let kept = kept.filter(Coefficients::has_any)?;
                let steps = self.of_luma?;
                return Some(Vectors::dispatch(
                    #[inline(always)]
                    move |vectors| {
                        kept.transform(vectors, &steps, &mut plane);
                        plane.samples
                    },
                ));
            }
            let length = usize::from(u16::from_be_bytes(*self.bytes.get(at..)?.first_chunk()?));
            let segment = self.bytes.get(at..)?.get(2..length)?;
            at += length;
            match marker {
                0xc4 => self.define_codes(segment)?,
                0xdb => self.define_steps(segment)?,
                0xdd => self.restarts_after = u16::from_be_bytes(segment.try_into().ok()?).into(),
                0xda => {
                    is_begun = true;
                    let head = Head::read(segment, self.header)?;
                    if head.has_luma() {
                        (marker, at) = self.scan(&head, at, &mut plane, kept.as_mut())?;
                        if kept.is_none() {
                            return (marker == END || self.header.is_buffered).then_some(plane.samples);
                        }
                    } else {
                        at = scans::end_of_scan(self.bytes, at);
                        (marker, at) = self::marker(self.bytes, at)?;
                    }
                    continue;
                }
                // What is read of the frame has been read before.
                0xc0..=0xc2 if !is_begun => {}
                0xe0..=0xef | 0xfe => {}
                _ => return None,
            }
            (marker, at) = self::marker(self.bytes, at)?;
        }
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
            let width = 1 + usize::from(which >> 4);
            let (values, rest) = rest.split_at_checked(64 * width).filter(|_| width <= 2)?;
            let mut steps = [0; 64];
            for (value, place) in values.chunks(width).zip(ORDER) {
                let step = value.iter().fold(0, |step, byte| step << 8 | i32::from(*byte));
                steps[usize::from(place)] = step;
            }
            if steps.contains(&0) {
                return None;
            }
            *self.steps.get_mut(usize::from(which & 15))? = Some(steps);
            segment = rest;
        }
        Some(())
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
        if self.scans > scans::MOST {
            return None;
        }
        if self.of_luma.is_none() {
            self.of_luma = *self.steps.get(usize::from(self.header.components[0].table))?;
        }
        let steps = self.of_luma?;
        if let Some(kept) = &mut kept {
            kept.begin(&head.band)?;
        }
        let scan = Scan::new(head, self.header, &self.frame, &self.codes)?;
        let most = if self.restarts_after == 0 { scan.units } else { self.restarts_after };
        self.pieces.begin(at);
        let mut begin = 0;
        loop {
            let units = begin..scan.units.min(begin + most);
            let (bits, marker, at) = self.pieces.next()?;
            match &mut kept {
                Some(kept) => progressive_units(bits, units.clone(), &scan, kept)?,
                None => sequential_units(bits, units.clone(), &scan, &steps, plane)?,
            }
            let is_restart = (0xd0..=0xd7).contains(&marker);
            if units.end == scan.units {
                return (!is_restart).then_some((marker, at));
            }
            if !is_restart || usize::from(marker & 7) != begin / most % 8 {
                return None;
            }
            begin = units.end;
        }
    }
}

fn sequential_units(
    bits: Bits<'_>,
    units: Range<usize>,
    scan: &Scan<'_>,
    steps: &[i32; 64],
    plane: &mut Plane,
) -> Option<()> {
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
) -> Option<()> {
    Vectors::dispatch(
        #[inline(always)]
        move |_| kept.units(bits, units, scan),
    )
}

/// The marker that stands there, and where it ends.
fn marker(bytes: &[u8], at: usize) -> Option<(u8, usize)> {
    let rest = bytes.get(at..)?;
    let fill = rest.iter().position(|byte| *byte != 0xff)?;
    (fill > 0 && rest[fill] != 0).then_some((rest[fill], at + fill + 1))
}
