//! Reduces luma to the 64 x 64 points for the transform, and measures their detail.
//!
//! Sums are integers: only the final division rounds.

use pulp::Arch;

use super::taps::{POINTS, Taps};

pub(super) type Points = [[f64; POINTS]; POINTS];

/// Largest total weight of pixels in a 16-bit sum. Such sums cost half as much as 32-bit ones.
const MAX_NARROW_WEIGHT: u32 = u16::MAX as u32 / 255;

/// Computes the points of luma, stored in rows without gaps, for each list of columns.
pub(super) fn reduce<const N: usize>(
    luma: &[u8],
    width: usize,
    rows: &[Taps],
    columns: [&[Taps]; N],
) -> [Box<Points>; N] {
    let points = [(); N].map(|()| Box::new([[0.0; POINTS]; POINTS]));
    // Only inlined code is compiled for the instruction set that `pulp` detects, and only a closure that moves its captures
    // is inlined completely.
    Arch::new().dispatch(
        #[inline(always)]
        move || weigh_points(luma, width, rows, columns, points),
    )
}

#[inline(always)]
fn weigh_points<const N: usize>(
    luma: &[u8],
    width: usize,
    rows: &[Taps],
    columns: [&[Taps]; N],
    mut points: [Box<Points>; N],
) -> [Box<Points>; N] {
    let mut narrow_sums = vec![0; width];
    let mut sums = vec![0; width];
    for (index, row) in rows.iter().enumerate() {
        sum_rows(luma, width, row, &mut narrow_sums, &mut sums);
        for (columns, points) in columns.iter().zip(&mut points) {
            for (column, point) in columns.iter().zip(points[index].iter_mut()) {
                let divisor = u64::from(row.divisor) * u64::from(column.divisor);
                *point = to_real(sum_columns(&sums, column)) / to_real(divisor);
            }
        }
    }
    points
}

/// Computes the weighted sums of one point's rows, column by column.
#[inline(always)]
fn sum_rows(luma: &[u8], width: usize, taps: &Taps, narrow_sums: &mut [u16], sums: &mut [u32]) {
    sums.fill(0);
    let mut rows = luma.chunks_exact(width).skip(taps.first).zip(taps.weights.iter().copied()).peekable();
    while let Some((row, weight)) = rows.next() {
        // A single row of this weight would overflow a 16-bit sum.
        if weight > MAX_NARROW_WEIGHT {
            for (sum, pixel) in sums.iter_mut().zip(row) {
                *sum += weight * u32::from(*pixel);
            }
            continue;
        }
        // Rows are summed in 16 bits while their total weight permits it, then added to the 32-bit sums.
        set_weighted(narrow_sums, row, narrow_weight(weight));
        let mut remaining_weight = MAX_NARROW_WEIGHT - weight;
        // Two rows at a time halve the loads and stores of the sums.
        while let Some((upper, upper_weight)) = rows.next_if(|(_, weight)| *weight <= remaining_weight) {
            remaining_weight -= upper_weight;
            match rows.next_if(|(_, weight)| *weight <= remaining_weight) {
                Some((lower, lower_weight)) => {
                    remaining_weight -= lower_weight;
                    add_two_rows(
                        narrow_sums,
                        upper,
                        narrow_weight(upper_weight),
                        lower,
                        narrow_weight(lower_weight),
                    );
                }
                None => add_two_rows(narrow_sums, upper, narrow_weight(upper_weight), upper, 0),
            }
        }
        for (sum, narrow_sum) in sums.iter_mut().zip(&*narrow_sums) {
            *sum += u32::from(*narrow_sum);
        }
    }
}

fn narrow_weight(weight: u32) -> u16 {
    u16::try_from(weight).expect("the weight is at most MAX_NARROW_WEIGHT")
}

#[inline(always)]
fn set_weighted(sums: &mut [u16], row: &[u8], weight: u16) {
    for (sum, pixel) in sums.iter_mut().zip(row) {
        *sum = weight * u16::from(*pixel);
    }
}

#[inline(always)]
fn add_two_rows(sums: &mut [u16], upper: &[u8], upper_weight: u16, lower: &[u8], lower_weight: u16) {
    for ((sum, upper), lower) in sums.iter_mut().zip(upper).zip(lower) {
        *sum += upper_weight * u16::from(*upper) + lower_weight * u16::from(*lower);
    }
}

/// Returns the weighted sum of one point's columns.
#[inline(always)]
fn sum_columns(sums: &[u32], taps: &Taps) -> u64 {
    let pixels = &sums[taps.first..taps.first + taps.weights.len()];
    pixels.iter().zip(&taps.weights).map(|(sum, weight)| u64::from(*sum) * u64::from(*weight)).sum()
}

/// Converts a sum below 2^57. The rounding error is far below one step of one pixel.
#[expect(clippy::cast_precision_loss, reason = "see above")]
fn to_real(sum: u64) -> f64 {
    sum as f64
}

/// Returns the total difference between neighbouring points, scaled to 0 to 100. Each difference is truncated to whole
/// hundredths of the luma range, so that soft shading and noise add 0.
pub(super) fn measure_quality(points: &Points) -> u8 {
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
    use super::{super::taps::compute_taps, *};

    fn reduce(luma: &[u8], width: usize, height: usize) -> Box<Points> {
        let [points] = super::reduce(luma, width, &compute_taps(height), [&compute_taps(width)]);
        points
    }

    #[test]
    fn single_colour_keeps_its_value_at_every_size() {
        for (width, height) in [(5, 5), (64, 64), (129, 257), (1_000, 5), (5, 4_000), (130, 32_768)] {
            for luma in [0, 1, 127, 255] {
                let points = reduce(&vec![luma; width * height], width, height);
                assert!(points.iter().flatten().all(|point| *point == f64::from(luma)), "{width} x {height}");
                assert_eq!(measure_quality(&points), 0);
            }
        }
    }

    #[test]
    fn chessboard_has_full_quality() {
        let luma: Vec<u8> =
            (0..64 * 64).map(|at| if (at / 64 + at % 64) % 2 == 0 { 0 } else { 255 }).collect();
        assert_eq!(measure_quality(&reduce(&luma, 64, 64)), 100);
    }

    #[test]
    fn quality_counts_whole_hundredths_only() {
        let mut points = [[0.0; POINTS]; POINTS];
        points[0][0] = 2.54;
        assert_eq!(measure_quality(&points), 0);
        points[0] = [255.0 * 0.90; POINTS];
        assert_eq!(measure_quality(&points), 64);
    }
}
