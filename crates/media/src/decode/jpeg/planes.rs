//! From the planes of components to luma: each is stretched to the picture's size, and colours are converted.

use std::borrow::Cow;

use super::{
    super::luma,
    header::{Colours, Component, JpegHeader},
    pixels,
};

/// What is neither light nor dark.
const NOTHING: u8 = 128;

/// How many components say what luma is: the first ones.
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

/// Of planes as many as needed. Nothing if none came.
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
    let [most_across, most_down] = header.most().map(usize::from);
    let begin = row * usize::from(down) / most_down * header.sides(component)[0];
    let samples = &plane[begin..];
    if usize::from(across) == most_across {
        return samples[..width].into();
    }
    (0..width).map(|column| samples[column * usize::from(across) / most_across]).collect()
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
