//! Reduces luma to the 64 x 64 points that are transformed, and measures their detail.
//!
//! Sums are integers, so that nothing is lost before the one division.

use pulp::Arch;

use super::taps::{POINTS, Taps};

pub(super) type Points = [[f64; POINTS]; POINTS];

/// Largest total weight of pixels in a sum of 16 bits. Such sums cost half as much as those of 32.
const NARROW: u32 = u16::MAX as u32 / 255;

/// Returns the points of luma in rows without gaps, for each of the given lists of columns.
pub(super) fn reduce<const N: usize>(
    luma: &[u8],
    width: usize,
    rows: &[Taps],
    columns: [&[Taps]; N],
) -> [Box<Points>; N] {
    let points = [(); N].map(|()| Box::new([[0.0; POINTS]; POINTS]));
    // Only what is inlined is made for the instructions that are found, and only a closure that gives away what it
    // holds is inlined as a whole.
    Arch::new().dispatch(
        #[inline(always)]
        move || weighed(luma, width, rows, columns, points),
    )
}

#[inline(always)]
fn weighed<const N: usize>(
    luma: &[u8],
    width: usize,
    rows: &[Taps],
    columns: [&[Taps]; N],
    mut points: [Box<Points>; N],
) -> [Box<Points>; N] {
    let mut narrow = vec![0; width];
    let mut sums = vec![0; width];
    for (at, row) in rows.iter().enumerate() {
        add_up(luma, width, row, &mut narrow, &mut sums);
        for (columns, points) in columns.iter().zip(&mut points) {
            for (column, point) in columns.iter().zip(points[at].iter_mut()) {
                let divisor = u64::from(row.divisor) * u64::from(column.divisor);
                *point = real(across(&sums, column)) / real(divisor);
            }
        }
    }
    points
}

/// Computes the weighted sums of one point's rows, column by column.
#[inline(always)]
fn add_up(luma: &[u8], width: usize, taps: &Taps, narrow: &mut [u16], sums: &mut [u32]) {
    sums.fill(0);
    let mut rows = luma.chunks_exact(width).skip(taps.first).zip(taps.weights.iter().copied()).peekable();
    while let Some((row, weight)) = rows.next() {
        if weight > NARROW {
            for (sum, pixel) in sums.iter_mut().zip(row) {
                *sum += weight * u32::from(*pixel);
            }
            continue;
        }
        start(narrow, row, low(weight));
        let mut room = NARROW - weight;
        // Two rows at a time, so that the sums are loaded and stored half as often.
        while let Some((upper, one)) = rows.next_if(|(_, weight)| *weight <= room) {
            room -= one;
            match rows.next_if(|(_, weight)| *weight <= room) {
                Some((lower, two)) => {
                    room -= two;
                    add_two(narrow, upper, low(one), lower, low(two));
                }
                None => add_two(narrow, upper, low(one), upper, 0),
            }
        }
        for (sum, part) in sums.iter_mut().zip(&*narrow) {
            *sum += u32::from(*part);
        }
    }
}

fn low(weight: u32) -> u16 {
    u16::try_from(weight).expect("a weight within the room of narrow sums")
}

#[inline(always)]
fn start(sums: &mut [u16], row: &[u8], weight: u16) {
    for (sum, pixel) in sums.iter_mut().zip(row) {
        *sum = weight * u16::from(*pixel);
    }
}

#[inline(always)]
fn add_two(sums: &mut [u16], upper: &[u8], one: u16, lower: &[u8], two: u16) {
    for ((sum, upper), lower) in sums.iter_mut().zip(upper).zip(lower) {
        *sum += one * u16::from(*upper) + two * u16::from(*lower);
    }
}

/// Returns the weighted sum of one point's columns.
#[inline(always)]
fn across(sums: &[u32], taps: &Taps) -> u64 {
    let pixels = &sums[taps.first..taps.first + taps.weights.len()];
    pixels.iter().zip(&taps.weights).map(|(sum, weight)| u64::from(*sum) * u64::from(*weight)).sum()
}

/// Converts a sum, which is below 2^57. The rounding error is far below one step of one pixel.
#[expect(clippy::cast_precision_loss, reason = "see above")]
fn real(sum: u64) -> f64 {
    sum as f64
}

/// Returns the total difference of neighbours, from 0 to 100. A difference counts in whole hundredths of the range of luma,
/// so that soft shading and noise count nothing.
pub(super) fn quality(points: &Points) -> u8 {
    let step = |one: f64, other: f64| ((one - other) * 100.0 / 255.0).abs().trunc();
    let mut sum = 0.0;
    for rows in points.windows(2) {
        sum += rows[0].iter().zip(&rows[1]).map(|(one, other)| step(*one, *other)).sum::<f64>();
    }
    for row in points {
        sum += row.windows(2).map(|pair| step(pair[0], pair[1])).sum::<f64>();
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "at most 100, and never negative"
    )]
    let quality = (sum / 90.0).min(100.0) as u8;
    quality
}

#[cfg(test)]
mod tests {
    use super::{super::taps::taps, *};

    fn reduce(luma: &[u8], width: usize, height: usize) -> Box<Points> {
        let [points] = super::reduce(luma, width, &taps(height), [&taps(width)]);
        points
    }

    #[test]
    fn single_colour_keeps_its_value_at_every_size() {
        for (width, height) in [(5, 5), (64, 64), (129, 257), (1_000, 5), (5, 4_000), (130, 32_768)] {
            for luma in [0, 1, 127, 255] {
                let points = reduce(&vec![luma; width * height], width, height);
                assert!(points.iter().flatten().all(|point| *point == f64::from(luma)), "{width} x {height}");
                assert_eq!(quality(&points), 0);
            }
        }
    }

    #[test]
    fn chessboard_has_full_quality() {
        let luma: Vec<u8> =
            (0..64 * 64).map(|at| if (at / 64 + at % 64) % 2 == 0 { 0 } else { 255 }).collect();
        assert_eq!(quality(&reduce(&luma, 64, 64)), 100);
    }

    #[test]
    fn quality_counts_whole_hundredths_only() {
        let mut points = [[0.0; POINTS]; POINTS];
        points[0][0] = 2.54;
        assert_eq!(quality(&points), 0);
        points[0] = [255.0 * 0.90; POINTS];
        assert_eq!(quality(&points), 64);
    }
}
