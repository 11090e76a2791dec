//! Converts component planes to luma: stretches each plane to the picture's size, and converts colours.

use std::borrow::Cow;

use super::{
    super::luma,
    header::{Colours, Component, JpegHeader},
    pixels,
};

/// Sample of a missing component: medium gray.
const MISSING_SAMPLE: u8 = 128;

/// Returns the number of leading components needed for luma.
pub(super) fn count_needed_planes(header: &JpegHeader) -> usize {
    if matches!(header.colours, Colours::Gray | Colours::YCbCr) { 1 } else { header.components.len() }
}

/// Returns the memory for the needed planes and the converted picture.
pub(super) fn count_bytes(header: &JpegHeader) -> u64 {
    let planes: u64 =
        (0..count_needed_planes(header)).map(|component| count_samples(header, component) as u64).sum();
    if is_luma(header) { planes } else { planes + pixels(header) }
}

fn count_samples(header: &JpegHeader, component: usize) -> usize {
    header.sides(component).iter().product()
}

/// True if the first plane is the luma of all pixels.
fn is_luma(header: &JpegHeader) -> bool {
    count_needed_planes(header) == 1 && count_samples(header, 0) as u64 == pixels(header)
}

/// Converts the needed planes to luma; `None` if all are missing.
pub(super) fn luma(header: &JpegHeader, mut planes: Vec<Option<Vec<u8>>>) -> Option<Vec<u8>> {
    // The usual case: the plane is the result and needs no second buffer.
    if is_luma(header) {
        return planes.swap_remove(0);
    }
    if planes.iter().all(Option::is_none) {
        return None;
    }
    let planes: Vec<_> = planes.iter().map(Option::as_deref).collect();
    let mut luma = Vec::with_capacity(usize::try_from(pixels(header)).ok()?);
    for row in 0..header.height as usize {
        let rows = planes.iter().enumerate();
        let rows = rows.map(|(component, plane)| stretch_row(header, component, *plane, row));
        let rows: Vec<_> = rows.collect();
        append_luma(&mut luma, header.colours, &rows)?;
    }
    Some(luma)
}

/// Returns a row of a component in the width of the picture. A missing component is medium gray.
fn stretch_row<'a>(
    header: &JpegHeader,
    component: usize,
    plane: Option<&'a [u8]>,
    row: usize,
) -> Cow<'a, [u8]> {
    let width = header.width as usize;
    let Some(plane) = plane else { return vec![MISSING_SAMPLE; width].into() };
    let Component { across, down, .. } = header.components[component];
    let [across, down] = [across, down].map(usize::from);
    let [max_across, max_down] = header.max_sampling().map(usize::from);
    let [plane_width, plane_height] = header.sides(component);
    let line = |row: usize| &plane[row * plane_width..][..plane_width];
    let plane_row = row * down / max_down;
    let is_double = [2 * across == max_across, 2 * down == max_down];
    // libjpeg repeats samples, without smoothing, for narrow planes and for other ratios in the other direction.
    let doubled_sides = match is_double {
        [true, _] if plane_width < 3 => [false; 2],
        [true, false] if down != max_down => [false; 2],
        [false, true] if across != max_across => [false; 2],
        doubled_sides => doubled_sides,
    };
    let [is_wider, is_higher] = doubled_sides;
    if is_higher {
        // The nearest row has a weight of 3/4, the next nearest 1/4.
        let is_above = row.is_multiple_of(2);
        let neighbour_row =
            if is_above { plane_row.saturating_sub(1) } else { (plane_row + 1).min(plane_height - 1) };
        let sums = line(plane_row).iter().zip(line(neighbour_row));
        let sums = sums.map(|(near, far)| 3 * u16::from(*near) + u16::from(*far));
        if is_wider {
            return double_width(&sums.collect::<Vec<_>>(), [8, 7], 4, width).into();
        }
        let half = if is_above { 1 } else { 2 };
        return sums.map(|sum| to_byte(sum + half, 2)).collect();
    }
    if is_wider {
        let sums: Vec<_> = line(plane_row).iter().map(|sample| u16::from(*sample)).collect();
        return double_width(&sums, [1, 2], 2, width).into();
    }
    if across == max_across {
        return line(plane_row).into();
    }
    (0..width).map(|column| line(plane_row)[column * across / max_across]).collect()
}

/// Doubles a row: each sample has a weight of 3/4, its neighbour 1/4. `halves` are the rounding terms of the left and right
/// one.
fn double_width(sums: &[u16], halves: [u16; 2], shift: u32, width: usize) -> Vec<u8> {
    let last = sums.len() - 1;
    let pairs = sums.iter().enumerate().flat_map(|(at, sum)| {
        let [left, right] = [sums[at.saturating_sub(1)], sums[last.min(at + 1)]];
        [to_byte(3 * sum + left + halves[0], shift), to_byte(3 * sum + right + halves[1], shift)]
    });
    pairs.take(width).collect()
}

fn to_byte(sum: u16, shift: u32) -> u8 {
    #[allow(clippy::cast_possible_truncation, reason = "a mean of bytes")]
    return (sum >> shift) as u8;
}

fn append_luma(target: &mut Vec<u8>, colours: Colours, rows: &[Cow<'_, [u8]>]) -> Option<()> {
    match rows {
        [gray] => target.extend(gray.iter()),
        [red, green, blue] => {
            let pixels = red.iter().zip(green.iter()).zip(blue.iter());
            target.extend(pixels.map(|((red, green), blue)| luma::of_rgb(*red, *green, *blue)));
        }
        [cyan, magenta, yellow, black] => {
            let pixels = cyan.iter().zip(magenta.iter()).zip(yellow.iter().zip(black.iter()));
            target.extend(pixels.map(|((cyan, magenta), (yellow, black))| {
                // Adobe stores inks inverted. The transform of YCCK already inverts the first three.
                let [cyan, magenta, yellow] = match colours {
                    Colours::Ycck => luma::ycbcr_to_rgb(*cyan, *magenta, *yellow),
                    _ => [!cyan, !magenta, !yellow],
                };
                luma::of_cmyk(cyan, magenta, yellow, !black)
            }));
        }
        _ => return None,
    }
    Some(())
}
