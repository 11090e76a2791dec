//! From the start of `tidegate up --demo` on an empty folder to its first evaluated item, and memory at rest.
//!
//! A wall-clock figure: on a machine that does other work it is an upper bound.

use std::{
    fs,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use tidegate_benches::{
    http,
    items::{Pool, id},
    process::Process,
    table::{median, print, spread, verdict},
};
use tokio::time::sleep;

use crate::Place;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds at rest before memory is read
    #[arg(long, default_value_t = 5)]
    rest: u64,
}

const WITHIN_MS: f64 = 1_000.0;
const MIB: f64 = 100.0;

pub(crate) async fn run(place: &Place, args: &Args) -> Result<()> {
    let data: serde_json::Value = serde_json::from_str(Pool::new().data(0))?;
    let (mut ready, mut first, mut cpu, mut resident) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..=args.rounds {
        let dir = tempfile::tempdir()?;
        let folder = dir.path().join("data");
        let shown = folder.display().to_string();
        let anywhere = "127.0.0.1:0";
        let options = ["--api-listen", "--console-listen", "--ops-listen", "--receiver-listen"];
        let mut told = vec!["up", "--demo", "--data", &shown];
        told.extend(options.into_iter().flat_map(|option| [option, anywhere]));
        let began = Instant::now();
        let mut process = Process::start(&place.binary, told, &dir.path().join("output"))?;
        process.line("is ready: api").await?;
        let ready_ms = began.elapsed().as_secs_f64() * 1_000.0;
        let env = fs::read_to_string(folder.join("env"))?;
        let named = |name: &str| {
            let line = env.lines().find_map(|line| line.strip_prefix(&format!("{name}=")));
            line.map(str::to_owned).with_context(|| format!("{name} is not in {env}"))
        };
        let (url, key) = (named("TIDEGATE_URL")?, named("TIDEGATE_API_KEY")?);
        let (address, header) = (url.trim_start_matches("http://"), format!("X-API-KEY: {key}"));
        let item = json!({ "items": [{ "id": id(0, 0), "typeId": "post", "data": data }] });
        let sent = http::ask(address, "POST", "/api/v1/items/async", &header, Some(&item)).await?;
        ensure!(sent.status == 202, "{}", sent.body);
        let path = format!("/api/v1/items/post/{}?wait=10s", id(0, 0));
        let answer = http::ask(address, "GET", &path, &header, None).await?;
        ensure!(answer.json()["state"] == "evaluated", "{}", answer.body);
        let first_ms = began.elapsed().as_secs_f64() * 1_000.0;
        let cpu_ms = process.cpu_seconds()? * 1_000.0;
        sleep(Duration::from_secs(args.rest)).await;
        let mib = process.resident_mib()?;
        eprintln!(
            "round {round}: ready after {ready_ms:.0} ms, first item after {first_ms:.0} ms, {mib:.1} MiB"
        );
        process.stop().await?;
        // The first one reads the binary from the disk.
        if round > 0 {
            ready.push(ready_ms);
            first.push(first_ms);
            cpu.push(cpu_ms);
            resident.push(mib);
        }
    }
    let (low, high) = spread(&first);
    let (first, resident) = (median(first), median(resident));
    println!("### Start on an empty folder\n");
    print(
        &[
            "ready, ms",
            "first item evaluated, ms",
            "lowest to highest",
            "CPU until then, ms",
            "resident at rest, MiB",
        ],
        &[vec![
            format!("{:.0}", median(ready)),
            format!("{first:.0}"),
            format!("{low:.0} to {high:.0}"),
            format!("{:.0}", median(cpu)),
            format!("{resident:.1}"),
        ]],
    );
    println!(
        "First item within {WITHIN_MS:.0} ms: {}. Under {MIB:.0} MiB at rest: {}.\n",
        verdict(first <= WITHIN_MS),
        verdict(resident < MIB)
    );
    Ok(())
}
