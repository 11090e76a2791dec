//! Attacks from outside: one party abuses the service while another uses it properly, and the other must not notice.
//!
//! `tests/attacks/run` runs them against a release binary and prints a table. See `README.md` beside this file.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod attack;
mod good;
mod http;
mod http2;
mod processing;
mod requests;
mod service;

use std::time::Duration;

use anyhow::{Result, ensure};
use attack::Attack;

/// Duration of each attack.
fn seconds() -> Result<u64> {
    Ok(std::env::var("TIDEGATE_ATTACKS_SECONDS").map_or(Ok(20), |text| text.parse())?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "an attack: tests/attacks/run"]
async fn the_good_client_does_not_notice() -> Result<()> {
    let selection = std::env::var("TIDEGATE_ATTACKS").unwrap_or_default();
    let selection: Vec<&str> = selection.split_whitespace().collect();
    let is_selected = |attack: &&Attack| selection.is_empty() || selection.contains(&attack.name);
    let attacks: Vec<Attack> = attack::all();
    let attacks: Vec<&Attack> = attacks.iter().filter(is_selected).collect();
    ensure!(!attacks.is_empty(), "no such attack: {selection:?}");
    let lasts = Duration::from_secs(seconds()?);
    let mut rows = Vec::new();
    for attack in attacks {
        eprintln!("attack {}: {}", attack.name, attack.about);
        match attack.run(lasts).await {
            Ok(row) => rows.push(row),
            Err(error) => rows.push(attack::Row::from_error(attack.name, &error)),
        }
        eprintln!("{}", rows.last().unwrap().cells().join(" | "));
    }
    println!("\n| {} |\n|{}", attack::HEAD.join(" | "), "---|".repeat(attack::HEAD.len()));
    for row in &rows {
        println!("| {} |", row.cells().join(" | "));
    }
    println!();
    let missed: Vec<_> = rows.iter().filter(|row| !row.meets_bars()).map(|row| row.name).collect();
    ensure!(missed.is_empty(), "bars missed under: {}", missed.join(", "));
    Ok(())
}
