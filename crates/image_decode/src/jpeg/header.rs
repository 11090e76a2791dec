//! Reads a JPEG up to its first scan: size, components and colour model. The results of decoders are checked against this
//! header.

use super::super::DecodeError;

/// Colours of the components.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Colours {
    Gray,
    YCbCr,
    /// Three components without a transform, identified by the ids `R`, `G` and `B`.
    Rgb,
    /// RGB, identified by Adobe's segment.
    AdobeRgb,
    Cmyk,
    /// CMYK with three transformed inks: four components with any Adobe mark other than 0.
    Ycck,
}

/// Marker at the end of a picture.
pub(super) const END: u8 = 0xd9;

/// Known values of the Adobe mark (colour transform). Other values count as 1, or as 2 for four components.
const KNOWN_MARKS: [u8; 3] = [0, 1, 2];
/// Offset of the mark in Adobe's segment.
const ADOBE_MARK_OFFSET: usize = 11;
/// Length of a JFIF segment in bytes. libjpeg ignores shorter ones.
const JFIF_LENGTH: usize = 14;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct JpegHeader {
    pub(in super::super) width: u32,
    pub(in super::super) height: u32,
    pub(super) colours: Colours,
    /// True if coefficients are buffered until the last scan: progressive files, and files with several scans.
    pub(super) is_buffered: bool,
    /// Samples of all components together, rounded up to whole blocks.
    pub(super) samples: u64,
    /// True for the sampling factors and scans of nearly all files.
    pub(super) is_common: bool,
    /// True for lossy Huffman coding with eight bits a sample.
    pub(super) is_plain: bool,
    /// True for arithmetic coding, which browsers and Tidegate do not support.
    pub(super) is_arithmetic: bool,
    pub(super) is_progressive: bool,
    /// One to four components. Luma, if present, is the first.
    pub(super) components: Vec<Component>,
    /// True if an Adobe mark has an unknown value. zune-jpeg gets a copy with the effective value.
    pub(super) has_unknown_mark: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Component {
    pub(super) id: u8,
    pub(super) across: u8,
    pub(super) down: u8,
    /// Index of the quantization table.
    pub(super) table: u8,
}

impl JpegHeader {
    /// Returns the largest sampling factors, across and down.
    pub(super) fn max_sampling(&self) -> [u8; 2] {
        max_factors(&self.components)
    }

    /// Returns the component selected by the part of a scan at this place. Like libjpeg, a part with an ambiguous id
    /// selects the first such component at or after its own place.
    pub(super) fn find_component(&self, id: u8, place: usize) -> Option<usize> {
        let find_from =
            |first: usize| (first..self.components.len()).find(|at| self.components[*at].id == id);
        find_from(place).or_else(|| find_from(0))
    }

    /// Returns the samples of a component, across and down.
    pub(super) fn sides(&self, component: usize) -> [usize; 2] {
        let [across, down] = self.max_sampling().map(u32::from);
        let Component { across: own_across, down: own_down, .. } = self.components[component];
        let side = |side: u32, own: u8, most: u32| (side * u32::from(own)).div_ceil(most) as usize;
        [side(self.width, own_across, across), side(self.height, own_down, down)]
    }

    /// Returns the units of a scan with several components, across and down.
    pub(super) fn units(&self) -> (usize, usize) {
        let [across, down] = self.max_sampling().map(u32::from);
        (self.width.div_ceil(8 * across) as usize, self.height.div_ceil(8 * down) as usize)
    }
}

fn max_factors(components: &[Component]) -> [u8; 2] {
    let max_factor = |of: fn(&Component) -> u8| components.iter().map(of).max().unwrap_or(1);
    [max_factor(|component| component.across), max_factor(|component| component.down)]
}

#[derive(Default)]
struct Marks {
    jfif: bool,
    /// Value of the last Adobe mark.
    adobe: Option<u8>,
    has_unknown: bool,
}

struct Frame {
    progressive: bool,
    plain: bool,
    arithmetic: bool,
    width: u32,
    height: u32,
    components: Vec<Component>,
}

/// Reads segments up to the first scan.
pub(in super::super) fn read(bytes: &[u8]) -> Result<JpegHeader, DecodeError> {
    let (mut frame, mut marks) = (None, Marks::default());
    let mut rest = bytes.get(2..).ok_or(DecodeError::BROKEN)?;
    loop {
        let (marker, segment, after) = next_segment(rest).ok_or(DecodeError::BROKEN)?;
        match marker {
            0xd9 => return Err(DecodeError::BROKEN),
            0xda => {
                let scan_components = usize::from(*segment.first().ok_or(DecodeError::BROKEN)?);
                return build_header(&frame.ok_or(DecodeError::BROKEN)?, scan_components, &marks);
            }
            0xc0..=0xcf if !matches!(marker, 0xc4 | 0xc8 | 0xcc) => {
                let earlier_frame = frame.replace(start_of_frame(marker, segment)?);
                // libjpeg refuses a second frame header.
                if earlier_frame.is_some() {
                    return Err(DecodeError::BROKEN);
                }
            }
            0xe0 => marks.jfif |= segment.starts_with(b"JFIF\0") && segment.len() >= JFIF_LENGTH,
            _ => {
                if let Some(mark) = read_adobe_mark(marker, segment) {
                    marks.adobe = Some(mark);
                    marks.has_unknown |= !KNOWN_MARKS.contains(&mark);
                }
            }
        }
        rest = after;
    }
}

fn read_adobe_mark(marker: u8, segment: &[u8]) -> Option<u8> {
    segment.get(ADOBE_MARK_OFFSET).copied().filter(|_| marker == 0xee && segment.starts_with(b"Adobe"))
}

/// Returns a copy of the file with unknown Adobe marks replaced by their effective value.
pub(super) fn replace_unknown_marks(bytes: &[u8], header: &JpegHeader) -> Vec<u8> {
    let effective_mark = if header.components.len() == 4 { 2 } else { 1 };
    let (mut patched_bytes, mut rest) = (bytes.to_vec(), &bytes[2..]);
    while let Some((marker, segment, after)) = next_segment(rest).filter(|(marker, ..)| *marker != 0xda) {
        if read_adobe_mark(marker, segment).is_some_and(|mark| !KNOWN_MARKS.contains(&mark)) {
            patched_bytes[bytes.len() - after.len() - segment.len() + ADOBE_MARK_OFFSET] = effective_mark;
        }
        rest = after;
    }
    patched_bytes
}

/// Returns the next marker with a segment, its segment, and the remaining bytes.
fn next_segment(mut bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    loop {
        let (marker, after) = next_marker(bytes)?;
        if matches!(marker, 0x01 | 0xd0..=0xd8) {
            bytes = after;
            continue;
        }
        let length = usize::from(u16::from_be_bytes(*after.first_chunk()?)).max(2);
        return Some((marker, after.get(2..length)?, &after[length..]));
    }
}

/// Returns the next marker and the remaining bytes. Skips garbage between segments.
pub(super) fn next_marker(bytes: &[u8]) -> Option<(u8, &[u8])> {
    let mut at = 0;
    loop {
        at += bytes.get(at..)?.iter().position(|byte| *byte == 0xff)? + 1;
        match bytes.get(at)? {
            0xff | 0 => {}
            marker => return Some((*marker, &bytes[at + 1..])),
        }
    }
}

fn start_of_frame(marker: u8, segment: &[u8]) -> Result<Frame, DecodeError> {
    let [precision, h0, h1, w0, w1, count, components @ ..] = segment else {
        return Err(DecodeError::BROKEN);
    };
    if components.len() != 3 * usize::from(*count) {
        return Err(DecodeError::BROKEN);
    }
    let components: Vec<_> = components
        .chunks_exact(3)
        .map(|fields| Component {
            id: fields[0],
            across: fields[1] >> 4,
            down: fields[1] & 15,
            table: fields[2],
        })
        .collect();
    let has_valid_sampling =
        |component: &Component| (1..=4).contains(&component.across) && (1..=4).contains(&component.down);
    if !components.iter().all(has_valid_sampling) {
        return Err(DecodeError::BROKEN);
    }
    let (width, height) = (u16::from_be_bytes([*w0, *w1]).into(), u16::from_be_bytes([*h0, *h1]).into());
    // A later segment (DNL) would state the height. libjpeg does not support it.
    if width == 0 || height == 0 {
        return Err(DecodeError::UNSUPPORTED);
    }
    let plain = *precision == 8 && matches!(marker, 0xc0..=0xc2);
    let (progressive, arithmetic) = (matches!(marker, 0xc2 | 0xca), marker >= 0xc9);
    Ok(Frame { progressive, plain, arithmetic, width, height, components })
}

fn build_header(frame: &Frame, scan_components: usize, marks: &Marks) -> Result<JpegHeader, DecodeError> {
    let ids: Vec<_> = frame.components.iter().map(|component| component.id).collect();
    let colours = match (ids.len(), marks.adobe) {
        (1, _) => Colours::Gray,
        // Like libjpeg: a JFIF file is YCbCr, even if the Adobe mark or the ids say RGB.
        (3, Some(0)) if !marks.jfif => Colours::AdobeRgb,
        (3, None) if !marks.jfif && ids == *b"RGB" => Colours::Rgb,
        (3, _) => Colours::YCbCr,
        (4, None | Some(0)) => Colours::Cmyk,
        (4, Some(_)) => Colours::Ycck,
        _ => return Err(DecodeError::UNSUPPORTED),
    };
    let [across, down] = max_factors(&frame.components).map(u64::from);
    let units = u64::from(frame.width).div_ceil(8 * across) * u64::from(frame.height).div_ceil(8 * down);
    let blocks = frame.components.iter().map(|component| u64::from(component.across * component.down));
    let blocks = units * blocks.sum::<u64>();
    let is_single_scan = scan_components == ids.len();
    let sampling = |component: &Component| (component.across, component.down);
    let first_sampling = frame.components.first().map(sampling);
    let others_are_single = frame.components.iter().skip(1).map(sampling).all(|sampled| sampled == (1, 1));
    let is_common = match first_sampling {
        _ if ids.len() == 1 => true,
        Some((1, 2)) => !frame.progressive && is_single_scan && others_are_single,
        Some((1, 1) | (2, 1 | 2)) => (frame.progressive || is_single_scan) && others_are_single,
        _ => false,
    };
    Ok(JpegHeader {
        width: frame.width,
        height: frame.height,
        colours,
        is_buffered: frame.progressive || !is_single_scan,
        samples: 64 * blocks,
        is_common,
        is_plain: frame.plain,
        is_arithmetic: frame.arithmetic,
        is_progressive: frame.progressive,
        components: frame.components.clone(),
        has_unknown_mark: marks.has_unknown,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn segment(marker: u8, content: &[u8]) -> Vec<u8> {
        let length = u16::try_from(content.len() + 2).unwrap().to_be_bytes();
        [&[0xff, marker], &length[..], content].concat()
    }

    fn file(segments: &[Vec<u8>]) -> Vec<u8> {
        [&[0xff, 0xd8], segments.concat().as_slice()].concat()
    }

    fn frame(marker: u8, components: &[[u8; 3]]) -> Vec<u8> {
        let count = u8::try_from(components.len()).unwrap();
        segment(marker, &[&[8, 0, 100, 0, 200, count], components.concat().as_slice()].concat())
    }

    const THREE: [[u8; 3]; 3] = [[1, 0x22, 0], [2, 0x11, 1], [3, 0x11, 1]];

    #[test]
    fn size_and_memory_are_read_before_the_first_scan() {
        let scan = segment(0xda, &[3]);
        let header = read(&file(&[segment(0xe1, b"Exif\0\0\xff\xc0"), frame(0xc0, &THREE), scan])).unwrap();
        assert_eq!((header.width, header.height, header.colours), (200, 100, Colours::YCbCr));
        assert!(!header.is_buffered);
        assert_eq!(header.samples, 208 * 112 * 3 / 2);
    }

    #[test]
    fn progressive_and_single_component_scans_are_buffered() {
        assert!(read(&file(&[frame(0xc2, &THREE), segment(0xda, &[3])])).unwrap().is_buffered);
        assert!(read(&file(&[frame(0xc0, &THREE), segment(0xda, &[1])])).unwrap().is_buffered);
    }

    #[test]
    fn only_usual_samplings_and_scans_are_common() {
        let sampled = |factors| [[1, factors, 0], [2, 0x11, 1], [3, 0x11, 1]];
        for (marker, factors, in_scan, common) in [
            (0xc0, 0x11, 3, true),
            (0xc0, 0x21, 3, true),
            (0xc0, 0x22, 3, true),
            (0xc0, 0x12, 3, true),
            (0xc0, 0x41, 3, false),
            (0xc0, 0x22, 1, false),
            (0xc2, 0x22, 1, true),
            (0xc2, 0x12, 3, false),
        ] {
            let bytes = file(&[frame(marker, &sampled(factors)), segment(0xda, &[in_scan])]);
            assert_eq!(read(&bytes).unwrap().is_common, common, "{marker:x} {factors:x} {in_scan}");
        }
        let chroma_twice = [[1, 0x21, 0], [2, 0x21, 1], [3, 0x21, 1]];
        assert!(!read(&file(&[frame(0xc0, &chroma_twice), segment(0xda, &[3])])).unwrap().is_common);
    }

    #[test]
    fn colour_model_is_detected_as_in_browsers() {
        let jfif = || segment(0xe0, b"JFIF\0\x01\x02\0\0\x01\0\x01\0\0");
        let short = || segment(0xe0, b"JFIF\0\x01\x02\0\0\x01\0\x01\0");
        let adobe = |transform| segment(0xee, &[b"Adobe\0\x64\0\0\0\0".as_slice(), &[transform]].concat());
        let rgb = [[b'R', 0x11, 0], [b'G', 0x11, 0], [b'B', 0x11, 0]];
        let four = [[1, 0x11, 0], [2, 0x11, 0], [3, 0x11, 0], [4, 0x11, 0]];
        for (segments, colours) in [
            (vec![frame(0xc0, &THREE[..1])], Colours::Gray),
            (vec![frame(0xc0, &THREE)], Colours::YCbCr),
            (vec![frame(0xc0, &rgb)], Colours::Rgb),
            (vec![jfif(), frame(0xc0, &rgb)], Colours::YCbCr),
            (vec![adobe(0), frame(0xc0, &THREE)], Colours::AdobeRgb),
            (vec![frame(0xc0, &THREE), adobe(0)], Colours::AdobeRgb),
            (vec![jfif(), adobe(0), frame(0xc0, &THREE)], Colours::YCbCr),
            (vec![short(), adobe(0), frame(0xc0, &THREE)], Colours::AdobeRgb),
            (vec![short(), frame(0xc0, &rgb)], Colours::Rgb),
            (vec![adobe(1), frame(0xc0, &THREE)], Colours::YCbCr),
            (vec![adobe(9), frame(0xc0, &rgb)], Colours::YCbCr),
            (vec![frame(0xc0, &four)], Colours::Cmyk),
            (vec![adobe(0), frame(0xc0, &four)], Colours::Cmyk),
            (vec![adobe(1), frame(0xc0, &four)], Colours::Ycck),
            (vec![adobe(2), frame(0xc0, &four)], Colours::Ycck),
            (vec![adobe(255), frame(0xc0, &four)], Colours::Ycck),
            (vec![adobe(2), frame(0xc0, &four), adobe(0)], Colours::Cmyk),
            (vec![adobe(0), frame(0xc0, &four), segment(0xee, b"Adobe\0")], Colours::Cmyk),
        ] {
            let bytes = file(&[segments.concat(), segment(0xda, &[1])]);
            assert_eq!(read(&bytes).unwrap().colours, colours);
        }
    }

    #[test]
    fn unknown_marks_are_replaced_by_their_meaning() {
        let file = |marks: [u8; 3], components: &[[u8; 3]]| {
            let [first, other, in_scan] =
                marks.map(|mark| segment(0xee, &[b"Adobe\0\x64\0\0\0\0".as_slice(), &[mark, 7]].concat()));
            let looks_alike = segment(0xed, b"Adobe\0\x64\0\0\0\0\x09");
            let scan = segment(0xda, &[1]);
            file(&[first, looks_alike, frame(0xc0, components), vec![0xff], other, scan, in_scan])
        };
        for (components, meant) in [(&THREE[..], 1), (&[[1, 0x11, 0]; 4], 2)] {
            let bytes = file([9, 0, 9], components);
            let header = read(&bytes).unwrap();
            assert!(header.has_unknown_mark);
            assert_eq!(replace_unknown_marks(&bytes, &header), file([meant, 0, 9], components));
        }
        assert!(!read(&file([0, 1, 9], &THREE)).unwrap().has_unknown_mark);
    }

    #[test]
    fn files_cut_anywhere_are_refused() {
        let whole = file(&[frame(0xc0, &THREE), segment(0xda, &[3])]);
        read(&whole).unwrap();
        for length in 0..whole.len() - 1 {
            assert!(read(&whole[..length]).is_err(), "{length}");
        }
        assert!(read(&file(&[frame(0xc0, &THREE), frame(0xc0, &THREE), segment(0xda, &[3])])).is_err());
    }
}
