//! The whole pipeline in one process on embedded data that grows: CPU an item and bytes on disk by number of stored items.

use std::{fs, io, os::unix::fs::MetadataExt as _, path::Path, time::Duration};

use anyhow::{Result, ensure};
use tidegate_benches::{
    installation::{Installation, UP},
    table::{median, print, spread, thousands},
};
use tokio::time::{Instant, sleep};

use crate::{
    Place,
    pipeline::{Round, Subject},
};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Stored items at which is measured, in millions, ascending
    #[arg(long, value_delimiter = ',', default_values_t = [0.1, 1.0, 5.0, 20.0])]
    steps: Vec<f64>,
    /// Rounds of each step
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Items of a round
    #[arg(long, default_value_t = 100_000)]
    items: u64,
    #[arg(long, default_value_t = 16)]
    connections: usize,
}

/// Items that are sent before the next look at how many are stored.
const FILLED_AT_ONCE: u64 = 500_000;
/// How long compaction may go on after a step was filled, before its rounds are measured beside it.
const SETTLING: Duration = Duration::from_secs(60);
/// Processor time in a second below which the service is at rest.
const AT_REST: f64 = 0.1;

struct Step {
    stored: u64,
    /// CPU an item while the step was filled; `None` if it took none.
    filling: Option<f64>,
    rounds: Vec<Round>,
    bytes: u64,
    resident_mib: f64,
}

pub(crate) async fn run(place: &Place, args: &Args) -> Result<()> {
    ensure!(args.steps.is_sorted() && args.steps.iter().all(|step| *step > 0.0), "steps are above 0 and ascend");
    let installation = Installation::embedded(&place.repository, &place.binary).await?;
    let mut subject = Subject { installation, role: UP, next: 0 };
    let mut steps = Vec::new();
    for millions in &args.steps {
        let wanted = format!("{:.0}", millions * 1e6).parse::<u64>()?;
        steps.push(step(&mut subject, wanted, args).await?);
    }
    subject.check_sample().await?;
    println!("### Whole pipeline, embedded, 100 a request, by number of stored items\n");
    print(
        &[
            "stored items",
            "CPU µs an item until there",
            "CPU µs an item from there",
            "lowest to highest",
            "items/s",
            "MiB on disk",
            "bytes an item",
            "resident MiB",
        ],
        &steps.iter().map(line).collect::<Vec<_>>(),
    );
    subject.installation.stop_all().await
}

/// Fills the installation up to so many items, waits until it is at rest, and measures from there.
async fn step(subject: &mut Subject, wanted: u64, args: &Args) -> Result<Step> {
    let (first, before) = (subject.next, subject.cpu()?);
    while subject.next < wanted {
        let items = FILLED_AT_ONCE.min(wanted - subject.next);
        let round = subject.round(items, args.connections).await?;
        eprintln!("{} stored, {:.1} µs an item", subject.next, round.cpu_micros());
    }
    settle(subject).await?;
    let filled = subject.next - first;
    let filling = (filled > 0).then_some((subject.cpu()? - before) * 1e6 / filled as f64);
    let stored = subject.next;
    let bytes = bytes_on_disk(&subject.installation.dir.path().join("data"))?;
    let mut rounds = Vec::new();
    for nth in 1..=args.rounds {
        let round = subject.round(args.items, args.connections).await?;
        eprintln!("{stored} stored, round {nth}: {:.1} µs an item", round.cpu_micros());
        rounds.push(round);
    }
    Ok(Step { stored, filling, rounds, bytes, resident_mib: subject.installation.processes[UP].resident_mib()? })
}

async fn settle(subject: &Subject) -> Result<()> {
    let until = Instant::now() + SETTLING;
    let mut before = subject.cpu()?;
    while Instant::now() < until {
        sleep(Duration::from_secs(1)).await;
        let now = subject.cpu()?;
        if now - before < AT_REST {
            break;
        }
        before = now;
    }
    Ok(())
}

/// What the files of a folder take on disk. Files that are removed meanwhile count nothing.
fn bytes_on_disk(folder: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        match entry.metadata() {
            Ok(about) if about.is_dir() => bytes += bytes_on_disk(&entry.path())?,
            Ok(about) => bytes += about.blocks() * 512,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}

fn line(step: &Step) -> Vec<String> {
    let cpu: Vec<f64> = step.rounds.iter().map(Round::cpu_micros).collect();
    let (low, high) = spread(&cpu);
    vec![
        thousands(step.stored as f64),
        step.filling.map_or_else(String::new, |micros| format!("{micros:.1}")),
        format!("{:.1}", median(cpu)),
        format!("{low:.1} to {high:.1}"),
        thousands(median(step.rounds.iter().map(Round::rate).collect())),
        format!("{:.0}", step.bytes as f64 / f64::from(1 << 20)),
        format!("{:.0}", step.bytes as f64 / step.stored as f64),
        format!("{:.0}", step.resident_mib),
    ]
}
