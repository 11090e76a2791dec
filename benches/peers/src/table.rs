//! Medians, and tables as they stand in the README.
//!
//! It measures nothing.

/// The middle of the figures.
pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The lowest and the highest, for the reader to see how much they swing.
pub fn spread(figures: &[f64]) -> (f64, f64) {
    figures.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), it| (low.min(*it), high.max(*it)))
}

/// Prints rows as a Markdown table.
pub fn print(head: &[&str], rows: &[Vec<String>]) {
    let line = |cells: &[String]| println!("| {} |", cells.join(" | "));
    line(&head.iter().map(|cell| (*cell).to_owned()).collect::<Vec<_>>());
    line(&head.iter().map(|_| "---".to_owned()).collect::<Vec<_>>());
    for row in rows {
        line(row);
    }
    println!();
}

/// 1234567 as `1,235 k`.
pub fn thousands(figure: f64) -> String {
    let text = format!("{:.0}", figure / 1_000.0);
    if figure < 10_000.0 { format!("{:.1} k", figure / 1_000.0) } else { format!("{text} k") }
}

pub fn percent(ratio: f64) -> String {
    format!("{:.0} %", ratio * 100.0)
}

/// A figure against its bar.
pub fn verdict(holds: bool) -> &'static str {
    if holds { "held" } else { "MISSED" }
}
