//! PDQ by its description, step by step in double precision: slow, and simple enough to compare with the description.
//!
//! It shares the description, and no function, with the service's single pass.

#![allow(
    dead_code,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "not used by every test binary"
)]

use std::f64::consts::PI;

const SIDE: usize = 64;

/// The 64 digits of the hash, and the quality.
pub(crate) fn pdq(luma: &[u8], width: usize, height: usize) -> (String, u32) {
    let mut plane: Vec<Vec<f64>> =
        luma.chunks(width).map(|row| row.iter().map(|luma| f64::from(*luma)).collect()).collect();
    assert_eq!(plane.len(), height);
    for _pass in 0..2 {
        plane = plane.iter().map(|row| blurred(row)).collect();
        plane = transposed(&plane);
        plane = plane.iter().map(|row| blurred(row)).collect();
        plane = transposed(&plane);
    }
    let middle =
        |at: usize, length: usize| ((at as f64 + 0.5) * length as f64 / SIDE as f64).floor() as usize;
    let small: Vec<Vec<f64>> = (0..SIDE)
        .map(|row| (0..SIDE).map(|column| plane[middle(row, height)][middle(column, width)]).collect())
        .collect();
    (digits(&small), quality(&small))
}

/// One pass of the box filter: the mean over a window that is cut off at the ends.
fn blurred(line: &[f64]) -> Vec<f64> {
    let window = line.len().div_ceil(2 * SIDE);
    // The reference reads (window + 2) / 2 - 1 values before it writes the first one.
    let lead = (window + 2) / 2 - 1;
    (0..line.len())
        .map(|at| {
            let last = (at + lead).min(line.len() - 1);
            let first = (at + lead + 1).saturating_sub(window);
            line[first..=last].iter().sum::<f64>() / (last - first + 1) as f64
        })
        .collect()
}

fn transposed(plane: &[Vec<f64>]) -> Vec<Vec<f64>> {
    (0..plane[0].len()).map(|column| plane.iter().map(|row| row[column]).collect()).collect()
}

fn digits(small: &[Vec<f64>]) -> String {
    let wave = |frequency: usize, place: usize| {
        (PI * frequency as f64 * (2 * place + 1) as f64 / (2 * SIDE) as f64).cos()
            * (2.0 / SIDE as f64).sqrt()
    };
    let across: Vec<Vec<f64>> = small
        .iter()
        .map(|row| (1..=16).map(|f| (0..SIDE).map(|at| wave(f, at) * row[at]).sum()).collect())
        .collect();
    let mut strengths = Vec::new();
    for down in 1..=16 {
        let row = (0..16).map(|column| (0..SIDE).map(|at| wave(down, at) * across[at][column]).sum::<f64>());
        strengths.extend(row);
    }
    let mut sorted = strengths.clone();
    sorted.sort_by(f64::total_cmp);
    let median = sorted[127];
    // Sixteen words of sixteen bits, the last one first.
    let words = strengths.chunks(16).rev().map(|word| {
        word.iter().enumerate().map(|(bit, strength)| u32::from(*strength > median) << bit).sum::<u32>()
    });
    words.map(|word| format!("{word:04x}")).collect()
}

fn quality(small: &[Vec<f64>]) -> u32 {
    let mut sum = 0;
    let mut count = |one: f64, other: f64| sum += (((one - other) * 100.0) / 255.0).trunc().abs() as u32;
    for row in 0..SIDE {
        for column in 0..SIDE {
            if row + 1 < SIDE {
                count(small[row][column], small[row + 1][column]);
            }
            if column + 1 < SIDE {
                count(small[row][column], small[row][column + 1]);
            }
        }
    }
    (sum / 90).min(100)
}
