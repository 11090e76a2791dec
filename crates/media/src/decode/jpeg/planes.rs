//! Converts planes of components to luma: stretches each to the picture's size and converts colours.

use std::borrow::Cow;

use super::{
    super::luma,
    header::{Colours, Component, JpegHeader},
    pixels,
};

/// Sample of a missing component: medium gray.
const NOTHING: u8 = 128;

/// Returns the number of components, from the first, that are needed for luma.
pub(super) fn needed(header: &JpegHeader) -> usize {
    if matches!(header.colours, Colours::Gray | Colours::YCbCr) { 1 } else { header.components.len() }
}

/// Memory for their planes, and for what is made of them.
pub(super) fn bytes(header: &JpegHeader) -> u64 {
    let planes: u64 = (0..needed(header)).map(|component| samples(header, component) as u64).sum();
    if is_luma(header) { planes } else { planes + pixels(header) }
}

fn samples(header: &JpegHeader, component: usize) -> usize {
    header.sides(component).iter().product()
}

/// The first plane is luma, of all pixels.
fn is_luma(header: &JpegHeader) -> bool {
    needed(header) == 1 && samples(header, 0) as u64 == pixels(header)
}

/// Converts as many planes as are needed; `None` if all are missing.
pub(super) fn luma(header: &JpegHeader, mut planes: Vec<Option<Vec<u8>>>) -> Option<Vec<u8>> {
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
        let rows = rows.map(|(component, plane)| stretched(header, component, *plane, row));
        let rows: Vec<_> = rows.collect();
        append(&mut luma, header.colours, &rows)?;
    }
    Some(luma)
}

/// A row of the picture. What did not come of a component says nothing.
fn stretched<'a>(
    header: &JpegHeader,
    component: usize,
    plane: Option<&'a [u8]>,
    row: usize,
) -> Cow<'a, [u8]> {
    let width = header.width as usize;
    let Some(plane) = plane else { return vec![NOTHING; width].into() };
    let Component { across, down, .. } = header.components[component];
    let [across, down] = [across, down].map(usize::from);
    let [most_across, most_down] = header.most().map(usize::from);
    let [own_width, own_height] = header.sides(component);
    let line = |row: usize| &plane[row * own_width..][..own_width];
    let own = row * down / most_down;
    let is_double = [2 * across == most_across, 2 * down == most_down];
    // Narrow ones are stretched by repeating.
    let way = match is_double {
        [true, _] if own_width < 3 => [false; 2],
        [true, false] if down != most_down => [false; 2],
        [false, true] if across != most_across => [false; 2],
        way => way,
    };
    let [is_wider, is_higher] = way;
    if is_higher {
        // The nearest row counts three times, and the next nearest once.
        let is_above = row.is_multiple_of(2);
        let beside = if is_above { own.saturating_sub(1) } else { (own + 1).min(own_height - 1) };
        let sums = line(own).iter().zip(line(beside));
        let sums = sums.map(|(near, far)| 3 * u16::from(*near) + u16::from(*far));
        if is_wider {
            return wider(&sums.collect::<Vec<_>>(), [8, 7], 4, width).into();
        }
        let half = if is_above { 1 } else { 2 };
        return sums.map(|sum| byte(sum + half, 2)).collect();
    }
    if is_wider {
        let sums: Vec<_> = line(own).iter().map(|sample| u16::from(*sample)).collect();
        return wider(&sums, [1, 2], 2, width).into();
    }
    if across == most_across {
        return line(own).into();
    }
    (0..width).map(|column| line(own)[column * across / most_across]).collect()
}

/// Two for one: each three times and its neighbour on that side once, with another half for either to be rounded by.
fn wider(sums: &[u16], halves: [u16; 2], cut: u32, width: usize) -> Vec<u8> {
    let last = sums.len() - 1;
    let pairs = sums.iter().enumerate().flat_map(|(at, sum)| {
        let [left, right] = [sums[at.saturating_sub(1)], sums[last.min(at + 1)]];
        [byte(3 * sum + left + halves[0], cut), byte(3 * sum + right + halves[1], cut)]
    });
    pairs.take(width).collect()
}

fn byte(sum: u16, cut: u32) -> u8 {
    #[allow(clippy::cast_possible_truncation, reason = "a mean of bytes")]
    return (sum >> cut) as u8;
}

fn append(into: &mut Vec<u8>, colours: Colours, rows: &[Cow<'_, [u8]>]) -> Option<()> {
    match rows {
        [gray] => into.extend(gray.iter()),
        [red, green, blue] => {
            let pixels = red.iter().zip(green.iter()).zip(blue.iter());
            into.extend(pixels.map(|((red, green), blue)| luma::of_rgb(*red, *green, *blue)));
        }
        [cyan, magenta, yellow, black] => {
            let pixels = cyan.iter().zip(magenta.iter()).zip(yellow.iter().zip(black.iter()));
            into.extend(pixels.map(|((cyan, magenta), (yellow, black))| {
                // Adobe's inks are stored as what they leave, and transformed as what they are.
                let [cyan, magenta, yellow] = match colours {
                    Colours::Ycck => luma::rgb_of(*cyan, *magenta, *yellow),
                    _ => [!cyan, !magenta, !yellow],
                };
                luma::of_cmyk(cyan, magenta, yellow, !black)
            }));
        }
        _ => return None,
    }
    Some(())
}
